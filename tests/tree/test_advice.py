"""What a refusal prints works: each call, pasted and filled in, writes the right products."""

import itertools
import re

import numpy as np
import pytest

from mimetic_jax import InputError, check, plan, rewrite
from mimetic_jax.command.expressions import parse_rules
from mimetic_jax.schemes import (
    Cooccurrence,
    MeanShift,
    Mimetic,
    PositionalHeads,
    SinCos,
    Unigram,
    Whitened,
    ZeroOut,
)
from mimetic_jax.weights import cooccurrence
from tests.tree.stored import KEY, Stored
from tests.zoo.cases import ones

D, F, H = 32, 64, 4
SQUARE = (D, H, H, 8)
GROUPED = (24, 4, 2, 8)
COUNTS = cooccurrence(np.arange(500) ** 2 % 50, 50, 5)


def printed(message, right):
    """The calls of a message, with what only the model's code tells filled in."""
    calls, message = [], re.sub(r"rules=\(Rule\(path.*?;", "", message)
    if right.get("undivided"):
        message = re.sub(r"rules=\S+ if x W_Q W_Kᵀ xᵀ / √K are the logits", "", message)
    for start in (match.end() for match in re.finditer(r"(?<![\w])rules=", message)):
        depth, end = 0, start
        while end < len(message) and (depth or message[end] not in ",; "):
            depth += message[end] in "([{"
            depth -= message[end] in ")]}"
            end += 1
        text = re.sub(
            r"(\w+)=…", lambda match: f"{match[1]}={right[match[1]]!r}", message[start:end]
        )
        assert "…" not in text, text
        calls.append(parse_rules(text))
    return calls


def pasted(tree, scheme, right, **given):
    """Paste every call that the refusal of a tree prints: the first one writes all blocks, and no
    one writes a block otherwise than the scheme draws it."""
    params = tree.params()
    with pytest.raises(InputError) as refused:
        plan(params, scheme, **given)
    message = str(refused.value)
    heads = {name: right[name] for name in re.findall(r"(num_\w+)=…", message)} | given
    calls = printed(message, right)
    assert calls, message
    for number, rules in enumerate(calls):
        if number:  # where nothing else is to be written, nothing is
            try:
                plan(params, scheme, rules=rules, **heads)
            except InputError:
                continue
        new = rewrite(KEY, params, scheme, rules=rules, **heads)
        wrong, kept = tree.wrong(new, scheme)
        assert not wrong, message
        assert number or not kept, message
    return message


APART = ("Wq", "Wk", "Wv", "Wo")


# The custom of libraries decides between two orders of square kernels: those called weight are
# stored output first.
STORAGE = [
    (names, leaf, flat, transposed, sizes)
    for names, leaf in ((APART, "kernel"), (APART, "weight"), (("q", "k", "v", "o"), ""))
    for flat, transposed in itertools.product((False, True), repeat=2)
    for sizes in (SQUARE, GROUPED)
    if not (sizes == SQUARE and flat and leaf and transposed != (leaf == "weight"))
]


@pytest.mark.parametrize("stacked", [None, (3, 0), (3, 1)])
@pytest.mark.parametrize(("names", "leaf", "flat", "transposed", "sizes"), STORAGE)
def test_attention_of_names_that_no_table_has(names, leaf, flat, transposed, sizes, stacked):
    """What shapes or the custom of libraries don't tell is open, in every storage."""
    storage = {"flat": flat, "transposed": transposed, "stacked": stacked}
    tree = Stored().attention("h/0/attn", names, leaf=leaf, sizes=sizes, **storage)
    right = storage | {"stacked": bool(stacked), "axis": stacked[1] if stacked else 0}
    pasted(tree, Mimetic(), right | {"num_heads": H, "num_kv_heads": sizes[2]})


@pytest.mark.parametrize("by_head", [False, True])
@pytest.mark.parametrize("leaf", ["kernel", "weight", ""])
@pytest.mark.parametrize("names", [("Wqkv", "out_lin"), ("to_qkv", "wo"), ("in_proj", "proj")])
@pytest.mark.parametrize("width", [24, D])
def test_an_order_that_no_shape_tells_is_asked_for(width, names, leaf, by_head):
    storage = {"leaf": leaf, "by_head": by_head, "transposed": leaf == "weight"}
    tree = Stored().attention("mix", names, sizes=(width, H, H, 8), **storage)
    message = pasted(tree, Mimetic(), {"by_head": by_head, "num_heads": H})
    assert "by_head=…" in message


