"""Which leaf is attention: what looks like it is written or refused, other layers stay."""

import re

import jax
import pytest

from mimetic_jax import InputError, check, mlp_rules, plan, rewrite
from mimetic_jax.schemes import MeanShift, Mimetic
from tests.zoo.cases import ones

KEY = jax.random.key(0)
D, F, H, K = 32, 64, 4, 8
STOCK = {"query": (D, H, K), "key": (D, H, K), "value": (D, H, K), "out": (H, K, D)}


def stock(block, shapes=STOCK):
    return ones({f"{block}/{name}/kernel": shape for name, shape in shapes.items()})


def written(tree, scheme=None, **options):
    return {write.path for write in plan(tree, scheme or Mimetic(), **options)}


@pytest.mark.parametrize(
    "beside",
    [
        {"critic/value/kernel": (D, 1)},
        {"vq/k/kernel": (D, D), "vq/v/kernel": (D, D)},
        {"memory/query": (D,), "memory/key": (D,)},
        {"attention/q_norm/scale": (K,), "attention/k_norm/scale": (K,)},
        {"norm/scale": (D,), "out/kernel": (D, D), "proj/kernel": (D, D)},
    ],
)
def test_names_that_are_common_elsewhere_are_no_attention(beside):
    assert written(stock("attention") | ones(beside)) == stock("attention").keys()


def square(names, leaf="weight", at=""):
    return {f"{at}{name}.{leaf}": (D, D) for name in names.split()}


def fused(query_key_value, out):
    """A layer in which query, key and value share a leaf."""
    return {f"{query_key_value}.weight": (3 * D, D), f"{out}.weight": (D, D)}


TIMM = fused("attn.qkv", "attn.proj")
TORCH = {"in_proj_weight": (3 * D, D), "out_proj.weight": (D, D)}
LLAMA = square("q_proj k_proj v_proj o_proj", at="self_attn.")
FLAX = {f"attention/{name}/kernel": shape for name, shape in STOCK.items()}
EINSUMS = {"q_einsum": (H, D, K), "k_einsum": (1, D, K), "attn_vec_einsum": (H, K, D)}
MIXED = ("q_einsum", "attn_vec_einsum", "q_einsum_1", "attn_vec_einsum_1")
GATED = {"mlp/wi_0/kernel": (D, F), "mlp/wi_1/kernel": (D, F), "mlp/wo/kernel": (F, D)}

