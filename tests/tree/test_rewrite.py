import dataclasses
import functools

import einops
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import mimetic_jax
from mimetic_jax import InputError, Rule, attention_rules, block_key, weights
from mimetic_jax.schemes import (
    Block,
    Context,
    Impulse,
    MeanShift,
    Mimetic,
    NormMatched,
    SameNoise,
    Scheme,
    SinCos,
)
from mimetic_jax.tree.rewrite import rewrite_in_place
from mimetic_jax.tree.tables import FLAX

KEY = jax.random.key(3)
DIM, HEADS = 16, 2


class Stack(nn.Module):
    """Stock Flax attention, nothing of ours."""

    layers: int = 3

    @nn.compact
    def __call__(self, x):
        for layer in range(self.layers):
            y = nn.MultiHeadDotProductAttention(HEADS, name=f"layer_{layer}")(x)
            x = x + nn.Dense(DIM, name=f"dense_{layer}")(y)
        return x


def stock(layers=3):
    return Stack(layers).init(jax.random.key(0), jnp.ones((1, 5, DIM)))["params"]


def products(tree):
    def kernel(role):
        return np.asarray(tree[role]["kernel"], np.float64)

    return (
        np.einsum("dhk,ehk->hde", kernel("query"), kernel("key")),
        np.einsum("dhk,hke->de", kernel("value"), kernel("out")),
    )


def assert_same_products(left, right, atol=1e-5):
    for a, b in zip(products(left), products(right), strict=True):
        np.testing.assert_allclose(a, b, atol=atol)


def test_attention_is_rewritten_and_the_rest_is_not():
    before = stock()
    after = mimetic_jax.rewrite(KEY, before, Mimetic())
    assert jax.tree.structure(after) == jax.tree.structure(before)
    for layer in range(3):
        query_key, value_out = products(after[f"layer_{layer}"])
        assert query_key.diagonal(axis1=1, axis2=2).mean() > 0.3
        assert value_out.diagonal().mean() < -0.3
        np.testing.assert_array_equal(
            before[f"dense_{layer}"]["kernel"], after[f"dense_{layer}"]["kernel"]
        )


def test_a_layer_is_what_its_block_key_gives():
    """The public contract: path → key → scheme, independent of the rest of the tree."""
    for layers in (2, 3):
        layer = mimetic_jax.rewrite(KEY, stock(layers), Mimetic())["layer_1"]
        shapes = {"query": (16, 2, 8), "key": (16, 2, 8), "value": (16, 2, 8), "out": (2, 8, 16)}
        block = Block.of({role: jnp.zeros(shape) for role, shape in shapes.items()})
        new = Mimetic()(block_key(KEY, "layer_1"), block, Context())
        for role in shapes:
            np.testing.assert_array_equal(layer[role]["kernel"], new[role])


@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg"])
def test_raw_keys_draw_like_typed_ones(implementation):
    params = stock(2)
    with jax.default_prng_impl(implementation):
        raw, typed = (
            mimetic_jax.rewrite(key, params, SameNoise())
            for key in (jax.random.PRNGKey(3), jax.random.key(3))
        )
    jax.tree.map(np.testing.assert_array_equal, raw, typed)


def test_layers_and_keys_differ():
    first = mimetic_jax.rewrite(KEY, stock(), Mimetic())
    second = mimetic_jax.rewrite(jax.random.key(4), stock(), Mimetic())
    trees = (first["layer_0"], first["layer_1"], second["layer_0"])
    noise = [products(tree)[1][~np.eye(DIM, dtype=bool)] for tree in trees]
    assert np.abs(np.corrcoef(noise) - np.eye(3)).max() < 0.3


def test_double_precision_changes_no_draw():
    scheme = NormMatched(Mimetic())
    params = stock(1)
    expected = mimetic_jax.rewrite(KEY, params, scheme)
    with jax.enable_x64(True):
        found = mimetic_jax.rewrite(KEY, params, scheme)
    assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {jnp.dtype("float32")}
    assert_same_products(found["layer_0"], expected["layer_0"])


