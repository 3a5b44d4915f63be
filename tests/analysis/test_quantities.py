"""Ranks, residuals, spans and products that figures show; what analyses refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal
from mimetic_jax.weights.conv import conv_filters

from mimetic_jax import InputError, weights
from mimetic_jax.analysis.attention import attention_maps
from mimetic_jax.analysis.offsets import by_offset
from mimetic_jax.analysis.rank import stable_rank, stable_ranks
from mimetic_jax.analysis.reachable import equal_factors, reachable
from mimetic_jax.analysis.residual import KINDS, channel_mixing_residuals, mixing_residual
from mimetic_jax.analysis.span import impulse_subsets
from mimetic_jax.models import Model
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


@pytest.mark.parametrize(
    ("width", "size", "expected"),
    [(256, 3, 20.8), (256, 5, 4.5), (256, 8, 0.3), (512, 3, 45.9), (512, 5, 12.2), (512, 8, 2.3)],
)
def test_the_papers_numbers_for_impulses(width, size, expected):
    counts = impulse_subsets(0, width, size, draws=2000)
    assert counts.mean() == pytest.approx(expected, abs=0.06 + 3 * counts.std() / 2000**0.5)


def diagonal_and_noise(product):
    off = ~np.eye(len(product), dtype=bool)
    return product.diagonal().mean(), product[off].std() * len(product) ** 0.5


@pytest.mark.parametrize("rank", [16, 32])
def test_low_rank_is_that_of_the_initialization(rank):
    """The same statistics as of kernels that `weights.query_key` draws, over independent noise."""
    query, key = weights.query_key(jax.random.key(0), 96, 8, head_dim=rank)
    drawn = [
        diagonal_and_noise(np.asarray(query[:, head] @ key[:, head].T, np.float64))
        for head in range(8)
    ]
    got = reachable(3, 96, [rank], [0.7], [0.7])[0, 0, 0]
    np.testing.assert_allclose(got, np.mean(drawn, axis=0), rtol=0.06)


def test_equal_factors_are_on_a_line():
    """Diagonal s², noise s² √(D / K)."""
    got = equal_factors(0, 128, [32, 128], [0.5, 1.0])
    np.testing.assert_allclose(got[:, 0], got[:, 1] / 2)
    np.testing.assert_allclose(got[:, 1, 0], 1, atol=0.05)
    np.testing.assert_allclose(got[:, 1, 1], [2, 1], atol=0.05)


IMAGES = jnp.zeros((1, 8, 8, 3))
MAPS = np.full((2, 13, 13), 1 / 13)
VIT = {"width": 8, "depth": 1, "heads": 2, "patch": 4}
MIXER = {"width": 8, "depth": 1, "patch": 4}


def of(analysis, name, **fields):
    return analysis(*drawn(name, IMAGES, **fields), IMAGES)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: of(channel_mixing_residuals, "vit", **VIT),
            "model vit has no blocks of depthwise and pointwise kernels",
        ),
        (lambda: of(attention_maps, "mixer", **MIXER), "^model mixer has no attention layer"),
        (lambda: by_offset(MAPS, (4, 4)), "^maps of 13 tokens have no 4x4 grid$"),
    ],
)
def test_refused_in_one_line(call, words):
    with pytest.raises(InputError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_model_without_blocks_has_no_ranks():
    tokens = jnp.ones((1, 4))
    dense = Model.of("flax.linen:Dense", {"features": 3})
    variables, _ = dense.init(jax.random.key(0), tokens)
    with pytest.raises(InputError, match=r"^model flax\.linen:Dense has no blocks"):
        stable_ranks(dense, variables, tokens)
