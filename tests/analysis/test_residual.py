from __future__ import annotations

import jax
import numpy as np
import pytest
import scipy.signal

from mimetic_jax.analysis.residual import KINDS, channel_mixing_residuals, mixing_residual
from mimetic_jax.weights.conv import conv_filters
from tests.analysis.networks import drawn

DRAWS = np.random.default_rng(0)


@pytest.mark.parametrize("rank", [5, 3])
def test_the_residual_is_that_of_least_squares(rank):
    spatial = DRAWS.normal(size=(40, rank)) @ DRAWS.normal(size=(rank, 5))
    target = DRAWS.normal(size=(40, 4))
    solved, *_ = np.linalg.lstsq(spatial, target, rcond=1e-10)
    expected = np.linalg.norm(spatial @ solved - target) / np.linalg.norm(target)
    assert mixing_residual(spatial, target) == pytest.approx(expected, rel=1e-9)
    assert mixing_residual(spatial, 0 * target) == 0


def convolved(x, filters):
    """Each channel with its filter, in double precision, by SciPy."""
    return np.stack(
        [
            np.stack(
                [
                    scipy.signal.correlate(image[..., c], filters[..., c], mode="same")
                    for c in range(x.shape[-1])
                ],
                axis=-1,
            )
            for image in np.asarray(x, np.float64)
        ]
    )


def test_residuals_of_a_convmixer():
    """Of its first block, whose input is the normalized patch embedding."""
    images = jax.random.normal(jax.random.key(0), (2, 16, 16, 3))
    fields = {"width": 12, "depth": 2, "patch": 2, "filter_size": 3}
    model, variables = drawn("convmixer", images, plain=True, **fields)
    found = channel_mixing_residuals(model, variables, images, seed=5)
    assert [(kind, len(values)) for kind, values in found.items()] == [(k, 2) for k in KINDS]

    params = variables["params"]
    patches = np.asarray(images).reshape(2, 8, 2, 8, 2, 3).transpose(0, 1, 3, 2, 4, 5)
    x = patches.reshape(2, 8, 8, 12) @ params["patch_embed"]["kernel"]
    x = jax.nn.gelu(x + params["patch_embed"]["bias"], approximate=False) / np.sqrt(1 + 1e-5)
    block = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params["block_0"])
    mixed = convolved(x, block["depthwise"]["kernel"][:, :, 0]).reshape(-1, 12)
    target = mixed @ block["pointwise"]["kernel"]
    key = jax.random.split(jax.random.key(5), 2)[0]
    for kind in KINDS:
        spatial = convolved(x, conv_filters(key, 3, 12, kind)).reshape(-1, 12)
        solved, *_ = np.linalg.lstsq(spatial, target)
        expected = np.linalg.norm(spatial @ solved - target) / np.linalg.norm(target)
        assert found[kind][0] == pytest.approx(expected, rel=1e-3)
        assert 0.1 < expected < 1


def test_proposition_1():
    """An input of rank 2 leaves no residual where M is 2, and one where M is 1 or 0."""
    size, width = 3, 24
    x = DRAWS.normal(size=(4, 9, 9, 2)) @ DRAWS.normal(size=(2, width))
    own = DRAWS.normal(size=(size, size, width))
    target = convolved(x, own).reshape(-1, width) @ DRAWS.normal(size=(width, 3))

    def left(filters):
        return mixing_residual(convolved(x, filters).reshape(-1, width), target)

    assert left(DRAWS.normal(size=own.shape)) < 1e-6  # M is 24 // 9 = 2
    cells = np.arange(width) % 9
    impulses = np.eye(9)[:, cells].reshape(own.shape)
    assert left(impulses) < 1e-6
    cells[cells == 4] = 3
    cells[4] = 4  # one impulse at the center: M is 1
    assert left(np.eye(9)[:, cells].reshape(own.shape)) > 0.05
    assert left(np.ones_like(own)) > 0.5