def test_jit_vmap_and_eager_agree():
    params = stock(2)

    def rewritten(key):
        return mimetic_jax.rewrite(key, params, Mimetic())

    eager = rewritten(KEY)
    jitted = jax.jit(rewritten)(KEY)
    seeds = jax.random.split(KEY, 2).at[1].set(KEY)
    vmapped = jax.jit(jax.vmap(rewritten))(seeds)
    shapes = jax.eval_shape(rewritten, KEY)
    for layer in eager:
        if layer.startswith("layer"):
            assert_same_products(eager[layer], jitted[layer])
            assert_same_products(eager[layer], jax.tree.map(lambda x: x[1], vmapped[layer]))
    assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, params)


def test_constants_may_be_traced_where_parameters_are_concrete():
    params = stock(2)

    def rewritten(alpha):
        scheme = NormMatched(Mimetic(alpha_qk=(alpha, 0.7)))
        return mimetic_jax.rewrite(KEY, params, scheme)

    shapes = jax.eval_shape(rewritten, 0.7)
    assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, params)


def test_stacked_layers_draw_like_single_ones():
    """nn.scan's tree: each layer folds its index into the block's key."""
    single = stock(2)
    stacked = jax.tree.map(lambda *x: jnp.stack(x), single["layer_0"], single["layer_1"])
    rules = attention_rules(stacked=True)
    scheme = Mimetic(beta_vo=(-0.4, 0.4))
    tree = {"layers": {"attn": stacked}}
    new = mimetic_jax.rewrite(KEY, tree, scheme, rules=rules)["layers"]["attn"]
    for layer, sign in enumerate((-1, 1)):
        one = jax.tree.map(lambda x, layer=layer: x[layer], new)
        assert sign * products(one)[1].diagonal().mean() > 0.3
        key = block_key(KEY, "layers/attn", layer)
        block = Block.of({role: one[role]["kernel"] for role in ("query", "key", "value", "out")})
        expected = scheme(key, block, Context(layer, 2))
        np.testing.assert_allclose(one["out"]["kernel"], expected["out"], atol=1e-6)


def test_flattened_heads_need_their_number():
    tree = {
        role: {"kernel": jnp.zeros((DIM, DIM))} for role in ("q_proj", "k_proj", "v_proj", "o_proj")
    }
    rules = (
        Rule("q_proj/kernel", "query", "d (h k)"),
        Rule("k_proj/kernel", "key", "d (g k)"),
        Rule("v_proj/kernel", "value", "d (g k)"),
        Rule("o_proj/kernel", "out", "(h k) d"),
    )
    new = mimetic_jax.rewrite(KEY, tree, Mimetic(), rules=rules, num_heads=HEADS)
    product = np.asarray(new["v_proj"]["kernel"]) @ np.asarray(new["o_proj"]["kernel"])
    assert product.diagonal().mean() == pytest.approx(-0.4, abs=0.1)
    with pytest.raises(InputError, match="give num_heads"):
        mimetic_jax.rewrite(KEY, tree, Mimetic(), rules=rules)
    with pytest.raises(InputError, match="num_heads 3 does not divide the 16 columns"):
        mimetic_jax.rewrite(KEY, tree, Mimetic(), rules=rules, num_heads=3)
    with pytest.raises(InputError, match="num_kv_heads 3 does not divide the 16 columns of k_proj"):
        mimetic_jax.rewrite(KEY, tree, Mimetic(), rules=rules, num_heads=2, num_kv_heads=3)


def test_nnx_and_linen_trees_give_the_same():
    layer = nnx.MultiHeadAttention(HEADS, DIM, decode=False, rngs=nnx.Rngs(0))
    state = nnx.state(layer, nnx.Param)
    as_linen = nnx.to_pure_dict(state)
    new_state = mimetic_jax.rewrite(KEY, state, Mimetic())
    new_tree = mimetic_jax.rewrite(KEY, as_linen, Mimetic())
    for role in ("query", "key", "value", "out"):
        np.testing.assert_array_equal(
            nnx.to_pure_dict(new_state)[role]["kernel"], new_tree[role]["kernel"]
        )


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32])
def test_dtypes_and_kinds_stay(dtype):
    params = jax.tree.map(lambda x: x.astype(dtype), stock(1))
    for leaf in jax.tree.leaves(mimetic_jax.rewrite(KEY, params, Mimetic())):
        assert leaf.dtype == dtype
        assert isinstance(leaf, jax.Array)
        assert jnp.isfinite(leaf).all()
    numpy_params = jax.tree.map(np.asarray, stock(1))
    for leaf in jax.tree.leaves(mimetic_jax.rewrite(KEY, numpy_params, Mimetic())):
        assert isinstance(leaf, np.ndarray)


