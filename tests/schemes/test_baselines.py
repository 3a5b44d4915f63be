import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax.schemes import (
    DCT,
    Block,
    CompleteP,
    Conditioned,
    Context,
    IDInit,
    Independent,
    Orthogonal,
    Sinusoidal,
    TFixup,
    UniformAttention,
    Zero,
    ZeroOut,
    ZeroOutputs,
)
from tests.schemes.blocks import biases, kernels, ones

KEY = jax.random.key(0)
EVERYTHING = {"query", "key", "value", "out"}
SIX = ("query", "key", "value", "out", "mlp_in", "mlp_out")
ENDS = ("out", "mlp_out")


def block(dim=24, heads=4, groups=4, head_dim=6, hidden=48):
    sizes = dim, heads, groups, head_dim
    mlp = {
        "mlp_in": (dim, hidden),
        "mlp_in_bias": (hidden,),
        "mlp_out": (hidden, dim),
        "mlp_out_bias": (dim,),
    }
    return ones(kernels(*sizes) | biases(*sizes) | mlp | {"position": (5, dim)})


@pytest.mark.parametrize(
    ("scheme", "kernels"),
    [
        (Zero(), EVERYTHING),
        (TFixup(), EVERYTHING | {"mlp_in", "mlp_out"}),
        (ZeroOut(), {"out"}),
        (UniformAttention(), EVERYTHING),
        (Conditioned(), {"query", "key", "value"}),
        (DCT(query=True, value=True), {"query", "key", "value"}),
        (Orthogonal(), EVERYTHING | {"mlp_in", "mlp_out"}),
        (Sinusoidal(), EVERYTHING | {"mlp_in", "mlp_out"}),
        (IDInit(), EVERYTHING | {"mlp_in", "mlp_out"}),
        (Independent(), EVERYTHING | {"mlp_in", "mlp_out"}),
        (ZeroOutputs(), {"out", "mlp_out"}),
    ],
)
def test_roles(scheme, kernels):
    written = scheme.writes(frozenset(block()))
    assert written == kernels | {f"{kernel}_bias" for kernel in kernels}
    assert not scheme.writes(frozenset({"value", "value_bias", "position"}))
    # No biases are added; half an attention layer still counts as one.
    assert scheme.writes(frozenset({"query", "out"})) == kernels & {"query", "out"}


def test_zero():
    new = Zero()(KEY, block(), Context())
    assert not new["query"].any()
    assert not new["out"].any()
    for role in ("key", "value"):
        np.testing.assert_array_equal(new[role].reshape(24, 24), np.eye(24))
    # Heads wider than the model: Hadamard's rows, as for any layer that widens.
    wide = np.asarray(Zero()(KEY, block(head_dim=9), Context())["key"]).reshape(24, 36)
    assert set(np.abs(np.unique(wide))) == {np.float32(1 / 8)}


def test_zero_out_makes_a_layer_the_identity():
    new = ZeroOut()(KEY, block(), Context())
    assert not any(array.any() for array in new.values())


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
    Independent(): dict(zip(SIX, (96**-0.5,) * 3 + (144**-0.5, 96**-0.5, 384**-0.5), strict=True)),
    Independent(0.02, 0.0): dict.fromkeys(SIX, 0.02),
    Independent.gpt2(): dict.fromkeys(SIX, 0.02) | dict.fromkeys(ENDS, 0.02 / 24**0.5),
    Independent(power=0.8): dict(
        zip(SIX, (96**-0.8,) * 3 + (144**-0.8, 96**-0.8, 384**-0.8), strict=True)
    ),
    Independent(spectral=True): dict(
        zip(SIX, (96**-0.5,) * 3 + (96**0.5 / 144, 96**-0.5, 96**0.5 / 384), strict=True)
    ),
    CompleteP(): dict(
        zip(SIX, (96**-0.5,) * 3 + (144**-0.5 / 6, 96**-0.5, 384**-0.5 / 6), strict=True)
    ),
    Independent(0.5, uniform=True): {"query": 0.5 * 96**-0.5, "mlp_in": 0.5 * 96**-0.5},
    UniformAttention(): dict.fromkeys(SIX[:4], 0.5 * 96**-0.5),
}