@pytest.mark.parametrize("transposed", [False, True])
def test_grouped_heads_in_one_kernel(transposed):
    tree = Stored().attention("mix", ("Wqkv", "wo"), sizes=GROUPED, transposed=transposed)
    pasted(tree, Mimetic(), {"grouped": True, "num_heads": H, "num_kv_heads": 2})


@pytest.mark.parametrize(
    "names",
    [
        APART,
        ("c_q", "c_k", "c_v", "c_proj"),
        ("queries", "keys", "values", "out"),
        ("Wqkv", "wo"),
        ("wq", "wk", "wv", "wo"),
    ],
)
def test_beside_attention_that_is_known(names):
    tree = Stored().attention("block_0/attention", flat=False).attention("block_1/attn", names)
    right = {"by_head": False, "num_heads": H}
    if names[0] == "wq":
        assert tree.wrong(rewrite(KEY, tree.params(), Mimetic(), num_heads=H), Mimetic()) == (
            [],
            [],
        )
    else:
        pasted(tree, Mimetic(), right)


@pytest.mark.parametrize("other", ["ca", "encoder_attention", "MultiHeadDotProductAttention_0"])
def test_two_attentions_of_a_layer(other):
    """One may be cross-attention: the calls are for both, and for each alone."""
    tree = Stored()
    for block in ("self_attn", other):
        tree.attention(f"layer_0/{block}", flat=False).attention(f"layer_1/{block}", flat=False)
    message = pasted(tree, Mimetic(), {})
    _, *alone = printed(message, {})
    for rules, kept in zip(alone, sorted(("self_attn", other)), strict=True):
        paths = {write.path.split("/")[1] for write in plan(tree.params(), Mimetic(), rules=rules)}
        assert paths == {kept}


@pytest.mark.parametrize("block", ["PreNorm", "sublayer"])
def test_attentions_in_sublayers(block):
    """With one MLP beside them they are of one layer; with one each they are layers of a stage."""
    tree, stage = Stored(), Stored()
    for at in range(2):
        tree.attention(f"layer_0/{block}_{at}/attention", flat=False)
        stage.attention(f"stage_0/{block}_{at}/attention", flat=False)
        stage.mlp(f"stage_0/{block}_{at}/mlp", "fc1", "fc2")
    tree.mlp(f"layer_0/{block}_2/mlp", "fc1", "fc2")
    pasted(tree, Mimetic(), {})
    assert len(plan(stage.params(), Mimetic())) == 8


@pytest.mark.parametrize(
    "name", ["relpos_bias/rel_embedding", "pre_self_attention_layer_norm/scale"]
)
@pytest.mark.parametrize("undivided", [False, True])
def test_what_logits_are_multiplied_by_is_asked_for(name, undivided):
    tree = Stored().attention("layers_0/attention", sizes=(24, 4, 4, 8), undivided=undivided)
    tree.add({f"layers_0/{name}": (24,)})
    pasted(tree, Mimetic(), {"undivided": undivided, "num_heads": H})


def test_what_stands_beside_known_kernels():
    """A leaf that nobody knows may change what is computed; the call is for whoever knows it."""
    tree = Stored().attention("h/0/attn", flat=False).add({"h/0/attn/temperature": (4,)})
    assert "h/0/attn/temperature" in pasted(tree, Mimetic(), {})


@pytest.mark.parametrize(
    ("first", "gate", "second"),
    [("wi", "wg", "wo"), ("linear1", "linear3", "linear2"), ("fc1", "gate", "fc2")],
)
@pytest.mark.parametrize("scheme", [MeanShift(), ZeroOut(mlp=True)])
def test_a_gate_beside_an_mlp(first, gate, second, scheme):
    """A scheme for two layers leaves a gated MLP as it is. What multiplies the hidden layer in
    another way, as gMLP's gate, only its user knows."""
    tree = Stored().attention("l/0/attention", flat=False)
    tree.mlp("l/0/mlp", first, second, gate).mlp("l/1/mlp", "fc1", "fc2")
    with pytest.raises(InputError, match=f"l/0/mlp/{gate}/kernel") as refused:
        plan(tree.params(), scheme)
    gated, plain, _ = printed(str(refused.value), {"first": first, "gate": gate})
    assert tree.wrong(rewrite(KEY, tree.params(), scheme, rules=gated), scheme) == ([], [])
    writes = plan(tree.params(), scheme, rules=plain)
    assert any("l/0/mlp" in write.path for write in writes)