@dataclasses.dataclass(frozen=True)
class Toy(Scheme):
    """Uses the context as Impulse and T-Fixup do: position table, grid and depth."""

    by_depth = True

    def writes(self, roles):
        return roles & {"query", "out"}

    def draw(self, key, block, context):
        h, w = context.grid
        return {
            "query": jnp.full(block.shapes["query"], context.position[h * w - 1, 0]),
            "out": block["out"] * context.num_layers**-0.25 + context.layer,
        }


def test_schemes_see_the_tables_that_the_ones_before_wrote():
    tree = {"encoder": stock(2), "pos_embed": jnp.ones((1, 13, DIM))}
    new = mimetic_jax.rewrite(KEY, tree, (SinCos(), Toy()), grid=(3, 4))
    last = new["pos_embed"][0, -1, 0]
    assert last != 1
    for layer in range(2):
        name = f"layer_{layer}"
        np.testing.assert_allclose(new["encoder"][name]["query"]["kernel"], last)
        np.testing.assert_allclose(
            new["encoder"][name]["out"]["kernel"],
            tree["encoder"][name]["out"]["kernel"] * 2**-0.25 + layer,
            rtol=1e-6,
        )


def aligned(array):
    """A copy at a multiple of 64 bytes, as PyTorch allocates, whose memory JAX can share."""
    memory = np.empty(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def test_blocks_that_are_written_in_place_read_the_table_as_it_was():
    random = np.random.default_rng(0)
    shapes = {"pos_embed": (1, 16, 64)}
    for layer in range(4):
        shapes[f"blocks.{layer}.attn.qkv.weight"] = (192, 64)
        shapes[f"blocks.{layer}.attn.proj.weight"] = (64, 64)
    weights = {
        name: aligned(random.standard_normal(shape, np.float32)) for name, shape in shapes.items()
    }
    expected = mimetic_jax.rewrite(KEY, weights, Impulse(), num_heads=4)
    rewrite_in_place(KEY, weights, Impulse(), num_heads=4)
    for name, array in expected.items():
        np.testing.assert_array_equal(weights[name], array, err_msg=name)


@pytest.mark.parametrize("rows", [16, 17])
def test_square_grids_are_found(rows):
    tree = {"pos_embed": jnp.ones((1, rows, 8)), "patch_embed": {"kernel": jnp.ones((48, 8))}}
    new = mimetic_jax.rewrite(KEY, tree, SinCos())["pos_embed"]
    assert bool((new[0, 0] == 0).all()) == (rows == 17)
    np.testing.assert_array_equal(new[0, rows - 16 :], weights.sincos_2d(4, 4, 8))


POSITIONS = jnp.ones((1, 16, 8))


@pytest.mark.parametrize(
    ("tree", "form"),
    [
        ({"patch_embed": {"kernel": (48, 8)}}, "grid"),
        ({"embedding": {"kernel": (4, 4, 3, 8)}}, "grid"),  # vit_jax
        ({"conv_proj": {"weight": (8, 3, 4, 4)}}, "grid"),  # torchvision
        ({"embedding": (50, 8)}, "line"),
        ({"Embed_0": {"embedding": (50, 8)}}, "line"),
        ({"embed_tokens": {"weight": (50, 8)}}, "line"),
        ({"mlp": {"fc1": {"kernel": (8, 32)}}}, "unknown"),
        ({"embed": {"kernel": (48, 8)}}, "unknown"),  # of patches or of anything else
        ({"embed": {"weight": (8, 48), "bias": (8,)}}, "unknown"),
        ({"embedding": (50, 8), "patch_embed": {"kernel": (48, 8)}}, "unknown"),
    ],
)
def test_the_form_of_positions_is_that_of_what_the_tree_embeds(tree, form):
    tree = jax.tree.map(jnp.ones, tree, is_leaf=lambda leaf: isinstance(leaf, tuple))
    tree["pos_embed"] = POSITIONS
    grid, line = weights.sincos_2d(4, 4, 8), weights.sincos_1d(16, 8)
    if form == "unknown":
        for call in (mimetic_jax.plan, functools.partial(mimetic_jax.rewrite, KEY)):
            with pytest.raises(
                InputError, match=r"16 positions.*grid=\(h, w\), or SinCos\(axes=1\)"
            ):
                call(tree, SinCos())
    else:
        new = mimetic_jax.rewrite(KEY, tree, SinCos())["pos_embed"][0]
        np.testing.assert_array_equal(new, grid if form == "grid" else line)
    # Naming the form is enough in every tree.
    named = mimetic_jax.rewrite(KEY, tree, SinCos(), grid=(4, 4))["pos_embed"][0]
    np.testing.assert_array_equal(named, grid)
    named = mimetic_jax.rewrite(KEY, tree, SinCos(axes=1))["pos_embed"][0]
    np.testing.assert_array_equal(named, line)


def test_the_nearest_embedding_decides():
    """PaliGemma: a tower of images with positions beside a language model without."""
    image = {"embedding": {"kernel": jnp.ones((4, 4, 3, 8))}, "pos_embed": POSITIONS}
    tree = {"img": image, "llm": {"embedder": {"input_embedding": jnp.ones((50, 8))}}}
    new = mimetic_jax.rewrite(KEY, tree, SinCos())["img"]["pos_embed"][0]
    np.testing.assert_array_equal(new, weights.sincos_2d(4, 4, 8))


def test_text_has_no_grid_for_an_impulse():
    tree = {"attn": stock(1)["layer_0"], "embedding": jnp.ones((50, DIM))}
    tree["pos_embed"] = jnp.ones((1, 16, DIM))
    with pytest.raises(InputError, match="needs one position table on a known grid"):
        mimetic_jax.plan(tree, Impulse())


def test_no_scheme_is_no_change():
    params = stock(1)
    jax.tree.map(np.testing.assert_array_equal, mimetic_jax.rewrite(KEY, params, ()), params)


def test_plan_lists_what_rewrite_writes():
    params = jax.eval_shape(lambda: stock(2))
    writes = mimetic_jax.plan(params, Mimetic(zero_bias=False))
    assert len(writes) == 2 * 4
    assert {write.path for write in writes} == {
        f"layer_{layer}/{role}/kernel"
        for layer in range(2)
        for role in ("query", "key", "value", "out")
    }
    assert "layer_#/query/kernel" in str(writes)


def test_plan_lists_what_stays_unchanged():
    """With rules for some of the layers only, the others are listed."""
    params = jax.eval_shape(lambda: stock(3))
    rules = [dataclasses.replace(rule, path=f"layer_0/{rule.path}") for rule in FLAX]
    planned = mimetic_jax.plan(params, Mimetic(), rules=rules)
    assert {f"layer_{layer}/query/kernel" for layer in (1, 2)} <= set(planned.untouched)
    assert "layer_0/query/kernel" not in planned.untouched
    assert "unchanged: " in str(planned)
    assert "2 layer_#/query/kernel" in str(planned)


def test_a_plan_keeps_the_numbers_that_layers_share():
    """Of fc1 and fc2 one is written: which one must be seen."""
    kernels = {"fc1": {"kernel": jnp.zeros((8, 32))}, "fc2": {"kernel": jnp.zeros((32, 8))}}
    shown = str(mimetic_jax.plan({"block_0": kernels, "block_1": kernels}, MeanShift()))
    assert "2       block_#/fc1/kernel  mlp_in" in shown
    assert "unchanged: 2 block_#/fc2/kernel" in shown


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        (
            {"mlp": {"kernel": jnp.ones((2, 2))}},
            "Mimetic matches nothing among the paths mlp/kernel",
        ),
        ({}, "matches nothing among the paths .none."),
        (nn.Dense(3), r"^Dense\(.* is not a tree of parameters"),
        (
            [{}, [optax.TraceState(trace={"key": {"kernel": jnp.ones((4, 2, 2))}})]],
            "1/0/trace/.* belongs to optax's TraceState: give the parameters alone",
        ),
        (
            [{"count": 1, "mu": {"key": {"kernel": jnp.ones((4, 2, 2))}}}],
            "0/mu/.* belongs to an optimizer's state: give the parameters alone",
        ),
        ({"attn": {"qkv": {"kernel": jnp.ones((4, 12))}}}, "no rule describes attn/qkv/kernel"),
        (
            {"query": {"kernel": jnp.ones((4, 4))}, "key": {"kernel": jnp.ones((4, 4))}},
            r"key/kernel has shape \(4, 4\), which doesn't fit layout 'd g k'",
        ),
        (
            {
                "a": {
                    "query": {"kernel": jnp.ones((4, 2, 2))},
                    "out": {"kernel": jnp.ones((2, 2, 4))},
                }
            },
            "a: query and key are drawn together",
        ),
    ],
)
@pytest.mark.parametrize("call", [mimetic_jax.plan, lambda p, s: mimetic_jax.rewrite(KEY, p, s)])
def test_bad_trees(tree, words, call):
    with pytest.raises(InputError, match=words) as caught:
        call(tree, Mimetic())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda state: mimetic_jax.plan(state, Mimetic()),
        lambda state: mimetic_jax.rewrite(KEY, state, Mimetic()),
        mimetic_jax.check,
    ],
)
def test_the_moments_of_a_training_state_are_no_weights(call):
    params = stock(1)
    with pytest.raises(InputError, match=r"opt_state/0/mu/.* give the parameters alone"):
        call({"opt_state": [{"mu": params, "nu": params}], "params": params})
    with pytest.raises(InputError, match=r"ema/.* belongs to ema, a copy of params: give the"):
        call({"ema": params, "params": params})
    assert call(params)


