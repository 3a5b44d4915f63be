"""`draw` from shapes, and schemes as arguments of JAX's transformations."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from mimetic_jax import InputError, attention_rules, draw, plan, rewrite
from mimetic_jax.nnx import initialize
from mimetic_jax.schemes import (
    Impulse,
    Layers,
    MeanShift,
    Mimetic,
    NormMatched,
    Scheme,
    SinCos,
    Zero,
    ZeroOut,
)
from tests.models.values import initial
from tests.noise import Noise
from tests.products import of_layer

NOISE = Noise()

KEY = jax.random.key(7)
D, H = 32, 2


class MLP(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(D, name="fc2")(nn.gelu(nn.Dense(2 * D, name="fc1")(x)))


class Model(nn.Module):
    """Positions of patches, attention and an MLP by stock names."""

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(D, (2, 2), strides=2, name="patch_embed")(x).reshape(len(x), 16, D)
        x = x + self.param("pos_embed", nn.initializers.normal(0.02), (1, 16, D))
        for layer in range(2):
            x = x + nn.MultiHeadDotProductAttention(H, name=f"attention_{layer}")(x)
            x = x + MLP(name=f"mlp_{layer}")(x)
        return x


def params():
    return initial(Model(), jnp.ones((1, 8, 8, 3)))


def shapes():
    return jax.eval_shape(params)


def merged(drawn, others):
    """As the documents have it."""
    return jax.tree.map(
        lambda new, old: old if new is None else new, drawn, others, is_leaf=lambda x: x is None
    )


def assert_equal(left, right):
    jax.tree.map(np.testing.assert_array_equal, left, right)


@pytest.mark.parametrize(
    "scheme", [Mimetic(), (SinCos(), Mimetic()), [SinCos(), Mimetic()], NormMatched(Mimetic())]
)
def test_the_arrays_of_rewrite_and_no_others(scheme):
    whole = rewrite(KEY, params(), scheme)
    drawn = draw(KEY, shapes(), scheme)
    written = {write.path for write in plan(shapes(), scheme)}
    assert len(jax.tree.leaves(drawn)) == len(written)
    assert_equal(merged(drawn, whole), whole)
    assert_equal(draw(KEY, params(), scheme), drawn)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(drawn))


def test_values_are_needed_where_a_scheme_reads_them():
    tree = shapes()
    with pytest.raises(InputError, match="mlp_0/fc1/kernel is a shape without values"):
        draw(KEY, tree, MeanShift())
    with pytest.raises(InputError, match="Impulse needs one position table"):
        draw(KEY, tree, Impulse(position_scale=1.0))
    with pytest.raises(InputError, match="pos_embed is a shape without values"):
        draw(KEY, tree, Impulse())
    with pytest.raises(InputError, match="shape without values: draw"):
        rewrite(KEY, tree, Mimetic())
    kernels = {f"mlp_{layer}": params()[f"mlp_{layer}"] for layer in range(2)}
    assert_equal(draw(KEY, tree | kernels, MeanShift()), draw(KEY, params(), MeanShift()))


@pytest.mark.parametrize("scheme", [NOISE, Zero(), ZeroOut()], ids=str)
def test_shapes_beyond_all_memory_are_refused(scheme):
    """XLA would end the process."""
    wide = dict.fromkeys(("query", "key", "value"), (2**20, 2**10, 2**10)) | {
        "out": (2**10, 2**10, 2**20)
    }
    tree = {role: {"kernel": jax.ShapeDtypeStruct(s, jnp.float32)} for role, s in wide.items()}
    with pytest.raises(InputError, match=r"GiB of memory, and .* GiB are available"):
        draw(KEY, tree, scheme)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("traced", [False, True])
def test_kernels_that_share_a_leaf(grouped, traced):
    columns = 2 * D if grouped else 3 * D
    tree = {"attn": {"qkv": {"kernel": jnp.ones((D, columns), jnp.bfloat16)}}}
    tree["attn"]["proj"] = {"kernel": jnp.ones((D, D))}
    form = {
        "rules": attention_rules(fused="qkv", out="proj", flat=True, grouped=grouped),
        "num_heads": 4,
        "num_kv_heads": 2 if grouped else None,
    }
    drawing = functools.partial(draw, shapes=jax.eval_shape(lambda: tree), **form)
    right = rewrite(KEY, tree, NOISE, **form)
    call = functools.partial(drawing, scheme=NOISE)
    found = (jax.jit(call) if traced else call)(KEY)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-2), found, right)
    assert found["attn"]["qkv"]["kernel"].dtype == jnp.bfloat16
    with pytest.raises(InputError, match=r"qkv/kernel is a shape .* writes only a part of it"):
        drawing(KEY, scheme=Mimetic(alpha_vo=None, beta_vo=None))


def test_layers_of_a_stack():
    kernels = {name: {"kernel": jnp.ones((4, D, H, D // H))} for name in ("query", "key")}
    tree, stack = {"attention": kernels}, jax.eval_shape(lambda: {"attention": kernels})
    assert_equal(draw(KEY, stack, NOISE), rewrite(KEY, tree, NOISE))
    whole = Layers(NOISE, 0.0, 1.0)
    assert_equal(draw(KEY, stack, whole), rewrite(KEY, tree, whole))
    with pytest.raises(InputError, match=r"key/kernel .* Layers.* writes only some of its layers"):
        draw(KEY, stack, Layers(NOISE, 0.5, 1))
    second = draw(KEY, shapes(), Layers(NOISE, 0.5, 1))
    assert [len(jax.tree.leaves(second[f"attention_{layer}"])) for layer in (0, 1)] == [0, 8]


def test_a_state_of_nnx_and_boxes():
    module = nnx.eval_shape(lambda: nnx.MultiHeadAttention(H, D, decode=False, rngs=nnx.Rngs(0)))
    state = nnx.state(module, nnx.Param)
    real = nnx.MultiHeadAttention(H, D, decode=False, rngs=nnx.Rngs(0))
    initialize(real, KEY, Mimetic())
    drawn, written = draw(KEY, state, Mimetic()), nnx.state(real, nnx.Param)
    assert_equal(nnx.to_pure_dict(drawn), nnx.to_pure_dict(written))
    boxed = jax.tree.map(lambda leaf: nn.Partitioned(leaf, (None,) * leaf.ndim), shapes())
    drawn = draw(KEY, boxed, Mimetic())
    assert isinstance(drawn["attention_0"]["query"]["kernel"], nn.Partitioned)
    assert_equal(nn.unbox(drawn), draw(KEY, shapes(), Mimetic()))


def test_a_scheme_is_an_argument_of_a_compiled_function():
    """Compiled once for equal schemes."""
    traces = []

    @dataclasses.dataclass(frozen=True)
    class Counted(Scheme):
        value: float = 1.0

        def writes(self, roles):
            return roles & {"out"}

        def draw(self, key, block, context):
            traces.append(self.value)
            return {"out": jnp.full(block.shapes["out"], self.value)}

    tree, compiled = params(), jax.jit(rewrite)
    for value in (1, 1.0, 2.0):
        new = compiled(KEY, tree, Counted(value))
        assert float(new["attention_0"]["out"]["kernel"].max()) == value
    assert traces == [1.0, 1.0, 2.0, 2.0]  # of two layers
    eager = rewrite(KEY, tree, (SinCos(), Mimetic()))
    for several in ((SinCos(), Mimetic()), [SinCos(), Mimetic()]):
        jitted = compiled(KEY, tree, several)
        layers = (of_layer(tree["attention_0"]) for tree in (jitted, eager))
        for found, right in zip(*layers, strict=True):
            np.testing.assert_allclose(found, right, atol=1e-5)
    keys = jax.random.split(KEY, 2)
    together = jax.vmap(rewrite, in_axes=(0, None, None))(keys, tree, NOISE)
    second = jax.tree.map(lambda leaf: leaf[1], together)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-6)
    jax.tree.map(close, second, rewrite(keys[1], tree, NOISE))


def test_rules_are_arguments_too():
    rules = attention_rules(query="to_q", key="to_k", value="to_v", out="to_out")
    shape = {"to_q": (D, H, D // H), "to_k": (D, H, D // H)}
    tree = {"attention": {name: {"kernel": jnp.ones(dims)} for name, dims in shape.items()}}
    found = jax.jit(rewrite)(KEY, tree, NOISE, rules=rules)
    right = rewrite(KEY, tree, NOISE, rules=rules)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-6), found, right)


def test_rngs_give_the_next_key():
    tree, rngs, same = params(), nnx.Rngs(params=3), nnx.Rngs(params=3)
    for call in (rewrite, draw):
        assert_equal(call(rngs, tree, NOISE), call(same.params(), tree, NOISE))
    one, other = (nnx.MultiHeadAttention(H, D, decode=False, rngs=nnx.Rngs(0)) for _ in range(2))
    initialize(one, nnx.Rngs(3), Mimetic())
    initialize(other, nnx.Rngs(3).params(), Mimetic())
    assert_equal(nnx.state(one, nnx.Param), nnx.state(other, nnx.Param))
    with pytest.raises(InputError, match="no stream of parameters"):
        rewrite(nnx.Rngs(dropout=0), tree, NOISE)