@pytest.mark.parametrize(("first", "second"), [("Dense_1", "Dense_0"), ("Dense_0", "Dense_1")])
@pytest.mark.parametrize("block", ["Block_0", "Block_0/MLP_0"])
@pytest.mark.parametrize("attention", [True, False])
def test_the_layers_of_an_mlp_in_the_order_in_which_linen_made_them(
    first, second, block, attention
):
    """nn.Dense(D)(nn.gelu(nn.Dense(F)(x))) makes the last one first; the width beside it tells."""
    tree = Stored().mlp(block, first, second, width=24 if first == "Dense_1" or attention else 60)
    tree.add({"Dense_0/kernel": (24, 10)})
    if attention:
        tree.attention("Block_0/attention", flat=False)
    if first == "Dense_0" and attention:
        new = rewrite(KEY, tree.params(), MeanShift())
        assert tree.wrong(new, MeanShift()) == ([], [])
    elif attention or block != "Block_0":
        message = pasted(tree, MeanShift(), {"first": first, "second": second})
        assert ("…" in message) is not attention


@pytest.mark.parametrize(
    ("first", "second"),
    [
        *(("expand", "contract"), ("mlp/lin_a", "mlp/lin_b"), ("mlp/layers_0", "mlp/layers_2")),
        *(("fc_1", "fc_2"), ("Expert_0/Dense_0", "Expert_0/Dense_1")),
    ],
)
@pytest.mark.parametrize("place", ["Block_{}", "model"])
def test_an_mlp_of_names_that_no_table_has(first, second, place):
    tree = Stored().add({"head/kernel": (24, 10)})
    for layer in range(2 if place == "Block_{}" else 1):
        block = place.format(layer)
        module = "/".join([block, *first.split("/")[:-1]])
        tree.attention(f"{block}/attention", flat=False)
        tree.mlp(module, first.split("/")[-1], second.split("/")[-1])
    for scheme in (ZeroOut(mlp=True), MeanShift()):
        pasted(tree, scheme, {})


PATCHES = {
    "tokenizer/kernel": (4, 4, 3, D),
    "proj/weight": (D, 3, 4, 4),
    "to_patch/kernel": (48, D),
}
START = (SinCos(), Whitened(), ZeroOut(mlp=True), Mimetic())


@pytest.mark.parametrize("patch", PATCHES)
@pytest.mark.parametrize("fused", [False, True])
def test_one_call_is_all_that_a_model_of_ones_own_needs(patch, fused):
    """No name of its leaves is in a table, and the first error has the rules for all schemes."""
    names = {"lin_qkv": (D, 3 * D), "lin_o": (D, D)} if fused else dict.fromkeys(APART, (D, D))
    layer = {f"mixing/{name}/kernel": shape for name, shape in names.items()}
    layer |= {"lin_in/kernel": (D, F), "lin_out/kernel": (F, D)}
    tree = ones({f"Block_{i}/{path}": x for i in range(2) for path, x in layer.items()})
    tree |= ones({patch: PATCHES[patch], "pos_table": (1, 16, D), "Dense_0/kernel": (D, 10)})
    with pytest.raises(InputError, match=r"covariance=weights\.patch_covariance") as refused:
        plan(tree, START, num_heads=H)
    message = str(refused.value).replace('"patch", "…"', '"patch", "(u v c) d"')
    rules, *_ = printed(message, {"by_head": False})
    written = {write.path for write in plan(tree, START, rules=rules, num_heads=H)}
    assert written == {
        path for path in tree if not path.endswith(("Dense_0/kernel", "lin_in/kernel"))
    }