@pytest.mark.parametrize("name", ["mu", "nu", "trace", "count"])
def test_modules_may_have_the_names_of_moments(name):
    layer = stock(1)["layer_0"]
    tree = {"encoder": layer, "head": {name: layer}}
    paths = {write.path for write in mimetic_jax.plan(tree, Mimetic())}
    assert f"head/{name}/query/kernel" in paths


@pytest.mark.parametrize(
    "optimizer",
    [optax.adamw(1e-4), optax.contrib.schedule_free_adamw(1e-4)],
    ids=["adamw", "schedule_free"],
)
def test_a_state_made_from_the_new_parameters_keeps_them(optimizer):
    """As docs/your_model.md orders it: an optimizer may hold a copy of what it starts from."""
    params = mimetic_jax.rewrite(KEY, stock(1), Mimetic())
    state = optimizer.init(params)
    with pytest.raises(InputError, match=r"belongs to optax's .*: give the parameters alone"):
        mimetic_jax.rewrite(KEY, (params, state), Mimetic())
    updates, _ = optimizer.update(jax.tree.map(jnp.ones_like, params), state, params)
    after = optax.apply_updates(params, updates)
    for old, new in zip(mimetic_jax.check(params), mimetic_jax.check(after), strict=True):
        assert new.value_out == pytest.approx(old.value_out, abs=0.02)


