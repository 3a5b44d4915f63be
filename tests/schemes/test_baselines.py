import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from mimetic_jax.schemes import (
    DCT,
    Block,
    CompleteP,
    Conditioned,
    Context,
    IDInit,
    Independent,
    Orthogonal,
    Polar,
    Scheme,
    Sinusoidal,
    TFixup,
    Zero,
    ZeroOut,
)
from tests.products import query_key, value_out
from tests.schemes.blocks import kernels, ones

KEY = jax.random.key(0)


@dataclasses.dataclass(frozen=True)
class Given(Scheme):
    """One kernel of an MLP."""

    rows: tuple[tuple[float, ...], ...]

    def writes(self, roles):
        return roles & {"mlp_in"}

    def draw(self, key, block, context):
        return {"mlp_in": jnp.array(self.rows, jnp.float32)}


SIX = ("query", "key", "value", "out", "mlp_in", "mlp_out")
ENDS = ("out", "mlp_out")
UNIFORM = Independent(0.5, uniform=True, mlp=False)


D, HEADS = 24, 4


def block(dim=D, heads=HEADS, groups=HEADS, head_dim=6, hidden=48):
    mlp = {"mlp_in": (dim, hidden), "mlp_in_bias": (hidden,)}
    mlp |= {"mlp_out": (hidden, dim), "token_in": (9, 12)}
    return ones(kernels(dim, heads, groups, head_dim) | mlp)


def draw(scheme, **sizes):
    new = scheme(KEY, block(**sizes), Context())
    return {role: np.asarray(kernel, np.float64) for role, kernel in new.items()}


def kernel(scheme, role, fan_in, fan_out):
    """A kernel of one head, or of an MLP."""
    shapes = {"query": (fan_in, 1, 1), "key": (fan_in, 1, fan_out), "mlp_in": (fan_in, fan_out)}
    new = scheme(KEY, ones(shapes), Context())[role]
    return np.asarray(new, np.float64).reshape(fan_in, fan_out)


def test_zero_is_a_partial_hadamard_matrix_or_zero(golden):
    """Of layers that narrow and that widen."""
    for name, weight in golden("zero_init").items():
        found = kernel(Zero(), "key", *weight.T.shape)
        np.testing.assert_allclose(found, weight.T, atol=1e-7, err_msg=name)
    new = draw(Zero())
    np.testing.assert_array_equal(new["value"], new["key"])
    for zero in (new["query"], new["out"], draw(ZeroOut())["out"]):
        assert not zero.any()


def test_kernels_of_orthogonal_have_no_preferred_direction():
    """Haar: entries of mean 0 and variance 1/D in every column."""
    view = ones({"mlp_in": (6, 3)})
    draws = [Orthogonal()(k, view, Context())["mlp_in"] for k in jax.random.split(KEY, 300)]
    assert np.abs(np.mean(draws, axis=0)).max() < 0.12
    np.testing.assert_allclose(np.var(draws, axis=0), 1 / 6, atol=0.06)


@pytest.mark.parametrize(("fan_in", "fan_out"), [(8, 8), (12, 5), (5, 12), (1, 1)])
def test_dct_is_orthonormal_and_by_the_formula(fan_in, fan_out):
    size = max(fan_in, fan_out)
    i, k = np.arange(size)[:, None], np.arange(min(fan_in, fan_out))
    waves = np.sqrt((2 - (k == 0)) / size) * np.cos(np.pi * (2 * i + 1) * k / (2 * size))
    found = kernel(DCT(), "key", fan_in, fan_out)
    np.testing.assert_allclose(found, waves if fan_in == size else waves.T, atol=1e-6)


