"""Which leaf is attention: what looks like it is written or refused, other layers stay."""

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


def fused(query_key_value, out):
    """A layer in which query, key and value share a leaf."""
    return {f"{query_key_value}.weight": (3 * D, D), f"{out}.weight": (D, D)}


TIMM = fused("attn.qkv", "attn.proj")
CHANNELS = TIMM | {"attn.proj.bias": (D,)}
TORCH = {"in_proj_weight": (3 * D, D), "out_proj.weight": (D, D)}
LLAMA = {f"self_attn.{name}_proj.weight": (D, D) for name in "qkvo"}
MARKS = {
    "XCiT": (CHANNELS, {"attn.temperature": (H, 1, 1)}),
    "EdgeNeXt": (
        fused("xca.qkv", "xca.proj") | {"xca.proj.bias": (D,)},
        {"xca.temperature": (H, 1, 1)},
    ),
    "Kimi Linear": (LLAMA, {"self_attn.conv1d.weight": (3 * D, 1, 4)}),
    "gated delta net": (LLAMA, {"self_attn.A_log": (H,), "self_attn.b_proj.weight": (H, D)}),
    "gated linear attention": (LLAMA, {"self_attn.gk_proj.0.weight": (16, D)}),
    "MiniMax": (
        fused("self_attn.qkv_proj", "self_attn.out_proj"),
        {"self_attn.output_gate.weight": (D, D)},
    ),
    "SigLIP's pooling": (
        {f"head.attention.{n}": x for n, x in (TORCH | {"in_proj_bias": (3 * D,)}).items()},
        {"head.probe": (1, 1, D)},
    ),
    "CaiT's class attention": (
        {f"blocks_token_only.0.attn.{name}.weight": (D, D) for name in ("q", "k", "v", "proj")},
        {},
    ),
    "timm's pooling": (
        {"attn_pool.q.weight": (D, D), "attn_pool.kv.weight": (2 * D, D)},
        {"attn_pool.latent": (1, 1, D)},
    ),
}


@pytest.mark.parametrize(("kernels", "mark"), MARKS.values(), ids=MARKS.keys())
def test_what_a_leaf_beside_it_marks_as_other_attention_stays(kernels, mark):
    described = {f"layers.1.{name}": shape for name, shape in (LLAMA | CHANNELS).items()}
    marked = {f"layers.0.{name}": shape for name, shape in (kernels | mark).items()}
    assert written(ones(described | marked), num_heads=H) == described.keys()
    if mark and len(kernels) > 2:
        with pytest.raises(InputError, match="is left out by its name or by what is beside it"):
            plan(ones(marked), Mimetic(), num_heads=H)


BY_HEAD = r"(\(h three k\) d|by_head=True)"
UNDIVIDED = "if its logits are divided by √K, or .*undivided=True"
SHARED = {
    "TinyViT": ("stages.1.blocks.0.", TIMM | {"attn.norm.weight": (D,)}, BY_HEAD),
    "TinyViT in MobileSAM": ("layers.1.blocks.0.", TIMM | {"attn.norm.weight": (D,)}, BY_HEAD),
    "MaxViT": ("stages.0.blocks.0.attn_block.", TIMM, BY_HEAD),
    "CoAtNet": ("stages.2.blocks.0.", TIMM, BY_HEAD),
    "DaViT": ("stages.0.blocks.0.1.", TIMM | {"cpe1.proj.weight": (D, 1, 3, 3)}, BY_HEAD),
    "SpeechBrain": ("encoder.layers.0.mha_layer.", TORCH | {"linear_pos.weight": (D, D)}, BY_HEAD),
    "SwissArmyTransformer": (
        "transformer.layers.0.attention.",
        fused("query_key_value", "dense"),
        BY_HEAD,
    ),
    "gated attention": ("layers.0.", LLAMA | {"self_attn.g_proj.weight": (D, D)}, UNDIVIDED),
    "GPTBigCode, or nanoGPT with biases": (
        "transformer.h.0.attn.",
        fused("c_attn", "c_proj") | {"c_attn.bias": (3 * D,)},
        BY_HEAD,
    ),
    **{
        f"flaxformer by {mark}": (
            "encoder/layers_0/",
            {f"attention/{name}/kernel": shape for name, shape in STOCK.items()} | {mark: (H, 32)},
            UNDIVIDED,
        )
        for mark in ("relpos_bias/rel_embedding", "pre_mlp_layer_norm/scale")
    },
    "a scale of logits": ("layers.0.", LLAMA | {"self_attn.scale": (1,)}, "undivided=True"),
}


@pytest.mark.parametrize(("block", "leaves", "other"), SHARED.values(), ids=SHARED.keys())
def test_names_that_libraries_share_are_asked_for_with_both_calls(block, leaves, other):
    tree = ones({f"{block}{name}": shape for name, shape in leaves.items()})
    for act in (plan, lambda tree, scheme, **options: check(tree, **options)):
        with pytest.raises(InputError, match=rf"give rules=.*{other}"):
            act(tree, Mimetic(), num_heads=H)


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
    with pytest.raises(InputError, match="is left out by its name or by what is beside it"):
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


def test_layers_that_flax_numbers_in_one_module_are_layers():
    tree = stock("Encoder_0/MultiHeadDotProductAttention_0") | stock(
        "Encoder_0/MultiHeadDotProductAttention_1"
    )
    assert written(tree) == tree.keys()


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
    with pytest.raises(InputError, match="left out by its name"):
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
    "scale", ["weight_scale", "weight_scale_inv", "weight.absmax", "SCB", "scales", "input_scale"]
)
def test_kernels_with_scales_beside_them_are_refused(scale):
    tree = LLAMA | {"self_attn.logit_scale": (H,)}
    assert plan(ones(tree), Mimetic(), num_heads=H)
    for name in ("q_proj", "o_proj"):
        scaled = ones(tree | {f"self_attn.{name}.{scale}": (D,)})
        with pytest.raises(InputError, match=f"scaled by self_attn.{name}.{scale}, which"):
            plan(scaled, Mimetic(), num_heads=H)