def test_layers_that_share_a_name_with_attention_are_unchanged():
    tree = {"attn": stock(1)["layer_0"], "out": {"kernel": jnp.ones((4, 3)), "bias": jnp.ones(3)}}
    tree["head"] = {"value": {"kernel": jnp.ones((4, 1))}}
    new = mimetic_jax.rewrite(KEY, tree, Mimetic())
    np.testing.assert_array_equal(new["out"]["kernel"], 1)
    np.testing.assert_array_equal(new["head"]["value"]["kernel"], 1)
    assert products(new["attn"])[1].diagonal().mean() < -0.3


@pytest.mark.parametrize(
    ("layout", "shape"),
    [
        ("d (three h k)", (16, 48)),
        ("(three h k) d", (48, 16)),
        ("d three h k", (16, 3, 2, 8)),
        ("d (h three k)", (16, 48)),
        ("l d (three h k)", (2, 16, 48)),
    ],
)
def test_fused_kernels_hold_what_separate_ones_would(layout, shape):
    """Query, key and value in one leaf, in any order of its axes."""
    front, lead, layers = ("l ", (2,), (0, 1)) if layout.startswith("l") else ("", (), (None,))
    rules = (
        Rule("qkv/kernel", ("query", "key", "value"), layout),
        Rule("qkv/bias", ("query_bias", "key_bias", "value_bias"), f"{front}(three h k)"),
        Rule("proj/kernel", "out", f"{front}(h k) d"),
    )
    qkv = {"kernel": jnp.ones(shape), "bias": jnp.ones((*lead, 48))}
    tree = {"attn": {"qkv": qkv, "proj": {"kernel": jnp.ones((*lead, 16, 16))}}}

    def rewritten(tree):
        return mimetic_jax.rewrite(KEY, tree, Mimetic(), rules=rules, num_heads=HEADS)["attn"]

    kernels = {role: jnp.zeros((16, 2, 8)) for role in ("query", "key", "value")}
    block = Block.of(kernels | {"out": jnp.zeros((2, 8, 16))})
    for result in (rewritten(tree), jax.jit(rewritten)(tree)):
        assert not result["qkv"]["bias"].any()
        canonical = f"{layout} -> {front}three d h k"
        kernel = np.asarray(result["qkv"]["kernel"])
        fused = einops.rearrange(kernel, canonical, three=3, h=2, k=8).reshape(-1, 3, 16, 2, 8)
        outs = np.reshape(result["proj"]["kernel"], (-1, 2, 8, 16))
        for layer, (query, key, value), out in zip(layers, fused, outs, strict=True):
            found = {"query": query, "key": key, "value": value, "out": out}
            drawn = Mimetic()(block_key(KEY, "attn", layer), block, Context())
            trees = [{role: {"kernel": x} for role, x in each.items()} for each in (found, drawn)]
            assert_same_products(*trees)


