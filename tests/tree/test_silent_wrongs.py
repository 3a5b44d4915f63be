"""What would give wrong weights without a word is refused in one line that says why."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import mimetic_jax
from mimetic_jax import InputError, Rule, check, plan, rewrite, zoo
from mimetic_jax.initializers import identity_gauge
from mimetic_jax.rules.tables import attention_rules
from mimetic_jax.schemes import Impulse, MeanShift, Mimetic, Permuted, Scheme, SinCos, Zero
from tests.tree.test_advice import printed
from tests.zoo.cases import ones

KEY = jax.random.key(0)
D, H, K = 24, 2, 12


def mlp(width, hidden=96, first="fc1", second="fc2"):
    """Two layers, [D, F] and [F, D]."""
    shapes = {first: (width, hidden), second: (hidden, width)}
    return {name: {"kernel": np.ones(shape, np.float32)} for name, shape in shapes.items()}


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


def test_the_first_layer_of_an_mlp_has_its_second_beside_it():
    """Else a classifier of that name would get the scheme too."""
    rules = mimetic_jax.mlp_rules(first="Dense_0", second="Dense_1")
    pair = {"Dense_0": {"kernel": jnp.ones((8, 32))}, "Dense_1": {"kernel": jnp.ones((32, 8))}}
    tree = {"block": pair, "Dense_0": {"kernel": jnp.ones((8, 10))}}
    with pytest.raises(InputError, match="Dense_0/kernel is mlp_in of an MLP"):
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
        with pytest.raises(InputError, match=r"scaled by WeightNorm_0/attention/.*/scale"):
            call()
    torch = {
        f"attn.{name}_proj.weight_{x}": np.ones((D, D), np.float32) for name in "qkvo" for x in "gv"
    }
    with pytest.raises(InputError, match="weight_g"):
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
    tree |= {f"layers.{layer}.post_attention_layernorm.weight": np.ones(96) for layer in range(2)}
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
    with pytest.raises(InputError, match=r"first or its second axis: pass rules=.*axis=1\)"):
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


@pytest.mark.parametrize("place", ["", "layer_0/attn"])
@pytest.mark.parametrize("stack", [np.stack, jnp.stack])
def test_a_copy_for_each_device_is_no_stack_of_layers(place, stack):
    """Each device would get other weights."""
    layer = nn.MultiHeadDotProductAttention(num_heads=H)
    params = layer.init(KEY, jnp.ones((1, 3, D)))["params"]
    for name in filter(None, reversed(place.split("/"))):
        params = {name: params}
    tree = jax.tree.map(lambda leaf: stack([leaf] * 3), params)
    with pytest.raises(InputError, match=r"3 equal slices.*unreplicate\(params\)"):
        rewrite(KEY, tree, Mimetic())
    rewrite(KEY, tree, Mimetic(), rules=zoo.COMMON)
    rewrite(KEY, jax.tree.map(lambda leaf: 0 * leaf, tree), Mimetic())
    layers = jax.tree.map(lambda leaf: stack([leaf, leaf, 2 * leaf]), params)
    # Layers that a scheme makes equal aren't copies.
    rewrite(KEY, layers, (Mimetic(alpha_qk=0, alpha_vo=0), Permuted(Mimetic())))


NAMES = ("src_attn", "context_attention", "memory_attn", "cross_mha", "cross", "encdec")


@pytest.mark.parametrize("name", NAMES)
def test_other_names_of_cross_attention(name):
    tree = {f"layer_{i}": {"self_attn": attention(), name: attention()} for i in range(2)}
    assert {write.path.split("/")[1] for write in plan(tree, Mimetic())} == {"self_attn"}
    layer = {name: {"attention": attention()} for name in ("self", "CrossBlock_0")}
    planned = plan({f"layer_{i}": layer for i in range(2)}, Mimetic())
    assert {write.path.split("/")[1] for write in planned} == {"self"}


@pytest.mark.parametrize("named", ["q_proj/kernel_lora_a", "q_proj/lora_A/kernel", "o_proj/lora/a"])
def test_adapters_beside_kernels_stay(named):
    """Whatever rules describe the kernels."""
    roles = {"q_proj": (D, D), "k_proj": (D, D), "v_proj": (D, D), "o_proj": (D, D)}
    tree = ones({f"layers/{i}/self_attn/{x}/kernel": s for i in "01" for x, s in roles.items()})
    tree |= ones({f"layers/{i}/self_attn/{named}": (D, 4) for i in "01"})
    names = dict(zip(("query", "key", "value", "out"), roles, strict=True))
    for rules in (None, attention_rules(**names, flat=True)):
        planned = plan(tree, Mimetic(), num_heads=H, rules=rules)
        assert {write.path for write in planned} == {x for x in tree if x.endswith("j/kernel")}


def test_heads_of_key_that_are_repeated_by_tiling():
    """Query head q g shares key head g: both numbers tell how many queries a key has."""
    tree = ones({f"{x}/kernel": (96, 32 if x in "kv" else 96) for x in "qkvo"})
    rules = (Rule("q/kernel", "query", "d (q g k)"), Rule("o/kernel", "out", "(q g k) d"))
    rules += attention_rules(query="q", key="k", value="v", out="o", flat=True)
    planned = plan(tree, Mimetic(), rules=rules, num_heads=6, num_kv_heads=2)
    assert len(planned) == 4


class Shared(nnx.Module):
    """One attention under two names."""

    def __init__(self):
        self.first = nnx.MultiHeadAttention(H, D, decode=False, rngs=nnx.Rngs(0))
        self.second = self.first


def test_a_part_that_nnx_shares_is_drawn_once():
    module = Shared()
    for call in (plan, lambda *arguments: rewrite(KEY, *arguments)):
        with pytest.raises(InputError, match="Shared has a part under several names"):
            call(module, Mimetic())
    assert len(mimetic_jax.nnx.initialize(module, KEY, Mimetic())) == 8
    assert module.first.query.kernel is module.second.query.kernel


def blocks_with(**modules):
    """Two blocks with attention and an MLP, and with these modules."""
    return {f"block_{i}": {"attention": attention(), "mlp": mlp(D)} | modules for i in range(2)}


@pytest.mark.parametrize(
    ("module", "layers"),
    [
        ("bottleneck_0", mlp(D // 2, D, "up", "down")),
        ("se_mlp", mlp(D, 2)),
        ("token_mlp", mlp(16, 32)),
    ],
)
def test_what_is_beside_the_mlp_is_none(module, layers):
    """Bottlenecks, squeeze-excite and mixers of tokens have the names of an MLP's layers."""
    with pytest.raises(InputError, match=module) as error:
        plan(blocks_with(**{module: layers}), MeanShift())
    calls = printed(str(error.value), {"first": "down", "second": "up"})
    left = [rules for rules in calls if not rules[0].roles and module[:5] in rules[0].path]
    for rules in left:
        planned = plan(blocks_with(**{module: layers}), MeanShift(), rules=rules)
        assert [write.path for write in planned] == [f"block_{i}/mlp/fc1/kernel" for i in range(2)]
    assert left


def test_a_number_of_heads_that_no_attention_has():
    tree = {"attention": attention(heads=H, groups=1)}
    for name, count in {"num_heads": 16, "num_kv_heads": 2}.items():
        with pytest.raises(InputError, match=f"{name} is {count}, and attention/.* holds"):
            plan(tree, Mimetic(), **{name: count})
    assert plan(tree, Mimetic(), num_heads=H, num_kv_heads=1)


@pytest.mark.parametrize("name", ["cls_embed", "mask_token", "y_embedder/embedding"])
def test_what_is_added_to_images_makes_no_text_of_their_positions(name):
    tree = {"block": {"attention": attention()}, "x_proj": jnp.ones((48, D))}
    tree |= {name: jnp.ones((10, D)), "pos": jnp.ones((1, 64, D))}
    rules = (Rule("pos", "position", "1 n d"), *zoo.COMMON)
    with pytest.raises(InputError, match="are image patches or text"):
        rewrite(KEY, tree, SinCos(), rules=rules)
