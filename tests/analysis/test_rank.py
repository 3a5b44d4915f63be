from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax.analysis.rank import stable_rank, stable_ranks
from tests.analysis.networks import drawn


@pytest.mark.parametrize("shape", [(3, 7), (7, 3), (5, 5)])
def test_stable_rank_is_that_of_the_singular_values(shape):
    matrices = np.random.default_rng(0).normal(size=(4, *shape)) + 1.0
    values = np.linalg.svd(matrices, compute_uv=False)
    np.testing.assert_allclose(stable_rank(matrices), (values**2).sum(1) / values[:, 0] ** 2)
    assert stable_rank(np.zeros(shape)) == 0


def test_what_enters_the_first_block_of_a_vit():
    images = jax.random.normal(jax.random.key(0), (3, 8, 8, 3))
    model, variables = drawn("vit", images, width=8, depth=2, heads=2, patch=4, scan=True)
    found = stable_ranks(model, variables, images)
    assert found.ranks.shape == (2, 3)
    assert found.bounds.tolist() == [5, 5]  # 5 tokens of width 8
    params = variables["params"]
    patches = np.asarray(images).reshape(3, 2, 4, 2, 4, 3).transpose(0, 1, 3, 2, 4, 5)
    x = patches.reshape(3, 4, 48) @ params["patch_embed"]["kernel"] + params["patch_embed"]["bias"]
    token = jnp.broadcast_to(params["cls_token"], (3, 1, 8))
    x = jnp.concatenate([token, x], axis=1) + params["pos_embed"]
    values = np.linalg.svd(x, compute_uv=False)
    expected = (values**2).sum(1) / values[:, 0] ** 2
    np.testing.assert_allclose(found.ranks[0], expected, rtol=1e-4)


def test_pixels_of_a_grid_are_columns():
    """A ConvMixer's X is [D, h·w]; its running statistics are used."""
    images = jax.random.normal(jax.random.key(0), (2, 8, 8, 3))
    model, variables = drawn("convmixer", images, width=6, depth=2, filter_size=3)
    found = stable_ranks(model, variables, images)
    assert found.bounds.tolist() == [6, 6]  # 16 pixels of width 6
    assert np.all((found.ranks >= 1) & (found.ranks <= 6))
