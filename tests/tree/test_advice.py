"""What an error advises works: the rules that it names write the leaves that they should."""

import re

import jax
import numpy as np
import pytest

from mimetic_jax import InputError, attention_rules, check, plan, rewrite
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
from mimetic_jax.weights import cooccurrence, natural_covariance
from tests.zoo.cases import ones

KEY = jax.random.key(0)
D, F, H, K = 32, 64, 4, 8
HEADS = {"query": (D, H, K), "key": (D, H, K), "value": (D, H, K), "out": (H, K, D)}
SECOND = {name: (shape[0], 6, *shape[1:]) for name, shape in HEADS.items()}
COUNTS = cooccurrence(np.arange(500) ** 2 % 50, 50, 5)
FLAX = "MultiHeadDotProductAttention"


def layer(block, shapes=HEADS, leaf="kernel"):
    """The shapes of the layers of a block; those of four names are square."""
    if isinstance(shapes, str):
        shapes = dict.fromkeys(shapes.split(), (D, D))
    return {f"{block}/{name}/{leaf}": shape for name, shape in shapes.items()}


STOCK = layer("block_0/attention")
GROUPED = {"wq": (D, D), "wk": (D, D // 2), "wv": (D, D // 2), "wo": (D, D)}
GATED = {"w_up": (D, F), "w_gate": (D, F), "w_down": (F, D)}


def plain(stack=(), axis=0, attention=GROUPED):
    """A decoder whose layers are their kernels, in layers apart or stacked along an axis."""
    layer = "layers" if stack else "layers/0"
    shapes = {f"attn/{name}": shape for name, shape in attention.items()}
    shapes |= {f"mlp/{name}": shape for name, shape in GATED.items()}
    return {"tok_embed": (50, D), "lm_head": (D, 50)} | {
        f"{layer}/{name}": (*shape[:axis], *stack, *shape[axis:]) for name, shape in shapes.items()
    }


BESIDE = "give rules=(.*), num_heads=…; if it is no"
WITHOUT = "leave it out with rules=(.*)$"
CALL = r"rules=(attention_rules\(.*?\)), num_heads"
SECOND_AXIS = r"layers are stacked along axis 1, .*give rules=(attention_rules\(.*?\))"
IN_ORDER = "give rules=(.*), num_heads=…, if the model"
ADVISED = {
    # The tree, the error with its rules, and what the written paths have in common.
    "apart": (layer("mixing", "to_q to_k to_v to_o"), CALL, ""),
    "transposed": (layer("mixing", "to_q to_k to_v to_out", "weight"), CALL, ""),
    "stacked": (layer("l", dict.fromkeys(HEADS, (3, D, D))), CALL, ""),
    "second_axis": (layer("l", SECOND), SECOND_AXIS, ""),
    # T5X stores heads flattened, and scans along axis 1.
    "t5": (
        layer("encoder/layers/attention", dict.fromkeys(HEADS, (D, 3, D)))
        | {"encoder/relpos_bias/rel_embedding": (H, 32)},
        SECOND_AXIS.replace(".*?", ".*undivided=True"),
        "attention/",
    ),
    "no_attention": (STOCK | {"mamba/in_proj/kernel": (D, F)}, WITHOUT, "attention"),
    "llama_4s_vision": (
        layer("decoder/layers/layers_0/self_attention", SECOND)
        | {"decoder/layers/layers_0/Llama4MoEBlock_0/MoeBlock_0/gate/kernel": (D, 6, 4)}
        | {"decoder/layers/layers_0/Llama4MoEBlock_0/MoeBlock_0/wi_0": (4, 6, D, F)}
        | layer("vision_encoder/layers_0/self_attention_vision"),
        "no rule describes vision_encoder.* give rules=(.*); if it is no",
        "self_attention",
    ),
    "gates_beside_queries": (  # Qwen3-Next
        layer("layers.0.self_attn", "q_proj k_proj v_proj o_proj", "weight")
        | layer("layers.0.gated.self_attn", {"q_proj": (2 * D, D)}, "weight")
        | layer("layers.0.gated.self_attn", "k_proj v_proj o_proj", "weight"),
        r"64 columns, twice the 32 .* leave this attention out with rules=(.*)$",
        "0.self_attn",
    ),
    **{
        f"two_attentions_{number}": (
            {
                path: shape
                for i in range(4)
                for path, shape in layer(f"layer_{i // 2}/{FLAX}_{i % 2}").items()
            },
            f"don't tell self-attention from cross-attention: {words}",
            kept,
        )
        for number, words, kept in (
            (1, r"give rules=(\S+) if all", ""),
            (2, r".* leave one out with rules=(.*)$", f"{FLAX}_0"),
        )
    },
    **{
        f"beside_stock_{names.split()[0]}": (
            STOCK | layer("block_0/attn", names),
            f"no rule describes block_0/attn/{names.split()[1]}/kernel .*{BESIDE}",
            "",
        )
        for names in (
            "Wq Wk Wv Wo",
            "to_q to_k to_v to_out",
            "linear_q linear_k linear_v linear_out",
            "query_proj key_proj value_proj output_proj",
            "c_q c_k c_v c_proj",
            "wq wk wv wo",
            "q k v o",
            "queries keys values out",
        )
    },
    "beside_stock_left_out": (STOCK | layer("block_0/attn", "wq wk wv wo"), WITHOUT, "attention"),
    **{
        f"plain_{kind}": (tree, r"give (?:rules=)(.*?), num_heads=…", "attn/")
        for kind, tree in {
            "apart": plain(),
            "stacked": plain((3,)),
            "second_axis": plain((3,), 1),
            "fused": {"l/attn/wqkv": (D, 3 * D), "l/attn/wo": (D, D)},
            "square": plain(attention=dict.fromkeys(GROUPED, (D, D))),
        }.items()
    },
    **{
        f"fused_{name}": (
            STOCK
            | layer("block_0/attn", {name: (D, 3 * D), "wo": (D, D)})
            | {f"block_0/attn/{name}/bias": (3 * D,)},
            f"no rule describes block_0/attn/{name}.*{IN_ORDER}",
            "",
        )
        for name in ("Wqkv", "wqkv", "linear_qkv", "to_qkv", "qkv_proj")
    },
}
MLPS = {"d/Dense_0/kernel": (D, F), "d/Dense_1/kernel": (F, D)}
OTHERS = {
    "table": ({"wpe/weight": (16, D)}, SinCos(axes=1), "wpe"),
    "table_1nd": ({"encoder/position_table": (1, 16, D)}, SinCos(axes=1), "position"),
    "out_first": ({"ffn/fc1/weight": (F, D), "ffn/fc2/weight": (D, F)}, MeanShift(), "fc1"),
    "dense": (MLPS, MeanShift(), "Dense_0"),
    "patches": ({"stem/conv/weight": (D, 3, 8, 8)}, Whitened(), "stem"),
    "tokens": ({"tok/weight": (50, D)}, Cooccurrence(), "tok"),
    "tokens_of_a_plain_tree": (plain(), Cooccurrence(), "tok"),
    "bias_of_the_output": (
        {"emb/embedding": (50, D), "lm_head/bias": (50,), "fc/bias": (50,)},
        Unigram(),
        "lm_head/bias",
    ),
    "wi": ({"l/wi/kernel": (3, D, F), "l/wo/kernel": (3, F, D)}, MeanShift(), "wi"),
}


def assert_advised(tree, scheme, words, kept, num_kv_heads=None):
    with pytest.raises(InputError, match=words) as refused:
        plan(ones(tree), scheme, num_heads=H)
    rules = parse_rules(re.search(words, str(refused.value))[1])
    given = {"num_heads": H, "num_kv_heads": num_kv_heads, "counts": COUNTS}
    written = {write.path for write in plan(ones(tree), scheme, rules=rules, **given)}
    assert written == {path for path in tree if re.search(kept, path)}


@pytest.mark.parametrize("name", ADVISED)
def test_attention_that_no_rule_describes(name):
    tree, words, kept = ADVISED[name]
    grouped = any(shape[-1] == D // 2 for shape in tree.values())
    assert_advised(tree, Mimetic(), words, kept, H // 2 if grouped else None)


@pytest.mark.parametrize("tree", [plain(), plain((3,)), plain((3,), 1)])
def test_one_call_is_all_that_a_scheme_needs_of_a_plain_tree(tree):
    words = r"give rules=(.*?), num_heads=…"
    assert_advised(tree, PositionalHeads(10_000, channel=0), words, "", num_kv_heads=H // 2)


def test_the_embedding_that_has_no_rule_is_named():
    rules = attention_rules(query="wq", key="wk", value="wv", out="wo", kernel="", flat=True)
    alone = {path: shape for path, shape in plain().items() if "mlp" not in path}
    heads = {"num_heads": H, "num_kv_heads": H // 2}
    with pytest.raises(InputError, match=r'Add embedding_rules\("tok_embed", "lm_head"\) in front'):
        plan(ones(alone), PositionalHeads(10_000, channel=0), rules=rules, **heads)


@pytest.mark.parametrize(("tree", "scheme", "kept"), OTHERS.values(), ids=OTHERS.keys())
def test_a_scheme_that_matches_nothing_names_the_likely_leaf(tree, scheme, kept):
    words = "(?:matches nothing among|doesn't fit layout) .* give rules=(.*)$"
    assert_advised(tree | {"head/kernel": (D, 10)}, scheme, words, kept)


@pytest.mark.parametrize(
    ("scheme", "words", "kept"),
    [
        (
            MeanShift(),
            "MeanShift leaves such MLPs as they are; if it is none, leave .* rules=(.*)$",
            "fc1",
        ),
        (ZeroOut(mlp=True), "l/gate is the gate of an MLP: give rules=(.*); if it is none", "fc2"),
        (ZeroOut(mlp=True), "if it is none, leave it out with rules=(.*)$", "fc2"),
    ],
)
def test_a_gate_beside_an_mlp_is_named(scheme, words, kept):
    """A gate between tokens, as gMLP's, makes no gated MLP, and only its user knows."""
    tree = {"l/fc1/kernel": (D, F), "l/fc2/kernel": (F, D), "l/gate/kernel": (D, F)}
    assert_advised(tree | {"l/gate/bias": (F,)}, scheme, words, kept)


def test_a_gated_mlp_that_its_table_describes_is_named():
    tree = layer("block_0/mlp", {"fc1": (D, F), "up": (D, F), "fc2": (F, D)})
    words = "mlp/up is the gate of an MLP, and MeanShift leaves such MLPs as they are$"
    with pytest.raises(InputError, match=words):
        plan(ones(tree), MeanShift())


def test_a_classifier_with_the_names_of_an_mlp_is_not_taken_for_one():
    """An MLP's output is as wide as its input, and a classifier's isn't."""
    tree = {"fc1/kernel": (128, D), "fc2/kernel": (D, 10)}
    tree |= {"block_0/fc1/kernel": (D, F), "block_0/fc2/kernel": (F, D)}
    words = "no MLP whose output is as wide as .* rules=(.*)$"
    assert_advised(tree, MeanShift(), words, "block_0/fc1")


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("option", "layout"), [("", "(three h k) d"), (", by_head=True", "(h three k) d")]
)
def test_an_order_that_no_shape_tells_is_asked_for(bias, option, layout):
    """Query, key and value one after another, or head by head: both have the same columns."""
    tree = layer("mixing", {"Wqkv": (3 * D, D), "out_lin": (D, D)}, "weight")
    tree |= {"mixing/Wqkv/bias": (3 * D,), "mixing/out_lin/bias": (D,)} if bias else {}
    with pytest.raises(InputError, match=r"with by_head=True in the call") as refused:
        plan(ones(tree), Mimetic())
    call = re.search(IN_ORDER, str(refused.value))[1]
    rules = parse_rules(call.replace(")", f"{option})"))
    planned = plan(ones(tree), Mimetic(), rules=rules, num_heads=H)
    assert {write.path for write in planned} == tree.keys()
    assert layout in {write.layout for write in planned}


@pytest.mark.slow
def test_layers_that_are_stacked_twice_are_drawn_as_the_error_says():
    """MaxText's Gemma 4: local layers are stacked twice along axis 1, global ones once."""
    group = "params/decoder/layers"
    once = {name: (shape[0], 3, *shape[1:]) for name, shape in HEADS.items()}
    twice = {name: (shape[0], 3, 5, *shape[1:]) for name, shape in HEADS.items()}
    only = layer(f"{group}/global_layer/self_attention", once)
    norm = {f"{group}/global_layer/self_attention/query_norm/scale": (K, 3)}
    assert {write.path for write in plan(ones(only | norm), Mimetic())} == only.keys()
    local = layer(f"{group}/local_layers/self_attention", twice)
    vmapped(ones(only | norm | local), ones(layer("", twice)), (1, 2), (3, 5))
    stack = ones(layer("", {name: (2, 3, *shape) for name, shape in HEADS.items()}))
    vmapped(stack, stack, (0, 1), (2, 3))


def called(tree, params, scheme):
    """Draw with the call that the error of a tree gives."""
    with pytest.raises(InputError, match=r"jax\.vmap\(.*split\(key, \d\)") as refused:
        plan(tree, scheme)
    call = re.search(r"jax\.vmap\(.*\)$", str(refused.value))[0]
    scope = {"jax": jax, "rewrite": rewrite, "attention_rules": attention_rules, "key": KEY}
    return eval(call, scope | {"scheme": scheme, "params": params})


def test_patch_embeddings_of_several_models_are_drawn_as_the_error_says():
    """One is a dense layer of flattened patches or a convolution, as its number of axes says."""
    stacked = ones({"patch_embed/kernel": (2, 4, 4, 3, D)})
    kernels = called(stacked, stacked, Whitened(share=1))["patch_embed/kernel"]
    for kernel in (kernels[0], kernels[1].reshape(48, D)):
        drawn = rewrite(KEY, {"patch_embed/kernel": kernel}, Whitened(share=1))
        for patch in (kernel, drawn["patch_embed/kernel"]):
            flat = np.asarray(patch, np.float64).reshape(48, D)
            outputs = flat.T @ natural_covariance(4) @ flat
            assert np.ptp(np.linalg.eigvalsh(outputs)) < 1e-3 * np.trace(outputs) / D


def vmapped(tree, params, axes, sizes):
    new = called(tree, params, Mimetic())
    count = sizes[0] * sizes[1]
    flat = {
        path: np.moveaxis(leaf, axes, (0, 1)).reshape(count, *np.delete(leaf.shape, axes))
        for path, leaf in new.items()
    }
    assert [one.value_out < -0.3 for one in check(flat)] == count * [True]


def test_attention_of_several_widths_has_no_one_number_of_heads():
    """The stages of a Swin V2 have 3, 6 and 12 heads, of which its weights show nothing."""
    shapes = {}
    for stage, width in enumerate((96, 192)):
        block = f"layers.{stage}.blocks.0.attn"
        shapes |= {
            f"{block}.qkv.weight": (3 * width, width),
            f"{block}.proj.weight": (width, width),
        }
    tree = ones(shapes)
    shown = r"width 96 .* width 192, .* than 3: leave one of them out with rules=(.*), or give"
    with pytest.raises(InputError, match=shown) as refused:
        plan(tree, Mimetic(), num_heads=3)
    with pytest.raises(InputError, match=shown):
        check(tree, num_heads=3)
    rules = parse_rules(re.search(shown, str(refused.value))[1])
    written = {write.path for write in plan(tree, Mimetic(), rules=rules, num_heads=3)}
    assert written == {path for path in tree if path.startswith("layers.0")}