GATED = {"mlp/w_up": (D, F), "mlp/w_gate": (D, F), "mlp/w_down": (F, D)}
PLAIN = {f"layers/0/{path}": shape for path, shape in GATED.items()}
PLAIN |= {
    f"layers/0/attn/{x}": (D, D // 2 if x in ("wk", "wv") else D) for x in ("wq", "wk", "wv", "wo")
}
PLAIN |= {"tok_embed": (50, D), "lm_head": (D, 50)}
OTHERS = {
    "positions": ({"encoder/position_table": (1, 16, D)}, SinCos(axes=1), "position"),
    "patches": ({"stem/conv/weight": (D, 3, 8, 8)}, Whitened(), "stem"),
    "tokens": (PLAIN, Cooccurrence(), "tok"),
    "constant": (PLAIN, PositionalHeads(10_000, channel=0), "layers|tok|lm"),
    "bias": (
        {"emb/embedding": (50, D), "readout/bias": (50,), "fc/bias": (50,)},
        Unigram(),
        "readout/bias",
    ),
    "bias_of_its_own": (
        {"embed/embedding": (50, D), "output_bias": (50,), "fc/bias": (50,)},
        Unigram(),
        "output_bias",
    ),
    "gates_between_layers": (
        {"l/wi/kernel": (3, D, F), "l/wo/kernel": (3, F, D)},
        MeanShift(),
        "wi",
    ),
}


@pytest.mark.parametrize(("tree", "scheme", "kept"), OTHERS.values(), ids=OTHERS.keys())
def test_a_scheme_that_matches_nothing_names_the_likely_leaf(tree, scheme, kept):
    counts = {"counts": COUNTS} if "counts" in scheme.uses else {}
    given = {"num_heads": H, "num_kv_heads": 2, **counts}
    tree = tree | {"head/kernel": (D, 10)}
    with pytest.raises(InputError, match=kept) as refused:
        plan(ones(tree), scheme, **counts)
    rules, *_ = printed(str(refused.value), {})
    written = {write.path for write in plan(ones(tree), scheme, rules=rules, **given)}
    assert written == {path for path in tree if re.search(kept, path)}


def test_attention_of_several_widths_has_no_one_number_of_heads():
    """The stages of a Swin V2 have 3 and 6 heads, of which its weights show nothing."""
    tree = Stored()
    for stage, width in enumerate((96, 192)):
        block, sizes = f"layers/{stage}/blocks/0", (width, 3 * 2**stage, 3 * 2**stage, 32)
        tree.attention(
            block, ("attn/qkv", "attn/proj"), sizes=sizes, transposed=True, leaf="weight"
        )
    with pytest.raises(InputError, match=r"width 96 .* width 192"):
        check(tree.params(), num_heads=3)
    with pytest.raises(InputError, match=r"width 96 .* width 192, .* than 3") as refused:
        plan(tree.params(), Mimetic(), num_heads=3)
    [rules] = printed(str(refused.value), {})
    new = rewrite(KEY, tree.params(), Mimetic(), rules=rules, num_heads=3)
    assert tree.wrong(new, Mimetic()) == ([], ["layers/1/blocks/0"])


def test_a_family_that_lacks_what_is_wanted_is_not_advised():
    """GPT-2's attention beside a gated MLP: its rules have no MLP of these names."""
    shapes = {"attn/c_attn": (D, 3 * D), "attn/c_proj": (D, D)}
    shapes |= {"ffn/gate": (D, F), "ffn/up": (D, F), "ffn/down": (F, D)}
    with pytest.raises(InputError, match="MLPs with a gate stay as they are") as refused:
        plan(ones({f"h/0/{name}/kernel": shape for name, shape in shapes.items()}), MeanShift())
    assert "rules=" not in str(refused.value)


def test_a_patch_embedding_of_videos_is_no_stack_of_layers():
    with pytest.raises(InputError, match=r"pass rules=\(Rule\(path, role, layout\), …\)"):
        plan(ones({"patch_embed/kernel": (2, 4, 4, 3, D)}), Whitened())


@pytest.mark.parametrize("axes", [(), (1,)])
def test_a_position_table_with_and_without_an_axis_of_the_batch(axes):
    found = rewrite(KEY, ones({"pos_embedding": (*axes, 16, D)}), SinCos(), grid=(4, 4))
    known = rewrite(KEY, ones({"wpe/embedding": (16, D)}), SinCos(), grid=(4, 4))
    np.testing.assert_array_equal(
        np.reshape(found["pos_embedding"], (16, D)), known["wpe/embedding"]
    )


def in_and_out(width, columns, leaf, transposed):
    """Two layers of attention and MLPs under common names, stored in either order."""
    tree, storage = Stored().add({"embed/weight": (100, width)}), {"transposed": transposed}
    for layer in range(2):
        sizes = (width, H, H, columns // H)
        names = ("q_proj", "k_proj", "v_proj", "o_proj")
        tree.attention(f"h/{layer}/attn", names, leaf=leaf, sizes=sizes, **storage)
        tree.mlp(f"h/{layer}/mlp", "fc1", "fc2", leaf=leaf, width=width, **storage)
        tree.add({f"h/{layer}/norm/scale": (width,)})
    return tree


@pytest.mark.parametrize("sizes", [(48, 24), (24, 48), (48, 48)])
@pytest.mark.parametrize("leaf", ["kernel", "weight"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("query", ["q_proj", "q_lin"])
def test_other_leaves_show_the_order_of_kernels(query, transposed, leaf, sizes):
    """Whatever the custom of the name: the embedding, norms and MLPs have the width."""
    tree = in_and_out(*sizes, leaf, transposed).renamed(q_proj=query)
    if query == "q_proj" and transposed == (leaf == "weight"):
        new = rewrite(KEY, tree.params(), Mimetic(), num_heads=H)
        assert tree.wrong(new, Mimetic()) == ([], [])
    else:
        pasted(tree, Mimetic(), {"num_heads": H})


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("leaf", ["kernel", "weight"])
def test_biases_show_the_order_of_kernels(leaf, transposed):
    shapes = {f"{name}_lin/{leaf}": (48, 24)[:: -1 if transposed else 1] for name in "qkv"}
    shapes |= {f"{name}_lin/bias": (24,) for name in "qkv"}
    shapes |= {f"out_lin/{leaf}": shapes[f"q_lin/{leaf}"][::-1], "out_lin/bias": (48,)}
    with pytest.raises(InputError) as refused:
        plan(ones(shapes), Mimetic())
    rules = printed(str(refused.value), {})[0]
    written = plan(ones(shapes), Mimetic(), rules=rules, num_heads=H)
    assert len(written) == len(shapes)
    common = ones(
        {path.replace("_lin", "_proj").replace("out", "o"): x for path, x in shapes.items()}
    )
    if transposed != (leaf == "weight"):
        with pytest.raises(InputError, match="would be read as"):
            plan(common, Mimetic(), num_heads=H)
    else:
        assert len(plan(common, Mimetic(), num_heads=H)) == len(shapes)


@pytest.mark.parametrize("leaf", ["kernel", "weight"])
@pytest.mark.parametrize("sizes", [(48, 24), (48, 48)])
def test_an_mlp_is_refused_until_its_order_is_told(sizes, leaf):
    """First that of attention is asked for, whose width then shows the MLP's."""
    tree, rules = in_and_out(*sizes, leaf, transposed=leaf == "kernel"), None
    for _ in range(2):
        with pytest.raises(InputError) as refused:
            plan(tree.params(), MeanShift(), rules=rules, num_heads=H)
        message = str(refused.value).replace("*rules)", ")")
        rules = (*printed(message, {})[0], *(rules or ()))
    new = rewrite(KEY, tree.params(), MeanShift(), rules=rules, num_heads=H)
    assert tree.wrong(new, MeanShift()) == ([], [])


@pytest.mark.parametrize("leaf", ["kernel", "weight"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("other", ["mlp/fc2/bias", "norm/scale"])
def test_other_leaves_show_the_order_of_an_mlp(other, transposed, leaf):
    """Without attention, too."""
    tree = Stored().mlp("h/0/mlp", "fc1", "fc2", leaf=leaf, transposed=transposed)
    tree.add({f"h/0/{other}": (24,), "h/0/mlp/fc1/bias": (40,)})
    if transposed != (leaf == "weight"):
        pasted(tree, MeanShift(), {})
    else:
        new = rewrite(KEY, tree.params(), MeanShift())
        assert tree.wrong(new, MeanShift()) == ([], [])


@pytest.mark.parametrize("by_head", [False, True])
@pytest.mark.parametrize("heads", [3, 4])
def test_a_fused_kernel_with_axes_of_its_own(heads, by_head):
    """As `nn.DenseGeneral((3, H, K))`: the sizes tell the order, but for three heads."""
    three = (heads, 3) if by_head else (3, heads)
    random = np.random.default_rng(0)
    shapes = {"l/qkv/kernel": (24, *three, 8), "l/out/kernel": (heads, 8, 24)}
    params = {path: random.normal(size=shape) for path, shape in shapes.items()}
    with pytest.raises(InputError) as refused:
        plan(params, Mimetic())
    assert ("by_head=…" in str(refused.value)) == (heads == 3)
    rules = printed(str(refused.value), {"by_head": by_head})[0]
    new = rewrite(KEY, params, Mimetic(), rules=rules)
    query, _, value = np.moveaxis(new["l/qkv/kernel"], 2 if by_head else 1, 0)
    product = np.einsum("dhk,hke->de", value, new["l/out/kernel"])
    assert np.trace(product) / np.linalg.norm(product) / 24**0.5 < -0.5
    assert query.shape == (24, heads, 8)
