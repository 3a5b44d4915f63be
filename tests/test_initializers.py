import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import mimetic_jax
from mimetic_jax import InputError, block_key, initializers
from mimetic_jax.nnx import initialize
from mimetic_jax.schemes import Layers, Mimetic, NormMatched, Permuted, Scheme, SinCos
from tests.models.values import initial
from tests.products import of_layer as products


@dataclasses.dataclass(frozen=True)
class Copied(Scheme):
    """Needs what it replaces."""

    def writes(self, roles):
        return roles & {"out"}

    def draw(self, key, block, context):
        return {"out": block["out"]}


KEY = jax.random.key(5)
X = jnp.ones((1, 4, 64))


def test_param_pytree_knows_depth_and_groups():
    scheme = Mimetic(beta_vo=(-0.4, 0.4))
    init = initializers.attention(scheme)
    drawn = init(KEY, 64, 4, num_kv_heads=4, layer=1, num_layers=2, dtype=jnp.bfloat16)
    assert drawn["query"]["kernel"].dtype == jnp.bfloat16
    assert products(drawn)[1].diagonal().mean() == pytest.approx(0.4, abs=0.05)
    assert init(KEY, 64, 4, num_kv_heads=2, num_layers=2)["key"]["kernel"].shape == (64, 2, 16)


@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize(
    "scheme", [Mimetic(), Mimetic(zero_bias=False), NormMatched(Mimetic()), Permuted(Mimetic())]
)
def test_the_stock_layer_loads_the_param_pytree(scheme, use_bias):
    layer = nn.MultiHeadDotProductAttention(num_heads=2, use_bias=use_bias)
    stock = initial(layer, X)
    params = initializers.attention(scheme, use_bias=use_bias)(block_key(KEY, ""), 64, 2)
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, stock)
    expected = layer.apply({"params": mimetic_jax.rewrite(KEY, stock, scheme)}, X)
    np.testing.assert_array_equal(layer.apply({"params": params}, X), expected)


@pytest.mark.parametrize("library", ["linen", "nnx"])
def test_identity_gauge_on_unmodified_attention(library):
    """As documented: each head's own coordinates, and the joint product's −β."""
    kernels = initializers.mimetic_kernels()
    if library == "linen":
        layer = nn.MultiHeadDotProductAttention(num_heads=3, **kernels)
        params = layer.init(KEY, jnp.ones((1, 4, 192)))["params"]
    else:
        module = nnx.MultiHeadAttention(3, 192, decode=False, rngs=nnx.Rngs(1), **kernels)
        params = nnx.to_pure_dict(nnx.state(module, nnx.Param))
    query_key, value_out = products(params)
    assert value_out.diagonal().mean() == pytest.approx(-0.4, abs=0.02)
    off = ~np.eye(192, dtype=bool)
    assert value_out[off].std() == pytest.approx(0.4 / 192**0.5, rel=0.1)
    assert query_key.diagonal(axis1=1, axis2=2).mean() == pytest.approx(0.7 / 3, abs=0.02)
    for head in range(3):
        own = np.zeros(192, bool)
        own[64 * head : 64 * (head + 1)] = True
        assert query_key[head].diagonal()[own].mean() == pytest.approx(0.7, abs=0.05)
        assert query_key[head].diagonal()[~own].mean() == pytest.approx(0.0, abs=0.05)


@pytest.mark.parametrize("build", ["linen", "nnx"])
def test_mean_shift_of_a_dense_layer(build):
    init = initializers.mean_shift(0.5)
    if build == "linen":
        kernel = nn.Dense(256, kernel_init=init).init(KEY, X)["params"]["kernel"]
    else:
        kernel = nnx.Linear(64, 256, kernel_init=init, rngs=nnx.Rngs(0)).kernel[...]
    assert kernel.mean() == pytest.approx(0.5 * float(kernel.std()), rel=0.05)
    # Without the shift it is the draw of the base initializer.
    plain = jax.nn.initializers.lecun_normal()(KEY, (64, 256))
    shift = init(KEY, (64, 256)) - plain
    np.testing.assert_allclose(shift, 0.5 * plain.std(), rtol=1e-4)


def test_mean_shift_per_input_of_another_base():
    base = jax.nn.initializers.normal(0.02)
    drawn = initializers.mean_shift(2.0, base=base, per_input=True)(KEY, (64, 256))
    shift = drawn - base(KEY, (64, 256))
    np.testing.assert_allclose(shift, np.repeat(shift[:, :1], 256, axis=1), atol=1e-6)
    assert shift[:, 0].std() == pytest.approx(0.04, rel=0.3)