@pytest.mark.parametrize("scheme", [Mimetic(), Mimetic(alpha_vo=None, beta_vo=None)])
@pytest.mark.parametrize("groups", [None, 1])
def test_fewer_heads_of_key_and_value_in_a_fused_kernel_are_not_misread(scheme, groups):
    """Four heads of query and one of key and value have 48 columns, as three times four of 4."""
    layers = {"qkv": {"kernel": jnp.ones((32, 48))}, "proj": {"kernel": jnp.ones((32, 32))}}
    rules = attention_rules(fused="qkv", out="proj", flat=True)
    with pytest.raises(InputError, match="grouped=True"):
        mimetic_jax.plan({"attn": layers}, scheme, num_heads=4, num_kv_heads=groups, rules=rules)
    with pytest.raises(InputError, match=r"'d \(\(h\+2g\) k\)' for query, key and value one after"):
        mimetic_jax.plan({"attn": layers}, scheme)


def test_blocks_are_what_schemes_see():
    """Separate, stacked and fused storage hold the same canonical arrays, layer by layer."""
    layers = [
        {role: {"kernel": leaf["kernel"] + i} for role, leaf in stock(1)["layer_0"].items()}
        for i in range(11)
    ]
    single = {f"layer_{i}": layer for i, layer in enumerate(layers)}
    stacked = {"layers": {"attn": jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers)}}
    stacked_rules = attention_rules(stacked=True)
    fused = {
        name: {
            "qkv": np.concatenate(
                [
                    np.reshape(layer[role]["kernel"], (DIM, DIM))
                    for role in ("query", "key", "value")
                ],
                axis=1,
            ),
            "proj": np.reshape(layer["out"]["kernel"], (DIM, DIM)).T,
        }
        for name, layer in single.items()
    }
    fused_rules = (
        Rule("qkv", ("query", "key", "value"), "d (three h k)"),
        Rule("proj", "out", "d (h k)"),
    )
    found = {
        "single": mimetic_jax.blocks(single),
        "stacked": mimetic_jax.blocks(stacked, rules=stacked_rules),
        "fused": mimetic_jax.blocks(fused, rules=fused_rules, num_heads=HEADS),
    }
    names = [(f"layer_{i}", None) for i in range(11)]
    assert [at[:2] for at in found["single"]] == [at[:2] for at in found["fused"]] == names
    assert [at[:2] for at in found["stacked"]] == [("layers/attn", i) for i in range(11)]
    for storage in found.values():
        for (_, _, block), layer in zip(storage, layers, strict=True):
            assert block.keys() == layer.keys()
            for role, array in block.items():
                assert array.dtype == jnp.float32
                assert block.shapes[role] == array.shape
                np.testing.assert_array_equal(array, layer[role]["kernel"])


