import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax import InputError
from mimetic_jax.schemes import Block, Context, TFixup, Zero, ZeroOut
from tests.schemes.blocks import kernels, ones

KEY = jax.random.key(0)


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


def test_zeros_of_nothing_are_refused():
    with pytest.raises(InputError, match="would write nothing"):
        ZeroOut(attention=False)


def test_kernels_do_not_depend_on_other_roles():
    whole = TFixup()(KEY, block(), Context())
    part = Block.of({role: block()[role] for role in ("query", "value")})
    for role, array in TFixup()(KEY, part, Context()).items():
        np.testing.assert_array_equal(array, whole[role])
    kernels = [np.ravel(whole[role]) for role in ("query", "key")]
    assert abs(np.corrcoef(kernels)[0, 1]) < 0.2
