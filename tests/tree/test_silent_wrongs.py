"""What would give wrong weights without a word is refused in one line that says why."""

import dataclasses
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import mimetic_jax
from mimetic_jax import InputError, Rule, check, plan, rewrite, zoo
from mimetic_jax.command.expressions import parse_rules
from mimetic_jax.initializers import identity_gauge
from mimetic_jax.rules.tables import attention_rules, mlp_rules
from mimetic_jax.schemes import Impulse, MeanShift, Mimetic, Scheme, SinCos, Zero, ZeroOut
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


class Reversed(nn.Module):
    """Blocks whose MLP is written as most do it: the last layer is made first, and is Dense_0."""

    inline: bool
    name_of_attention: str | None

    @nn.compact
    def __call__(self, x):
        class MLP(nn.Module):
            @nn.compact
            def __call__(self, x):
                return nn.Dense(D)(nn.gelu(nn.Dense(4 * D)(x)))

        class Block(nn.Module):
            inline: bool
            name_of_attention: str | None

            @nn.compact
            def __call__(self, x):
                x = x + nn.MultiHeadDotProductAttention(H, name=self.name_of_attention)(x)
                inline = self.inline and nn.Dense(D)(nn.gelu(nn.Dense(4 * D)(x)))
                return x + (inline if self.inline else MLP()(x))

        for _ in range(2):
            x = Block(self.inline, self.name_of_attention)(x)
        return x


@pytest.mark.parametrize("name", [None, "attention"])
@pytest.mark.parametrize("inline", [False, True])
def test_the_layers_of_an_mlp_that_linen_made_in_the_other_order(inline, name):
    """For schemes, and for `check`, which reads W_1 W_2."""
    params = Reversed(inline, name).init(KEY, jnp.ones((1, 3, D)))["params"]
    for call in (lambda: plan(params, ZeroOut(mlp=True)), lambda: check(params)):
        with pytest.raises(InputError, match="are the last and the first layer of an") as error:
            call()
        rules = parse_rules(re.search(r"give rules=(.*)$", str(error.value))[1])
    zeros = {w.path for w in plan(params, ZeroOut(mlp=True), rules=rules) if "mlp_out" in w.role}
    assert len(zeros) == 4
    assert all("Dense_0" in path for path in zeros)
    params["Block_0"] = jax.tree.map(np.array, params["Block_0"])
    mlp = params["Block_0"] if inline else params["Block_0"]["MLP_0"]
    mlp["Dense_0"]["kernel"] = -mlp["Dense_1"]["kernel"].T
    assert check(params, rules=rules)[0].mlp < -0.7


def test_rules_are_advised_for_the_layers_in_their_order():
    tree = {f"block_{i}/mix/{x}/kernel": (D, D) for i in range(2) for x in ("wq", "wk", "wv", "wo")}
    shapes = {"Dense_0": (4 * D, D), "Dense_1": (D, 4 * D)}
    tree |= {f"block_{i}/Own_0/{x}/kernel": s for i in range(2) for x, s in shapes.items()}
    with pytest.raises(InputError, match=r'mlp_rules\(first="Dense_1", second="Dense_0"\)'):
        plan(ones(tree), MeanShift())


def test_an_mlp_alone_whose_first_layer_may_be_the_last():
    tree = {"Mlp_0/Dense_0/kernel": (4 * D, D), "Mlp_0/Dense_1/kernel": (D, 4 * D)}
    with pytest.raises(InputError, match="may be the last and the first layer") as error:
        plan(ones(tree), MeanShift())
    answers = re.findall(r"rules=(\(.*?zoo.FLAX\))", str(error.value))
    writes = [plan(ones(tree), MeanShift(), rules=parse_rules(one)) for one in answers]
    assert [write.path[6:13] for (write,) in writes] == ["Dense_1", "Dense_0"]


@pytest.mark.parametrize(
    "other", ["MultiHeadDotProductAttention_0", "encoder_attention", "inter_attention", "ca"]
)
def test_cross_attention_of_another_name_is_not_taken_for_self_attention(other):
    block = {"self_attn": attention(), other: attention()}
    tree = {f"layer_{i}": block for i in range(2)}
    with pytest.raises(InputError, match="don't tell self-attention from cross-attention") as error:
        plan(tree, Mimetic())
    rules = parse_rules(re.search("leave one out with rules=(.*)", str(error.value))[1])
    assert {write.path.split("/")[1] for write in plan(tree, Mimetic(), rules=rules)} == {
        "self_attn"
    }


@pytest.mark.parametrize("kind", ["PreNorm", "sublayer"])
def test_attentions_in_blocks_of_their_own(kind):
    """With one MLP beside them they are of one layer; with one each they are layers of a stage."""
    part = {"MultiHeadDotProductAttention_0": attention()}
    parts = {f"{kind}_0": part, f"{kind}_1": part, f"{kind}_2": {"Mlp_0": mlp(D)}}
    with pytest.raises(InputError, match=rf"{kind}_0/.* and layer_0/{kind}_1/.* are in one layer"):
        plan({f"layer_{i}": parts for i in range(2)}, Mimetic())
    each = dict.fromkeys(parts, part | {"Mlp_0": mlp(D)})
    assert len(plan({f"stage_{i}": each for i in range(2)}, Mimetic())) == 24


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
    ("first", "gate", "second"),
    [("wi", "wg", "wo"), ("linear1", "linear3", "linear2"), ("c_fc", "c_fc2", "c_proj")],
)
def test_a_gate_of_any_name(first, gate, second):
    """A third kernel of the first one's shape, in a module that names alone take for an MLP."""
    one, other = (layer["kernel"] for layer in mlp(D).values())
    gated = {name: {"kernel": x} for name, x in ((first, one), (gate, one), (second, other))}
    with pytest.raises(InputError, match=f"mlp/{gate} is the gate of an MLP, and MeanShift leaves"):
        plan(blocks_with(mlp=gated), MeanShift())
    rules = (*mlp_rules(first=first, second=second), *zoo.FLAX)
    assert len(plan(blocks_with(mlp=gated), MeanShift(), rules=rules)) == 2


@pytest.mark.parametrize(
    ("module", "layers", "words"),
    [
        (
            "bottleneck_0",
            mlp(D // 2, D, "up", "down"),
            f"attention beside them, {D}: leave them out",
        ),
        ("se_mlp", mlp(D, 2), "hidden layers of 96 and 2: one of them may mix tokens"),
        ("token_mlp", mlp(16, 32), f"attention beside them, {D}: leave them out"),
    ],
)
def test_what_is_beside_the_mlp_is_none(module, layers, words):
    """Bottlenecks, squeeze-excite and mixers of tokens have the names of an MLP's layers."""
    with pytest.raises(InputError, match=words) as error:
        plan(blocks_with(**{module: layers}), MeanShift())
    rules = parse_rules(re.search(r"out with rules=(.*)", str(error.value))[1])
    planned = plan(blocks_with(**{module: layers}), MeanShift(), rules=rules)
    assert [write.path for write in planned] == [f"block_{i}/mlp/fc1/kernel" for i in range(2)]


def test_self_attentions_of_one_layer_that_say_so():
    names = ("self_attention_local", "self_attention_global")
    tree = {f"layer_{i}": dict.fromkeys(names, attention()) for i in range(2)}
    assert len(plan(tree, Mimetic())) == 16


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
    rules = (Rule("pos", "position", "1 n d"), *zoo.FLAX)
    with pytest.raises(InputError, match="are image patches or text"):
        rewrite(KEY, tree, SinCos(), rules=rules)
