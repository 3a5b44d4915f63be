"""What would give wrong weights without a word is refused in one line that says why."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import mimetic_jax
from mimetic_jax import InputError, check, plan, rewrite, zoo
from mimetic_jax.initializers import identity_gauge
from mimetic_jax.schemes import Impulse, Mimetic, Scheme, SinCos, Zero

KEY = jax.random.key(0)
D, H, K = 24, 2, 12


def attention(heads=H, groups=None, dtype=np.float32, width=D, head_dim=K):
    """A layer by Flax's names."""
    shape, few = (width, heads, head_dim), (width, groups or heads, head_dim)
    shapes = {"query": shape, "key": few, "value": few, "out": (heads, head_dim, width)}
    noise = np.random.default_rng(0)
    return {
        role: {"kernel": noise.normal(size=size).astype(dtype)} for role, size in shapes.items()
    }


PAIR = frozenset({"query", "key"})


def redefined(call, writes):
    """A scheme of a user's, which draws what `call` makes of the block."""
    members = {
        "writes": lambda self, roles: writes,
        "draw": lambda self, key, block, context: call(block),
        "__module__": __name__,
        "__qualname__": "redefined.Own",
    }
    return dataclasses.dataclass(frozen=True)(type("Own", (Scheme,), members))()


def pair(query, block):
    return {"query": query, "key": block["key"]}


@pytest.mark.parametrize(
    ("call", "words", "writes"),
    [
        (lambda block: {"query": block["query"]}, r"returns \['query'\], but its writes", PAIR),
        (dict, r"returns \['key', 'out', 'query', 'value'\], but", PAIR),
        (lambda block: None, "returns None, but its writes", PAIR),
        (lambda block: pair(block["query"][:1], block), r"query of shape \(1, 2, 12\), not", PAIR),
        (lambda block: pair(block["query"] * jnp.nan, block), "query with values that ar", PAIR),
        (dict, "not among the roles", frozenset({"query", "sink"})),
    ],
)
def test_what_a_users_scheme_returns_is_checked(call, words, writes):
    with pytest.raises(InputError, match=words):
        rewrite(KEY, attention(), redefined(call, writes))


@pytest.mark.parametrize("transposed", [False, True])
def test_arrays_come_back_in_the_order_of_c_and_of_their_kind(transposed):
    """A file format that ignores strides would store others transposed."""
    rules = mimetic_jax.attention_rules(flat=True, transposed=transposed)
    tree = {role: {"kernel": np.ones((D, D), np.float32)} for role in ("query", "key")}
    tree |= {role: {"kernel": np.ones((D, D), np.float32)} for role in ("value", "out")}
    new = rewrite(KEY, tree, Mimetic(), num_heads=H, rules=rules)
    for leaf in jax.tree.leaves(new):
        assert isinstance(leaf, np.ndarray)
        assert leaf.flags.c_contiguous


@pytest.mark.parametrize(("heads", "groups"), [(6, 4), (2, 4)])
def test_heads_that_do_not_pair_are_not_checked(heads, groups):
    tree = attention(heads, groups)
    tree = {role: tree[role] for role in ("query", "key")}
    with pytest.raises(InputError, match=rf"{heads}.*{groups}|{groups}.*{heads}"):
        check({"attn": tree})


@pytest.mark.parametrize("dtype", ["float8_e8m0fnu", "int32", "bool"])
def test_a_dtype_that_holds_no_weights_is_refused(dtype):
    dtype = jnp.dtype(dtype)
    for call in (plan, lambda *tree: rewrite(KEY, *tree)):
        with pytest.raises(InputError, match=f"key/kernel: dtype {dtype} can't hold"):
            call(attention(dtype=dtype), Mimetic())
    with pytest.raises(InputError, match=f"{dtype} can't hold"):
        identity_gauge()(KEY, (D, H, K), dtype)


def test_advice_does_not_lead_in_a_circle():
    """A table without a rule is what is wrong, not the choice of the zoo's rules."""
    tree = {"pos": jnp.ones((16, D))}
    with pytest.raises(InputError) as caught:
        rewrite(KEY, tree, SinCos(), rules=zoo.BIG_VISION)
    assert "give rules=zoo.BIG_VISION" not in str(caught.value)


def test_the_first_layer_of_an_mlp_has_its_second_beside_it():
    """Else a classifier of that name would get the scheme too."""
    rules = mimetic_jax.mlp_rules(first="Dense_0", second="Dense_1")
    pair = {"Dense_0": {"kernel": jnp.ones((8, 32))}, "Dense_1": {"kernel": jnp.ones((32, 8))}}
    tree = {"block": pair, "Dense_0": {"kernel": jnp.ones((8, 10))}}
    with pytest.raises(InputError, match="Dense_0/kernel has the name of mlp_in, but no leaf"):
        rewrite(KEY, tree, mimetic_jax.schemes.MeanShift(), rules=rules)