@pytest.mark.parametrize(
    ("fan_in", "fan_out", "rank", "constant"),
    [(24, 24, 11, []), (24, 96, 24, [24, 72]), (96, 24, 24, []), (192, 64, 64, [])],
)
@pytest.mark.parametrize("variance", ["glorot", "he"])
def test_sinusoidal(fan_in, fan_out, rank, constant, variance):
    found = kernel(Sinusoidal(variance), "mlp_in", fan_in, fan_out)
    i, frequency = np.arange(fan_in)[:, None], np.arange(1, fan_out + 1)
    waves = np.sin(frequency * (2 * np.pi * i / fan_in + 2 * np.pi / fan_out))
    amplitude = np.abs(found).max() / np.abs(waves).max()
    np.testing.assert_allclose(found, amplitude * waves, atol=1e-6)
    target = 2 / (fan_in + (fan_out if variance == "glorot" else 0))
    assert found.var(ddof=1) == pytest.approx(target, rel=1e-5)
    assert np.linalg.matrix_rank(found, tol=1e-4) == rank
    sums = np.abs(found.sum(axis=0))
    assert [f for f, total in zip(frequency, sums, strict=True) if total > 1e-4] == constant


@pytest.mark.parametrize(("rows", "columns"), [(12, 12), (9, 4), (3, 8)])
def test_polar_is_the_factor_of_the_svd(rows, columns):
    """Singular values between 1e-3 and 1: the factor of float64's SVD, to float32 precision."""
    rng, rank = np.random.default_rng(0), min(rows, columns)
    left, _ = np.linalg.qr(rng.normal(size=(rows, rank)))
    right, _ = np.linalg.qr(rng.normal(size=(columns, rank)))
    matrix = left * np.geomspace(1, 1e-3, rank) @ right.T
    expected = scipy.linalg.polar(matrix)[0] * (np.linalg.norm(matrix) / rank**0.5)

    def polar(given):
        scheme = Polar(Given(tuple(map(tuple, given.tolist()))))
        return scheme(KEY, ones({"mlp_in": given.shape}), Context())["mlp_in"]

    np.testing.assert_allclose(polar(matrix), expected, atol=5e-4 * np.abs(expected).max())
    half = np.diag([5.0, 5.0, 0.0])
    np.testing.assert_allclose(polar(half), half, atol=1e-5)
    assert not polar(np.zeros((2, 3))).any()


@pytest.mark.parametrize(
    ("decoder", "scale"), [(False, 0.67 * 12**-0.25), (True, 108**-0.25)], ids=["en", "de"]
)
def test_tfixup_bounds(decoder, scale):
    """Released code: Xavier (query, key, value of gain 1/√2), then value ×√2 s, the others ×s."""
    sizes = {"dim": 96, "heads": 4, "groups": 2, "head_dim": 24, "hidden": 192}
    new = TFixup(decoder)(KEY, block(**sizes), Context(3, 12))
    fans = {"query": 192, "key": 144, "value": 144, "out": 192, "mlp_in": 288, "mlp_out": 288}
    for role, fan in fans.items():
        gain = 0.5**0.5 if role in ("query", "key") else scale
        bound = gain * (6 / fan) ** 0.5
        assert float(jnp.abs(new[role]).max()) == pytest.approx(bound, rel=0.01)
        assert float(new[role].std()) == pytest.approx(bound / 3**0.5, rel=0.03)


# Standard deviations at D = 96, H·K = 144, F = 384 and L = 12, as their authors write them.
RULES = {
    Independent(): {**dict.fromkeys(SIX, 96**-0.5), "out": 144**-0.5, "mlp_out": 384**-0.5},
    Independent(0.02, 0.0): dict.fromkeys(SIX, 0.02),
    Independent.gpt2(): dict.fromkeys(SIX, 0.02) | dict.fromkeys(ENDS, 0.02 / 24**0.5),
    Independent(power=0.8): dict.fromkeys(SIX, 96**-0.8) | {"out": 144**-0.8, "mlp_out": 384**-0.8},
    Independent(spectral=True): dict.fromkeys(SIX, 96**-0.5)
    | {"out": 96**0.5 / 144, "mlp_out": 96**0.5 / 384},
    CompleteP(): dict.fromkeys(SIX, 96**-0.5) | {"out": 144**-0.5 / 6, "mlp_out": 384**-0.5 / 6},
    UNIFORM: dict.fromkeys(SIX[:3], 0.5 * 96**-0.5) | {"out": 0.5 * 144**-0.5},
}