def test_blocks_give_the_draw_of_their_keys():
    """A scheme on what `blocks` returns gives what `rewrite` writes."""
    tree = {"encoder": stock(2), "pos_embed": jnp.ones((1, 16, DIM), jnp.bfloat16)}
    new = mimetic_jax.rewrite(KEY, tree, Mimetic())
    found = {path: (layer, block) for path, layer, block in mimetic_jax.blocks(tree)}
    assert list(found) == ["", "encoder/layer_0", "encoder/layer_1"]
    assert found[""][1]["position"].shape == (16, DIM)
    layer, block = found["encoder/layer_1"]
    drawn = Mimetic()(block_key(KEY, "encoder/layer_1", layer), block, Context())
    for role in ("query", "key", "value", "out"):
        np.testing.assert_array_equal(drawn[role], new["encoder"]["layer_1"][role]["kernel"])


def test_blocks_of_groups_shapes_and_traces():
    kernels = {
        "query": {"kernel": jnp.ones((8, 4, 2))},
        "key": {"kernel": jnp.ones((8, 2, 2))},
    }
    ((path, _, block),) = mimetic_jax.blocks(jax.eval_shape(lambda: kernels))
    assert (path, block.shapes) == ("", {"query": (8, 4, 2), "key": (8, 2, 2)})
    total = jax.jit(lambda tree: sum(x.sum() for x in mimetic_jax.blocks(tree)[0][2].values()))
    assert total(kernels) == 96


@pytest.mark.parametrize(
    ("tree", "options", "words"),
    [
        ({"attn": {"qkv": {"kernel": jnp.ones((4, 12))}}}, {}, "no rule describes attn/qkv/kernel"),
        ({"query": {"kernel": jnp.ones((4, 4))}, "key": {"kernel": jnp.ones((4, 4))}}, {}, "key/k"),
        (
            {"a": {"q": jnp.ones((4, 4)), "o": jnp.ones((4, 4))}},
            {"rules": (Rule("q", "query", "d (h k)"), Rule("o", "out", "(h k) d"))},
            "a/o stores its heads flattened: give num_heads",
        ),
    ],
)
def test_blocks_never_skip_attention(tree, options, words):
    with pytest.raises(InputError, match=words):
        mimetic_jax.blocks(tree, **options)


def test_blocks_skip_layers_that_share_a_name_with_attention():
    tree = {"attn": stock(1)["layer_0"], "head": {"value": {"kernel": jnp.ones((4, 1))}}}
    assert [path for path, _, _ in mimetic_jax.blocks(tree)] == ["attn"]
    assert mimetic_jax.blocks({"head": tree["head"]}) == []


def test_only_a_part_of_a_fused_kernel():
    rules = (Rule("qkv/kernel", ("query", "key", "value"), "d (three h k)"),)
    tree = {"qkv": {"kernel": jnp.arange(16.0 * 48).reshape(16, 48)}}
    scheme = Mimetic(alpha_vo=None, beta_vo=None)
    new = mimetic_jax.rewrite(KEY, tree, scheme, rules=rules, num_heads=2)["qkv"]["kernel"]
    np.testing.assert_array_equal(new[:, 32:], tree["qkv"]["kernel"][:, 32:])
    assert (new[:, :32] != tree["qkv"]["kernel"][:, :32]).all()


def test_bad_rules():
    with pytest.raises(InputError, match="unknown role 'quary'"):
        Rule("q", "quary", "d h k")
    with pytest.raises(InputError, match="layout 'd k'"):
        Rule("q", "query", "d k")
    tree = {"a": {"q": jnp.ones((4, 2, 2)), "p": jnp.ones((4, 2, 2))}}
    with pytest.raises(InputError, match="both claim role query"):
        mimetic_jax.plan(tree, Mimetic(), rules=[Rule("q|p", "query", "d h k")])