REFUSED = {
    # A layer, its leaves, and one of those that the error must name.
    "XCiT": ("blocks.0.", TIMM | {"attn.temperature": (H, 1, 1)}, "attn.temperature"),
    "EdgeNeXt": ("stages.1.blocks.0.", fused("xca.qkv", "xca.proj"), "xca.qkv"),
    "Kimi Linear": ("layers.0.", LLAMA | {"self_attn.conv1d.weight": (3 * D, 1, 4)}, "conv1d"),
    "gated delta net": ("layers.0.", LLAMA | {"self_attn.A_log": (H,)}, "A_log"),
    "gated linear attention": (
        *("layers.0.", LLAMA | {"self_attn.gk_proj.0.weight": (16, D)}),
        "gk_proj",
    ),
    "gated attention": ("layers.0.", LLAMA | square("g_proj", at="self_attn."), "g_proj"),
    "TimesFM": ("layers.0.", LLAMA | {"self_attn.scaling": (K,)}, "self_attn.scaling"),
    "a scale of logits": ("layers.0.", LLAMA | {"self_attn.scale": (1,)}, "self_attn.scale"),
    "MiniMax": ("layers.0.", fused("self_attn.qkv_proj", "self_attn.out_proj"), "qkv_proj"),
    "CaiT": ("blocks_token_only.0.attn.", square("q k v proj"), "attn.q.weight"),
    "Swin V2": ("blocks.0.", TIMM | {"attn.logit_scale": (H, 1, 1)}, "attn.logit_scale"),
    "MaxViT": ("stages.0.blocks.0.attn_block.", TIMM, "attn_block.attn.qkv"),
    "TinyViT": ("layers.1.blocks.0.", TIMM | {"attn.attention_biases": (H, 49)}, "_biases"),
    "DaViT": ("stages.0.blocks.0.1.", TIMM | {"cpe1.proj.weight": (D, 1, 3, 3)}, "cpe1"),
    "SpeechBrain": ("layers.0.mha.", TORCH | square("linear_pos"), "linear_pos"),
    "SwissArmyTransformer": ("layers.0.attention.", fused("query_key_value", "dense"), "query_key"),
    "GPTBigCode": (
        *("transformer.h.0.attn.", fused("c_attn", "c_proj") | {"c_attn.bias": (3 * D,)}),
        "c_attn.weight",
    ),
    "GPT-1": (
        "h.0.",
        {"attn.c_attn.weight": (D, 3 * D), "attn.c_proj.weight": (D, D)}
        | {"tokens_embed.weight": (9, D)},
        "c_attn.weight",
    ),
    "ModernBERT": ("layers.0.attn.", fused("Wqkv", "Wo"), "Wqkv"),
    "GPT-Neo and EXAONE": (
        *("h.0.attn.attention.", square("q_proj k_proj v_proj out_proj")),
        "attention.q_proj",
    ),
    "DistilBERT": ("layer.0.attention.", square("q_lin k_lin v_lin out_lin"), "q_lin"),
    "ConViT": (
        *("blocks.0.attn.", {"qk.weight": (2 * D, D), "v.weight": (D, D), "proj.weight": (D, D)}),
        "attn.qk.weight",
    ),
    "LLaDA": ("blocks.0.", square("q_proj k_proj v_proj attn_out"), "blocks.0"),
    "V-JEPA 2": ("layer.0.attention.", square("query key value proj"), "layer.0.attention"),
    "T5X": (
        *("decoder/layers_0/", FLAX | GATED | {"pre_attention_layer_norm/scale": (D,)}),
        "pre_attention_layer_norm",
    ),
    "flaxformer": ("encoder/", FLAX | {"relpos_bias/rel_embedding": (H, 32)}, "relpos_bias"),
    "openpi": (
        "llm/layers/attn/",
        {f"{name}/w": (3, *EINSUMS[name.removesuffix("_1")]) for name in MIXED},
        "q_einsum_1",
    ),
    "Gemma 4": ("layer_0/attn/", {f"{name}/w": x for name, x in EINSUMS.items()}, "k_einsum"),
    "MaxText's Gemma 2": (
        "decoder/layers_0/",
        {
            f"self_attention_{kind}/{name}/kernel": shape
            for kind in ("local", "global")
            for name, shape in STOCK.items()
        },
        "self_attention_local",
    ),
    "penzai": ("block_0/attention/", {f"{n}.w/data_array": x for n, x in STOCK.items()}, "query.w"),
}


@pytest.mark.parametrize("layer", REFUSED.values(), ids=REFUSED.keys())
def test_families_without_a_row_are_refused_by_name(layer):
    at, leaves, named = layer
    tree = ones({f"{at}{name}": shape for name, shape in leaves.items()})
    with pytest.raises(InputError, match=re.escape(named)):
        plan(tree, Mimetic(), num_heads=H)
    with pytest.raises(InputError):
        check(tree, num_heads=H)


POOLS = {
    "SigLIP": (TORCH | {"in_proj_bias": (3 * D,)}, "head.attention.", {"head.probe": (1, 1, D)}),
    "timm": ({"q.weight": (D, D), "kv.weight": (2 * D, D)}, "attn_pool.", {}),
}


@pytest.mark.parametrize(("leaves", "at", "mark"), POOLS.values(), ids=POOLS.keys())
def test_pooling_beside_attention_stays(leaves, at, mark):
    described = {f"layers.1.{name}": shape for name, shape in LLAMA.items()}
    pool = {f"{at}{name}": shape for name, shape in leaves.items()} | mark
    assert written(ones(described | pool), num_heads=H) == described.keys()


@pytest.mark.parametrize("head", ["map_head", "MAPHead_0", "pool", "heads_action/readout"])
def test_attention_pooling_has_any_name(head):
    """octo's action heads have a map_head beside the transformer's encoder blocks."""
    name = "MultiHeadDotProductAttention_0"
    tree = stock(f"Transformer/encoderblock_0/{name}")
    pool = stock(f"{head}/{name}") | ones({f"{head}/probe": (1, 1, D)})
    mlp = {f"{head}/MlpBlock_0/Dense_0/kernel": (D, F), f"{head}/MlpBlock_0/Dense_1/kernel": (F, D)}
    pool |= ones(mlp) | ones(
        {k.replace(head, "Transformer/encoderblock_0"): v for k, v in mlp.items()}
    )
    assert written(tree | pool) == tree.keys()
    both = written(tree | pool, (Mimetic(), MeanShift()))
    assert {path for path in both if path.startswith(head)} == set()


