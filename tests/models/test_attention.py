import re
import types

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from jax._src.cudnn import fused_attention_stablehlo
from jax.ad_checkpoint import print_saved_residuals

from mimetic_jax import InputError
from mimetic_jax.models import Attention, attention
from mimetic_jax.models.low_memory import add_table, gelu, layer_norm
from tests.models.values import drawn

KEY = jax.random.key(0)
NORMAL = nn.initializers.normal(0.5)


def inputs():
    return jax.random.normal(jax.random.key(1), (2, 7, 24))


class Named(nn.Module):
    """A layer below the root, where keys depend on the path."""

    layer: type
    fields: dict

    @nn.compact
    def __call__(self, x):
        return self.layer(num_heads=3, **self.fields, name="attention")(x)


@pytest.mark.parametrize("kernel_init", [nn.initializers.lecun_normal(), NORMAL])
def test_initial_values_are_the_stock_layers_bit_for_bit(kernel_init):
    fields = {"kernel_init": kernel_init, "bias_init": NORMAL}
    expected = Named(nn.MultiHeadDotProductAttention, fields).init(KEY, inputs())
    ours = Named(Attention, fields).init(KEY, inputs())
    assert jax.tree.structure(ours) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, ours, expected)


@pytest.mark.parametrize("causal", [False, True])
def test_formula_in_float64(causal):
    layer, x = Attention(3, causal=causal), inputs()
    variables = {"params": drawn(layer, x)}
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), variables["params"])
    query, key, value = (
        np.einsum("bnd,dhk->bhnk", x, p[name]["kernel"]) + p[name]["bias"][:, None]
        for name in ("query", "key", "value")
    )
    logits = np.einsum("bhnk,bhmk->bhnm", query, key) / np.sqrt(8)
    if causal:
        logits = np.where(np.tri(7), logits, -np.inf)
    heads = np.einsum("bhnm,bhmk->bhnk", scipy.special.softmax(logits, axis=-1), value)
    expected = np.einsum("bhnk,hkd->bnd", heads, p["out"]["kernel"]) + p["out"]["bias"]
    found = jax.jit(layer.apply)(variables, x)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_without_qkv_bias():
    layer = Attention(3, qkv_bias=False)
    params = drawn(layer, inputs())
    assert [name for name, leaves in params.items() if "bias" in leaves] == ["out"]
    zero = {name: {"bias": jnp.zeros((3, 8))} | params[name] for name in params if name != "out"}
    expected = Attention(3).apply({"params": params | zero}, inputs())
    ours = layer.apply({"params": params}, inputs())
    np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_bfloat16_keeps_its_softmax_in_float32():
    x = inputs()
    variables = Attention(3, bias_init=NORMAL).init(KEY, x)
    layer = Attention(3, dtype=jnp.bfloat16)
    ours, exact = (each.apply(variables, x) for each in (layer, Attention(3)))
    assert ours.dtype == jnp.bfloat16
    np.testing.assert_allclose(ours.astype(jnp.float32), exact, atol=0.05)
    program = str(jax.make_jaxpr(layer.apply)(variables, x))
    assert set(re.findall(r":(\w+)\[[\d,]*\] = exp ", program)) == {"f32"}


def device_of(platform, version, capability):
    client = types.SimpleNamespace(platform_version=version)
    names = {"platform": platform, "client": client, "compute_capability": capability}
    return types.SimpleNamespace(**names)


@pytest.mark.parametrize(
    ("platform", "version", "capability", "dtype", "head_width", "expected"),
    [
        ("cpu", "cpu", None, jnp.bfloat16, 64, "xla"),
        ("tpu", "libtpu", None, jnp.bfloat16, 64, "xla"),
        ("gpu", "cuda 12090", "9.0", jnp.bfloat16, 64, "cudnn"),
        ("gpu", "cuda 12090", "8.0", jnp.float16, 128, "cudnn"),
        ("gpu", "cuda 12090", "10.0", jnp.bfloat16, 32, "cudnn"),
        ("gpu", "cuda 12090", "9.0", jnp.float32, 64, "xla"),
        ("gpu", "cuda 12090", "9.0", jnp.bfloat16, 60, "xla"),
        ("gpu", "cuda 12090", "9.0", jnp.bfloat16, 136, "xla"),
        ("gpu", "cuda 12090", "7.5", jnp.float16, 64, "xla"),
        ("gpu", "rocm 60300", "gfx90a", jnp.bfloat16, 64, "xla"),
    ],
)
def test_choice_of_kernel(monkeypatch, platform, version, capability, dtype, head_width, expected):
    device = device_of(platform, version, capability)
    monkeypatch.setattr(jax, "local_devices", lambda backend=None: [device])
    assert attention._implementation(jnp.dtype(dtype), head_width) == expected


def test_heads_that_do_not_divide_the_width():
    with pytest.raises(InputError, match="num_heads 5 does not divide dim 24"):
        jax.eval_shape(Attention(5).init, KEY, inputs())


