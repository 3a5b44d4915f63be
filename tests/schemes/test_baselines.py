import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax.schemes import (
    Block,
    Context,
    Independent,
    Orthogonal,
    TFixup,
    Zero,
    ZeroOut,
)
from tests.schemes.blocks import kernels, ones

KEY = jax.random.key(0)


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
    assert scheme.by_depth == (scheme == Independent.gpt2())


@pytest.mark.parametrize("scheme", [TFixup(), UNIFORM, Orthogonal()])
def test_kernels_do_not_depend_on_other_roles(scheme):
    whole = scheme(KEY, block(), Context())
    part = Block.of({role: block()[role] for role in ("query", "value")})
    for role, array in scheme(KEY, part, Context()).items():
        np.testing.assert_array_equal(array, whole[role])
    kernels = [np.ravel(whole[role]) for role in ("query", "key")]
    assert abs(np.corrcoef(kernels)[0, 1]) < 0.2


def singular_values(kernel):
    return np.linalg.svd(kernel, compute_uv=False)


def test_orthogonal():
    new = draw(Orthogonal(gain=0.5))
    assert not new.pop("mlp_in_bias").any()
    assert len(new) == 7
    for role, kernel in new.items():
        flat = kernel.reshape((-1, D) if role == "out" else (kernel.shape[0], -1))
        np.testing.assert_allclose(singular_values(flat), 0.5, atol=1e-5)