@pytest.mark.parametrize("scheme", RULES, ids=str)
def test_independent_entries_have_the_deviation_of_their_rule(scheme):
    view = block(dim=96, heads=4, groups=4, head_dim=36, hidden=384)
    new = scheme(KEY, view, Context(3, 12))
    for role, std in RULES[scheme].items():
        assert float(new[role].std()) == pytest.approx(std, rel=0.03)
        assert abs(float(new[role].mean())) < 0.05 * std
        kurtosis = float((new[role] ** 4).mean()) / std**4
        uniform = getattr(scheme, "uniform", False)
        assert kurtosis == pytest.approx(1.8 if uniform else 3.0, rel=0.1)
    assert scheme.by_depth == (scheme in (Independent.gpt2(), CompleteP()))


def test_idinit_is_a_padded_identity():
    new = draw(IDInit())
    np.testing.assert_array_equal(new["query"].reshape(24, 24), np.eye(24))
    np.testing.assert_array_equal(new["mlp_in"], np.tile(np.eye(24), 2))
    np.testing.assert_array_equal(new["mlp_out"], np.float32(1e-6) * np.tile(np.eye(24), 2).T)


@pytest.mark.parametrize("scheme", [TFixup(), UNIFORM, Conditioned(), Orthogonal()])
def test_kernels_do_not_depend_on_other_roles(scheme):
    whole = scheme(KEY, block(), Context())
    part = Block.of({role: block()[role] for role in ("query", "value")})
    for role, array in scheme(KEY, part, Context()).items():
        np.testing.assert_array_equal(array, whole[role])
    kernels = [np.ravel(whole[role]) for role in ("query", "key")]
    assert abs(np.corrcoef(kernels)[0, 1]) < 0.2


def singular_values(kernel):
    return np.linalg.svd(kernel, compute_uv=False)


@pytest.mark.parametrize("head_dim", [6, 30])
def test_conditioned_per_head(head_dim):
    """The algorithm: every head has condition number 1, and all values read the same inputs."""
    new = draw(Conditioned(), head_dim=head_dim)
    for role in ("query", "key"):
        heads = new[role].transpose(1, 0, 2)
        np.testing.assert_allclose(singular_values(heads), 1, atol=1e-5)
        assert np.abs(heads[0] - heads[1]).max() > 0.1
        together = singular_values(new[role].reshape(D, -1))
        assert together.max() > 1.2  # independent heads aren't orthogonal to each other
    for head in new["value"].transpose(1, 0, 2):
        np.testing.assert_array_equal(head, np.eye(D, head_dim))


@pytest.mark.parametrize("head_dim", [3, 6, 9])
def test_conditioned_as_a_whole(head_dim):
    new = draw(Conditioned(per_head=False), head_dim=head_dim)
    for role in ("query", "key"):
        np.testing.assert_allclose(singular_values(new[role].reshape(D, -1)), 1, atol=1e-5)
        if HEADS * head_dim <= D:
            apart = singular_values(new[role].transpose(1, 0, 2))
            np.testing.assert_allclose(apart, 1, atol=1e-5)
    np.testing.assert_array_equal(new["value"].reshape(D, -1), np.eye(D, HEADS * head_dim))


def test_orthogonal():
    new = draw(Orthogonal(gain=0.5))
    assert not new.pop("mlp_in_bias").any()
    assert len(new) == 7
    for role, kernel in new.items():
        flat = kernel.reshape((-1, D) if role == "out" else (kernel.shape[0], -1))
        np.testing.assert_allclose(singular_values(flat), 0.5, atol=1e-5)


def test_products_of_sinusoidal_lean_to_plus_the_identity():
    new = draw(Sinusoidal())
    reversal = np.eye(D)[(D - 2 - np.arange(D)) % D]
    for by_head in (query_key(new["query"], new["key"]), value_out(new["value"], new["out"])):
        product = by_head.sum(axis=0)
        scale = product[0, 0]
        assert scale == pytest.approx((D**2 - 1) / (D * (D - 2)), rel=1e-4)
        np.testing.assert_allclose(product, scale * (np.eye(D) - reversal), atol=1e-5)