def gpu(monkeypatch):
    """Lower for an H100 without one: JAX's own checks of cuDNN's limits stay in force."""
    device = device_of("gpu", "cuda 12090", "9.0")
    monkeypatch.setattr(
        jax, "local_devices", lambda backend=None: jax.devices(backend) if backend else [device]
    )
    monkeypatch.setattr(fused_attention_stablehlo, "check_cudnn_version", lambda: 91000)
    monkeypatch.setattr(fused_attention_stablehlo, "check_compute_capability", lambda which: True)


@pytest.mark.parametrize("length", [16, 17])
@pytest.mark.parametrize("causal", [False, True])
def test_cudnn_is_trained_at_any_length(monkeypatch, length, causal):
    gpu(monkeypatch)
    layer = Attention(3, causal=causal, dtype=jnp.bfloat16)
    x = jnp.ones((2, length, 24))
    variables = jax.eval_shape(layer.init, KEY, x)
    gradient = jax.jit(jax.grad(lambda variables: layer.apply(variables, x).sum()))
    text = gradient.trace(variables).lower(lowering_platforms=("cuda",)).as_text()
    assert "fmhaSoftmaxBackward" in text
    # Nor is it in the way where a GPU's process counts arithmetic on its CPU.
    with jax.default_device(jax.devices("cpu")[0]):
        assert "fmha" not in jax.jit(layer.apply).lower(variables, x).as_text()


@pytest.mark.parametrize("causal", [False, True])
def test_the_token_more_is_seen_by_nobody(monkeypatch, causal):
    """At odd lengths, by the arithmetic of XLA in the place of cuDNN's."""
    query, key, value = np.random.default_rng(0).normal(size=(3, 2, 7, 3, 8)).astype(np.float32)
    kernel = jax.nn.dot_product_attention

    def by_xla(*arrays, implementation, **options):
        assert arrays[0].shape[1] == (8 if implementation == "cudnn" else 7)
        return kernel(*arrays, implementation="xla", **options)

    monkeypatch.setattr(jax.nn, "dot_product_attention", by_xla)

    def both(implementation):
        def total(arrays):
            out = attention._attended(*arrays, causal, implementation)
            return (out**2).sum(), out

        return jax.jit(jax.grad(total, has_aux=True))((query, key, value))

    for ours, expected in zip(
        jax.tree.leaves(both("cudnn")), jax.tree.leaves(both("xla")), strict=True
    ):
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


X = np.random.default_rng(0).normal(size=(3, 5, 8)).astype(np.float32)


def lean_norm(x, scale, bias):
    return layer_norm(x, scale, bias, 1e-5, x.dtype)


def plain_norm(x, scale, bias):
    variables = {"params": {"scale": scale, "bias": bias}}
    return nn.LayerNorm(epsilon=1e-5, dtype=x.dtype).apply(variables, x)


CASES = {
    "gelu": (gelu, lambda x: nn.gelu(x, approximate=False), (3 * X,)),
    "norm": (lean_norm, plain_norm, (2 + 3 * X, X[0, 0] / 3, X[0, 1])),
    "table": (add_table, jnp.add, (X, X[:1] / 2)),
}


def gradients(function, arguments):
    """The value, and the gradients of a sum with weights that differ by entry."""

    @jax.jit
    def both(*arguments):
        value, back = jax.vjp(function, *arguments)
        return value, *back(jnp.cos(X).astype(value.dtype))

    return both(*arguments)


@pytest.mark.parametrize("case", CASES)
def test_is_the_plain_function(case):
    ours, plain, arguments = CASES[case]
    found, expected = gradients(ours, arguments), gradients(plain, arguments)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("case", CASES)
def test_half_precision_rounds_once(case):
    """As exact as the result's own dtype: what is between is float32."""
    ours, plain, arguments = CASES[case]
    half = [jnp.asarray(array, jnp.bfloat16) for array in arguments]
    exact = plain(*(array.astype(jnp.float32) for array in half))
    np.testing.assert_allclose(ours(*half).astype(jnp.float32), exact, rtol=2**-8, atol=1e-6)
    assert all(grad.dtype == jnp.bfloat16 for grad in gradients(ours, half))


def test_gradients_far_from_zero():
    """No gradient of GELU is NaN where its density is 0, nor of a constant row."""
    far = jnp.array([-1e4, -40.0, 40.0, 1e4])
    np.testing.assert_array_equal(jax.vmap(jax.grad(gelu))(far), [0, 0, 1, 1])
    one, zero = jnp.ones(4), jnp.zeros(4)
    flat = jax.grad(lambda x: layer_norm(x, one, zero, 1e-6, x.dtype)[0])(one)
    np.testing.assert_allclose(flat, [750, -250, -250, -250], rtol=1e-5)


@pytest.mark.parametrize("case", ["gelu", "norm"])
def test_keeps_its_input_alone(case, capsys):
    ours, _, (x, *rest) = CASES[case]
    print_saved_residuals(lambda x: ours(jnp.sin(x), *rest), x.astype(jnp.bfloat16))
    kept = capsys.readouterr().out.splitlines()
    assert sum("bf16[3,5,8]" in line for line in kept) == 2, kept  # its input, and cos for sin
    assert not any("f32[3,5,8]" in line for line in kept), kept