@pytest.mark.parametrize("scheme", RULES, ids=str)
def test_independent_entries_have_the_deviation_of_their_rule(scheme):
    view = block(dim=96, heads=4, groups=4, head_dim=36, hidden=384)
    new = scheme(KEY, view, Context(3, 12))
    for role, std in RULES[scheme].items():
        assert float(new[role].std()) == pytest.approx(std, rel=0.03)
        assert abs(float(new[role].mean())) < 0.05 * std
        kurtosis = float((new[role] ** 4).mean()) / std**4
        uniform = getattr(scheme, "uniform", isinstance(scheme, UniformAttention))
        assert kurtosis == pytest.approx(1.8 if uniform else 3.0, rel=0.1)
    assert scheme.by_depth == (scheme in (Independent.gpt2(), CompleteP()))


def test_idinit_is_a_padded_identity():
    new = IDInit()(KEY, block(), Context())
    np.testing.assert_array_equal(new["query"].reshape(24, 24), np.eye(24))
    np.testing.assert_array_equal(new["mlp_in"], np.tile(np.eye(24), 2))
    np.testing.assert_array_equal(new["mlp_out"], np.float32(1e-6) * np.tile(np.eye(24), 2).T)


@pytest.mark.parametrize("scheme", [TFixup(), UniformAttention(), Conditioned()])
def test_kernels_do_not_depend_on_other_roles(scheme):
    whole = scheme(KEY, block(), Context())
    part = Block.of({role: block()[role] for role in ("query", "value")})
    for role, array in scheme(KEY, part, Context()).items():
        np.testing.assert_array_equal(array, whole[role])
    kernels = [np.ravel(whole[role]) for role in ("query", "key")]
    assert abs(np.corrcoef(kernels)[0, 1]) < 0.2


D, HEADS, HIDDEN = 24, 4, 48


def draw(scheme, head_dim=6):
    others = {"mlp_in": (D, HIDDEN), "mlp_out": (HIDDEN, D), "token_in": (9, 12)}
    new = scheme(KEY, ones(kernels(D, HEADS, HEADS, head_dim) | others), Context())
    return {role: np.asarray(kernel, np.float64) for role, kernel in new.items()}


def singular_values(kernel):
    return np.linalg.svd(kernel, compute_uv=False)


@pytest.mark.parametrize("head_dim", [6, 30])
def test_conditioned_per_head(head_dim):
    """The algorithm: every head has condition number 1, and all values read the same inputs."""
    new = draw(Conditioned(), head_dim)
    for role in ("query", "key"):
        heads = new[role].transpose(1, 0, 2)
        np.testing.assert_allclose(singular_values(heads), 1, atol=1e-5)
        assert np.abs(heads[0] - heads[1]).max() > 0.1
        together = singular_values(new[role].reshape(D, -1))
        assert together.max() > 1.2  # independent heads aren't orthogonal to each other
    for head in new["value"].transpose(1, 0, 2):
        np.testing.assert_array_equal(head, np.eye(D, head_dim))
    assert np.abs(new["query"] - new["key"]).max() > 0.1


@pytest.mark.parametrize("head_dim", [3, 6, 9])
def test_conditioned_as_a_whole(head_dim):
    new = draw(Conditioned(per_head=False), head_dim)
    for role in ("query", "key"):
        np.testing.assert_allclose(singular_values(new[role].reshape(D, -1)), 1, atol=1e-5)
        if HEADS * head_dim <= D:
            apart = singular_values(new[role].transpose(1, 0, 2))
            np.testing.assert_allclose(apart, 1, atol=1e-5)
    np.testing.assert_array_equal(new["value"].reshape(D, -1), np.eye(D, HEADS * head_dim))


def test_orthogonal():
    new = draw(Orthogonal(gain=0.5))
    flat = {
        role: kernel.reshape((-1, D) if role == "out" else (kernel.shape[0], -1))
        for role, kernel in new.items()
    }
    assert flat.keys() == {"query", "key", "value", "out", "mlp_in", "mlp_out", "token_in"}
    for kernel in flat.values():
        np.testing.assert_allclose(singular_values(kernel), 0.5, atol=1e-5)
    assert np.abs(flat["query"] - flat["key"]).max() > 0.1


def test_products_of_sinusoidal_lean_to_plus_the_identity():
    new = draw(Sinusoidal())
    reversal = np.eye(D)[(D - 2 - np.arange(D)) % D]
    for product in (
        np.einsum("dhk,ehk->de", new["query"], new["key"]),
        np.einsum("dhk,hke->de", new["value"], new["out"]),
    ):
        scale = product[0, 0]
        assert scale == pytest.approx((D**2 - 1) / (D * (D - 2)), rel=1e-4)
        np.testing.assert_allclose(product, scale * (np.eye(D) - reversal), atol=1e-5)
