import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal

from mimetic_jax import InputError
from mimetic_jax.initializers import mean_shift
from mimetic_jax.schemes import Block, Context, ConvFilters, ConvMimetic
from mimetic_jax.schemes.mlp import ConstantBias, MeanShift

KEY = jax.random.key(0)


def filters(scheme, size, channels, context=None):
    block = Block.of({"depthwise": jnp.ones((size, size, channels))})
    return scheme(KEY, block, context or Context())["depthwise"]


def formula(size, sigma):
    """The closed form before clipping, written out pixel by pixel."""
    center = size // 2
    i, j = np.indices((size, size)) - center
    bump = np.exp(-(i**2 + j**2) / (2 * sigma))
    half = np.empty((size,) * 4)
    for i, j in np.ndindex(size, size):
        moved = np.roll(bump, (i - center, j - center), axis=(0, 1))
        half[i, j] = bump[i, j] * (moved - bump / 2)
    half = half.reshape(size**2, size**2)
    return (half + half.T) / 2


@pytest.mark.parametrize(
    ("sigma", "smallest", "largest"), [(0.3, -0.0014, 0.5), (1.0, -0.022, 1.0), (2.0, -0.077, 2.0)]
)
def test_filters_have_the_covariance_of_the_closed_form(sigma, smallest, largest):
    """Eigenvalues measured elsewhere (REFERENCES 4.3); clipping removes the negative ones."""
    truth = formula(7, sigma)
    values, vectors = np.linalg.eigh(truth)
    assert values[0] == pytest.approx(smallest, rel=0.05)
    assert values[-1] == pytest.approx(largest, rel=0.15)
    assert truth[24, 24] == pytest.approx(0.5)
    noise = np.asarray(jax.random.normal(KEY, (49, 64)), np.float64)
    expected = vectors @ (np.sqrt(values.clip(min=0))[:, None] * (vectors.T @ noise))
    found = filters(ConvMimetic(sigma, 0.0, 0.0), 7, 64).reshape(49, 64)
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_filters_under_jit_need_no_lapack_there():
    draw = jax.jit(
        lambda key: ConvMimetic(1.0)(key, Block.of({"depthwise": jnp.ones((5, 5, 4))}), Context())
    )
    assert "custom_call" not in draw.lower(KEY).as_text()


@pytest.mark.parametrize(("layer", "sigma"), [(0, 0.5), (1, 1.125), (2, 2.5)])
def test_width_grows_with_depth(layer, sigma):
    """.5 + .5 t + 3 t²/2 at t = 0, ½, 1; one layer is the first."""
    found = filters(ConvMimetic(), 5, 4, Context(layer, 3))
    np.testing.assert_array_equal(found, filters(ConvMimetic(sigma, 0.0, 0.0), 5, 4))
    alone = filters(ConvMimetic(), 3, 4, Context(0, 1))
    np.testing.assert_array_equal(alone, filters(ConvMimetic(), 3, 4, Context(0, 9)))
    with pytest.raises(InputError, match=r"sigma must be .*; got -9\.5"):
        filters(ConvMimetic(velocity=-10.0, acceleration=0.0), 3, 4, Context(2, 3))


def energies(filters):
    return np.square(np.asarray(filters, np.float64)).sum(axis=(0, 1))


@pytest.mark.parametrize("size", [1, 8])
def test_impulse_and_box_have_the_energy_of_random_filters(size):
    kinds = ("impulse", "box", "random")
    impulse, box, random = (filters(ConvFilters(kind), size, 40) for kind in kinds)
    np.testing.assert_allclose(energies(impulse), 1 / 3, rtol=1e-5)
    np.testing.assert_allclose(energies(box), 1 / 3, rtol=1e-5)
    assert (np.count_nonzero(impulse, axis=(0, 1)) == 1).all()
    assert np.ptp(np.asarray(box)) == 0
    assert np.abs(random).max() <= 1 / size


def test_random_filters_have_that_energy_on_average_and_impulses_are_everywhere():
    assert energies(filters(ConvFilters(), 5, 5000)).mean() == pytest.approx(1 / 3, rel=0.02)
    impulses = np.count_nonzero(filters(ConvFilters("impulse"), 5, 5000), axis=2)
    assert impulses.min() > 100


def test_fixed_filters_restore_what_a_block_makes_unless_they_are_one():
    """Proposition 1 of the structured paper: for an input of rank r, channel mixing alone restores
    any filters where r disjoint subsets of the fixed ones span all filters. Boxes don't span.
    """
    draws, side, width, rank = np.random.default_rng(0), 12, 64, 2
    x = draws.normal(size=(side, side, rank)) @ draws.normal(size=(rank, width))

    def mixed(kernels):
        per_channel = zip(*(np.moveaxis(a, -1, 0) for a in (x, np.asarray(kernels))), strict=True)
        return np.stack([scipy.signal.correlate2d(*one, "same").ravel() for one in per_channel], 1)

    target = mixed(draws.normal(size=(3, 3, width))) @ draws.normal(size=(width, 8))
    rests = {}
    for kind in ("random", "impulse", "box"):
        spatial = mixed(filters(ConvFilters(kind), 3, width))
        solved, *_ = np.linalg.lstsq(spatial, target, rcond=1e-10)
        rests[kind] = np.linalg.norm(spatial @ solved - target) / np.linalg.norm(target)
    assert max(rests["random"], rests["impulse"]) < 1e-8
    assert rests["box"] > 0.5


def test_formulas_of_mlps():
    draws = np.random.default_rng(0)
    first = np.float32(draws.normal(size=(8, 16)))
    block = Block.of({"mlp_in": first, "mlp_in_bias": jnp.ones(16)})

    def drawn(scheme, role="mlp_in"):
        return np.asarray(scheme(KEY, block, Context())[role])

    np.testing.assert_allclose(drawn(MeanShift(-0.5)), first - 0.5 * first.std(), atol=1e-6)
    rows = drawn(MeanShift(0.5, per_input=True)) - first
    np.testing.assert_allclose(rows, rows[:, :1].repeat(16, axis=1), atol=1e-6)
    np.testing.assert_allclose(drawn(ConstantBias(0.02), "mlp_in_bias"), 0.02)


@pytest.mark.parametrize("per_input", [True, False])
@pytest.mark.parametrize("kernel", [jnp.zeros((8, 32)), jnp.ones((8, 32))])
def test_a_constant_kernel_has_no_standard_deviation_to_shift_by(per_input, kernel):
    scheme, block = MeanShift(per_input=per_input), Block.of({"mlp_in": kernel})
    with pytest.raises(
        InputError, match=r"mlp_in is constant \(all zeros\?\), so MeanShift has no"
    ):
        scheme(KEY, block, Context())
    base = jax.nn.initializers.constant(kernel[0, 0])
    with pytest.raises(InputError, match="so MeanShift has no standard deviation"):
        mean_shift(base=base, per_input=per_input)(KEY, (8, 32))
    jax.jit(lambda kernel: scheme(KEY, Block.of({"mlp_in": kernel}), Context()))(kernel)


def test_a_negative_standard_deviation_is_refused_where_it_is_given():
    with pytest.raises(
        InputError, match=r"b \(with per_input=True, .* in \[0, 1000000\]; got -0.5$"
    ):
        MeanShift(-0.5, per_input=True)
    with pytest.raises(InputError, match=r"b \(with per_input=True"):
        mean_shift(-0.5, per_input=True)
    assert MeanShift(-0.5).b == -0.5