def test_initializers_take_dtype_and_sharding():
    for init in (GAUGE(), initializers.mean_shift()):
        with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
            jax.eval_shape(lambda key, init=init: init(key, (8, 24), jnp.bfloat16), KEY)
        kernel = init(KEY, (8, 24), jnp.bfloat16)
        assert kernel.shape == (8, 24)
        assert kernel.dtype == jnp.bfloat16
        drawn = jax.jit(jax.vmap(lambda key, init=init: init(key, (8, 24))))
        seeds = drawn(jax.random.split(KEY, 3))
        assert seeds.shape == (3, 8, 24)
        assert not np.allclose(seeds[0], seeds[1])
        mesh = jax.make_mesh((1,), ("x",), axis_types=(AxisType.Explicit,))
        wanted = PartitionSpec("x", None)
        with jax.set_mesh(mesh):
            placed = init(KEY, (8, 24), jnp.bfloat16, out_sharding=wanted)
        assert placed.sharding == NamedSharding(mesh, wanted)
        np.testing.assert_array_equal(placed, kernel)
    sharding = NamedSharding(jax.make_mesh((1,), ("x",), axis_types=(AxisType.Auto,)), wanted)
    placed = init(KEY, (8, 24), jnp.bfloat16, out_sharding=sharding)  # a whole one, any mesh
    assert placed.sharding == sharding
    np.testing.assert_array_equal(placed, kernel)


@pytest.mark.parametrize(("scheme", "lean"), [(Mimetic(), -0.4), (Permuted(Mimetic()), 0.0)])
def test_nnx_module_in_place(scheme, lean):
    class Model(nnx.Module):
        def __init__(self, rngs):
            self.layers = nnx.List(
                [nnx.MultiHeadAttention(2, 64, decode=False, rngs=rngs) for _ in range(2)]
            )

    model = Model(nnx.Rngs(0))
    pure = nnx.to_pure_dict(nnx.state(model, nnx.Param))
    initialize(model, KEY, scheme)
    expected = mimetic_jax.rewrite(KEY, pure, scheme)
    result = nnx.to_pure_dict(nnx.state(model, nnx.Param))
    jax.tree.map(np.testing.assert_array_equal, result, expected)
    assert products(result["layers"][1])[1].diagonal().mean() == pytest.approx(lean, abs=0.05)


GAUGE = initializers.identity_gauge
OUT = functools.partial(GAUGE, out=True)
ATTENTION, LAST = initializers.attention, Layers(Mimetic(), 0.5, 1)


@pytest.mark.parametrize(
    ("init", "flat", "shape", "in_axis", "out_axis"),
    [
        (GAUGE, (24, 24), (24, 4, 6), 0, (1, 2)),
        (OUT, (24, 12), (2, 12, 12), (0, 1), -1),
        (initializers.mean_shift, (8, 24), (8, 24), 0, 1),
    ],
)
def test_axes_of_kernels(init, flat, shape, in_axis, out_axis):
    """The matrix with its inputs and outputs split; transposed with them."""
    matrix, axes = init()(KEY, flat), {"in_axis": in_axis, "out_axis": out_axis}
    np.testing.assert_array_equal(init(**axes)(KEY, shape), matrix.reshape(shape))
    turned = init(in_axis=1, out_axis=0)(KEY, flat[::-1])
    np.testing.assert_array_equal(turned, matrix.T)
    inside = jax.jit(lambda key: init(**axes)(key, shape))(KEY)
    np.testing.assert_allclose(inside, matrix.reshape(shape), atol=2e-6)


def shift_along(in_axis, out_axis):
    return initializers.mean_shift(in_axis=in_axis, out_axis=out_axis)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: GAUGE(Mimetic(beta_qk=-0.7)), "beta_qk > 0, not -0.7"),
        (lambda: GAUGE(Mimetic(beta_vo=(0.1, 0.2))), r"beta_vo must be a number; got \(0.1, 0.2\)"),
        (lambda: ATTENTION(LAST)(KEY, 64, 2, num_layers=12), "Layers.* skips layer 0 of 12: use"),
        (lambda: ATTENTION(Copied())(KEY, 64, 2), "existing out, and there is none: use rewrite"),
        (lambda: ATTENTION((SinCos(), Mimetic())), r"\(SinCos.* is not a scheme that draws query"),
        (lambda: GAUGE()(KEY, (8, 2, 4)), r"in_axis=-2, out_axis=-1 are not the axes of a kernel"),
        (
            lambda: shift_along(0, (1, 3))(KEY, (8, 2, 4)),
            r"out_axis of .*\[1\] must be an integer .*; got 3",
        ),
        (lambda: shift_along((0, 1), (1, 2))(KEY, (8, 2, 4)), "each once"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(InputError, match=words):
        call()


@pytest.mark.parametrize("layer", [-1, 2])
def test_a_layer_is_one_of_the_network(layer):
    init = initializers.attention(Mimetic(beta_qk=(0.1, 0.2)))
    with pytest.raises(InputError, match=f"layer must be an integer.*got {layer}"):
        init(jax.random.key(0), 16, 2, layer=layer, num_layers=2)
    with pytest.raises(InputError, match=r"num_layers must be .*; got 0"):
        init(jax.random.key(0), 16, 2, num_layers=0)