def test_a_deleted_array_and_a_shape_are_named():
    deleted = jax.tree.map(jnp.asarray, attention())
    jax.tree.map(lambda leaf: leaf.delete(), deleted)
    with pytest.raises(InputError, match="deleted array"):
        rewrite(KEY, deleted, mimetic_jax.schemes.NormMatched(Mimetic()))
    shapes = jax.eval_shape(lambda: jax.tree.map(jnp.asarray, attention()))
    with pytest.raises(InputError, match="shape"):
        mimetic_jax.fit(shapes)


def test_arguments_in_another_order():
    """`initialize(key, module, …)` instead of `initialize(module, key, …)`."""
    module = nnx.MultiHeadAttention(2, 8, decode=False, rngs=nnx.Rngs(0))
    with pytest.raises(InputError, match=r"key must be .*, not a MultiHeadAttention"):
        mimetic_jax.nnx.initialize(KEY, module, Zero())
    with pytest.raises(InputError, match=r"module must be an nnx.Module, not .*MultiHeadAttention"):
        mimetic_jax.nnx.initialize(type(module), KEY, Zero())


class Normalized(nn.Module):
    """Attention whose kernels have their lengths beside them."""

    @nn.compact
    def __call__(self, x):
        layer = nn.MultiHeadDotProductAttention(H, name="attention")
        return nn.WeightNorm(layer, variable_filter={"kernel"})(x)


def test_a_weight_norm_is_refused():
    """Its scale would undo the draw: the layer computes with other lengths of columns."""
    params = Normalized().init(KEY, jnp.ones((1, 3, D)))["params"]
    for call in (lambda: rewrite(KEY, params, Mimetic()), lambda: str(check(params))):
        with pytest.raises(InputError, match=r"is scaled by WeightNorm_0/attention/.*/scale"):
            call()
    torch = {
        f"attn.{name}_proj.weight_{x}": np.ones((D, D), np.float32) for name in "qkvo" for x in "gv"
    }
    with pytest.raises(InputError, match="no rule describes"):
        rewrite(KEY, torch, Mimetic(), num_heads=H)


def test_pruned_heads_are_not_divided_as_if_none_were_missing():
    """Three heads of 16 have the columns of six of 8."""
    tree = {
        f"layers.{layer}.self_attn.{name}_proj.weight": np.ones((96, 96) if name == "o" else shape)
        for layer, shape in enumerate([(96, 96), (48, 96)])
        for name in "qkvo"
    }
    tree["layers.1.self_attn.o_proj.weight"] = np.ones((96, 48))
    for act in (lambda: plan(tree, Mimetic(), num_heads=6), lambda: check(tree, num_heads=6)):
        with pytest.raises(InputError, match=r"width 16 and .*width 8: .* heads pruned"):
            act()
    # A norm over the columns of a head shows its width: Gemma 4's global layers have other heads.
    tree |= {
        f"layers.{layer}.self_attn.{name}_norm.weight": np.ones(width)
        for layer, width in enumerate([16, 8])
        for name in "qk"
    }
    assert len(plan(tree, Mimetic(), num_heads=6)) == 8


@pytest.mark.parametrize("count", [28, 48, 52])
@pytest.mark.parametrize("scheme", [SinCos(), Impulse()])
def test_a_grid_that_does_not_fit_the_table_is_refused(scheme, count):
    """A table has a row for each patch, after that of a class token if there is one."""
    tree = attention() | {"pos_embed": np.ones((1, count, D))}
    with pytest.raises(InputError, match=f"7x7 doesn't fit a table of {count} positions: pos_em"):
        plan(tree, scheme, grid=(7, 7))


def test_layers_that_may_be_stacked_along_either_axis_are_asked_for():
    tree = {name: {"kernel": np.ones((8, 8, 8, 1))} for name in ("query", "key", "value")}
    tree = {"blocks": {"attention": tree | {"out": {"kernel": np.ones((8, 8, 1, 8))}}}}
    with pytest.raises(InputError, match=r"first or its second axis: give rules=.*axis=1\)"):
        plan(tree, Mimetic())
    for axis in (0, 1):
        rules = mimetic_jax.attention_rules(stacked=True, axis=axis)
        assert len(plan(tree, Mimetic(), rules=rules)) == 4


@pytest.mark.parametrize("names", [("student", "teacher"), ("online", "target"), ("model", "ema")])
def test_a_copy_of_another_part_is_refused(names):
    """A teacher starts as a copy of its student; two draws would differ."""
    block = {"block_0": {"attention": attention()}, "block_1": {"attention": attention()}}
    tree = dict.fromkeys(names, block)
    with pytest.raises(InputError, match=r"is a copy of .*block_0/attention"):
        rewrite(KEY, tree, Mimetic())
    assert len(plan(tree, Mimetic())) == 16
    # Layers of one part may be equal, and so may constants.
    rewrite(KEY, block, Mimetic())
    rewrite(KEY, jax.tree.map(np.zeros_like, tree), Mimetic())