@pytest.mark.parametrize("module", ["pool", "pool/attention"])
def test_stock_attention_from_a_probe_is_pooling(module):
    pool = stock(module) | ones({"pool/probe": (1, 1, D)})
    assert written(stock("block_0/attention") | pool) == stock("block_0/attention").keys()
    with pytest.raises(InputError, match="matches nothing among"):
        plan(pool, Mimetic())


@pytest.mark.parametrize("block", ["blocks", "block_0", "layers_0/inner"])
def test_attn1_and_attn2_are_asked_for(block):
    stack = (3,) if block == "blocks" else ()
    shapes = {name: (*stack, *shape) for name, shape in STOCK.items()}
    tree = stock(f"{block}/attn1", shapes) | stock(f"{block}/attn2", shapes)
    if "inner" in block:
        tree |= {path.replace("_0/", "_1/"): leaf for path, leaf in tree.items()}
    with pytest.raises(InputError, match=r"attn1 and .*attn2 are in one layer"):
        plan(tree, Mimetic())


def test_an_mlp_can_be_left_out():
    parts, mlp = ("encoder", "crossattn", "other"), {"fc1": (D, F), "fc2": (F, D)}
    tree = ones({f"{part}/{name}/kernel": mlp[name] for part in parts for name in mlp})
    for rules, left_out in ((mlp_rules(exclude="^other/"), "other"), (mlp_rules(), "crossattn")):
        expected = {f"{part}/fc1/kernel" for part in parts if part != left_out}
        assert written(tree, MeanShift(), rules=rules) == expected


@pytest.mark.parametrize("part", ["visual", "audio_tower", "resampler", "vision_tower", "qformer"])
def test_a_part_beside_text_stays(part):
    """It has a number of heads of its own, or is attention between two models."""
    layer = {f"resblocks.0.attn.{name}": shape for name, shape in TORCH.items()}
    other = {f"{part}.{name}": shape for name, shape in layer.items()}
    assert written(ones(layer | other), num_heads=H) == layer.keys()
    with pytest.raises(InputError, match="matches nothing among"):
        plan(ones(other), Mimetic(), num_heads=H)


@pytest.mark.parametrize("prefix", ["", "0.", "mha.", "layer."])
def test_attention_of_torch_has_any_name(prefix):
    shapes = TORCH | {"in_proj_bias": (3 * D,), "out_proj.bias": (D,)}
    layer = {prefix + name: shape for name, shape in shapes.items()}
    tree = ones(layer | {"mixer.out_proj.weight": (D, D)})
    assert written(tree, num_heads=H) == layer.keys()
    new = rewrite(KEY, tree, Mimetic(), num_heads=H)
    assert check(new, num_heads=H)[0].value_out < -0.3


@pytest.mark.parametrize(
    "scale",
    [
        *("weight_scale", "weight_scale_inv", "weight.absmax", "SCB", "scales", "input_scale"),
        *("magnitude", "lora_magnitude_vector.default.weight", "SU", "q_scale"),
    ],
)
def test_kernels_with_scales_beside_them_are_refused(scale):
    assert plan(ones(LLAMA), Mimetic(), num_heads=H)
    for name in ("q_proj", "o_proj"):
        scaled = ones(LLAMA | {f"self_attn.{name}.{scale}": (D,)})
        with pytest.raises(InputError, match=re.escape(f"self_attn.{name}.{scale}")):
            plan(scaled, Mimetic(), num_heads=H)


@pytest.mark.parametrize("leaves", [LLAMA, TORCH], ids=["apart", "fused"])
def test_empty_parameters_are_to_be_gathered(leaves):
    """DeepSpeed's ZeRO-3 leaves shapes (0,)."""
    tree = ones(dict.fromkeys(leaves, (0,)))
    with pytest.raises(InputError, match=r"has shape \(0,\), which is empty: gather it"):
        plan(tree, Mimetic(), num_heads=H)
