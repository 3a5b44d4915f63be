"""Which leaf is attention: what looks like it is written or refused, other layers stay."""

import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mimetic_jax
from mimetic_jax import InputError, attention_rules, mlp_rules, plan, rewrite, zoo
from mimetic_jax.command.expressions import parse_rules
from mimetic_jax.schemes import MeanShift, Mimetic, SinCos

KEY = jax.random.key(0)
D, F, H, K = 32, 64, 4, 8
STOCK = {"query": (D, H, K), "key": (D, H, K), "value": (D, H, K), "out": (H, K, D)}


def ones(shapes):
    return {path: np.ones(shape, np.float32) for path, shape in shapes.items()}


def stock(block, shapes=STOCK):
    return ones({f"{block}/{name}/kernel": shape for name, shape in shapes.items()})


def written(tree, scheme=None, **options):
    return {write.path for write in plan(tree, scheme or Mimetic(), **options)}


@pytest.mark.parametrize(
    "names",
    [
        "Wq Wk Wv Wo",
        "to_q to_k to_v to_out",
        "linear_q linear_k linear_v linear_out",
        "query_proj key_proj value_proj output_proj",
        "c_q c_k c_v c_proj",
        "wq wk wv wo",
        "q k v o",
        "queries keys values out",
    ],
)
def test_names_of_attention_beside_stock_attention_are_refused_with_rules_that_work(names):
    own = [f"block_0/attn/{name}/kernel" for name in names.split()]
    tree = stock("block_0/attention") | ones(dict.fromkeys(own, (D, D)))
    with pytest.raises(InputError, match=f"no rule describes {own[1]}") as refused:
        plan(tree, Mimetic())
    call = re.search(r"give rules=(.*), num_heads=…; if it is no", str(refused.value))[1]
    assert written(tree, rules=parse_rules(call), num_heads=H) == tree.keys()
    without = str(refused.value).rpartition("rules=")[2]
    assert written(tree, rules=parse_rules(without)) == stock("block_0/attention").keys()


@pytest.mark.parametrize("fused", ["Wqkv", "wqkv", "linear_qkv", "to_qkv", "qkv_proj"])
def test_fused_kernels_beside_stock_attention_are_refused(fused):
    tree = stock("block_0/attention") | ones(
        {
            f"block_0/attn/{fused}/kernel": (D, 3 * D),
            f"block_0/attn/{fused}/bias": (3 * D,),
            "block_0/attn/wo/kernel": (D, D),
        }
    )
    with pytest.raises(InputError, match=f"no rule describes block_0/attn/{fused}") as refused:
        plan(tree, Mimetic())
    call = re.search(r"give rules=(.*), num_heads=…, if the model", str(refused.value))[1]
    assert written(tree, rules=parse_rules(call), num_heads=H) == tree.keys()


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


def test_rules_for_some_layers_are_a_choice():
    tree = stock("layer_0") | stock("layer_1")
    rules = attention_rules(within="layer_0$")
    assert written(tree, rules=rules) == stock("layer_0").keys()


CHANNELS = {"attn.qkv.weight": (3 * D, D), "attn.proj.weight": (D, D), "attn.proj.bias": (D,)}
LLAMA = {f"self_attn.{name}_proj.weight": (D, D) for name in "qkvo"}
MARKS = {
    "XCiT": (CHANNELS, {"attn.temperature": (H, 1, 1)}),
    "EdgeNeXt": (
        {k.replace("attn", "xca"): v for k, v in CHANNELS.items()},
        {"xca.temperature": (H, 1, 1)},
    ),
    "Kimi Linear": (LLAMA, {"self_attn.conv1d.weight": (3 * D, 1, 4)}),
    "gated delta net": (LLAMA, {"self_attn.A_log": (H,), "self_attn.b_proj.weight": (H, D)}),
    "gated linear attention": (LLAMA, {"self_attn.gk_proj.0.weight": (16, D)}),
    "MiniMax": (
        {"self_attn.qkv_proj.weight": (3 * D, D), "self_attn.out_proj.weight": (D, D)},
        {"self_attn.output_gate.weight": (D, D)},
    ),
    "SigLIP's pooling": (
        {
            f"head.attention.{name}": shape
            for name, shape in {
                "in_proj_weight": (3 * D, D),
                "in_proj_bias": (3 * D,),
                "out_proj.weight": (D, D),
            }.items()
        },
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
    layer = (
        LLAMA
        if "self_attn.q_proj.weight" in kernels or "self_attn.qkv_proj.weight" in kernels
        else CHANNELS
    )
    described = {f"layers.1.{name}": shape for name, shape in layer.items()}
    marked = {f"layers.0.{name}": shape for name, shape in (kernels | mark).items()}
    assert written(ones(described | marked), num_heads=H) == described.keys()
    if mark and len(kernels) > 2:
        with pytest.raises(InputError, match="is left out by its name or by what is beside it"):
            plan(ones(marked), Mimetic(), num_heads=H)


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


class Decoder(nn.Module):
    """Blocks whose self-attention and cross-attention Flax numbers."""

    @nn.compact
    def __call__(self, x, y):
        for layer in range(2):
            x = DecoderBlock(name=f"layer_{layer}")(x, y)
        return x


class DecoderBlock(nn.Module):
    @nn.compact
    def __call__(self, x, y):
        x = x + nn.MultiHeadDotProductAttention(H)(x)
        return x + nn.MultiHeadDotProductAttention(H)(x, y)


def test_two_attentions_of_a_layer_by_number_are_asked_for():
    x = jnp.ones((1, 3, D))
    tree = Decoder().init(KEY, x, x)["params"]
    with pytest.raises(InputError, match="don't tell self-attention from cross") as refused:
        rewrite(KEY, tree, Mimetic())
    every, one = re.search(r"give rules=(\S+) if .* with rules=(.*)$", str(refused.value)).groups()
    assert len(written(tree, rules=parse_rules(every))) == 2 * 2 * 8
    chosen = written(tree, rules=parse_rules(one))
    assert len(chosen) == 2 * 8
    assert all("MultiHeadDotProductAttention_0" in path for path in chosen)


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


def test_convits_blocks_are_written_all():
    """Ten of the twelve have query and key in one layer, and the value in another."""
    shapes = {"qk": (2 * D, D), "v": (D, D), "proj": (D, D)}
    tree = ones({f"blocks.0.attn.{name}.weight": shape for name, shape in shapes.items()})
    tree |= ones({"blocks.1.attn.qkv.weight": (3 * D, D), "blocks.1.attn.proj.weight": (D, D)})
    new = rewrite(KEY, tree, Mimetic(), num_heads=H)
    assert plan(tree, Mimetic(), num_heads=H).table == "PYTORCH"
    # As timm's GPSA computes: x Wᵀ reshaped to two, heads, width.
    query, key = new["blocks.0.attn.qk.weight"].reshape(2, H, K, D)
    diagonals = np.einsum("hkd,hkd->h", query, key) / D
    assert diagonals == pytest.approx(diagonals.mean(), rel=0.2)
    assert diagonals.mean() > 0.15
    value_out = new["blocks.0.attn.v.weight"].T @ new["blocks.0.attn.proj.weight"].T
    assert np.trace(value_out) / D == pytest.approx(-0.4, abs=0.1)


def test_openpis_action_expert_is_written_and_palisgemma_stays():
    D1, G, L = 16, 1, 3
    tree = {}
    for suffix, width in (("", D), ("_1", D1)):
        shapes = {
            f"q_einsum{suffix}": (L, H, width, K),
            f"kv_einsum{suffix}": (L, 2, G, width, K),
            f"attn_vec_einsum{suffix}": (L, H, K, width),
        }
        tree |= {f"PaliGemma/llm/layers/attn/{name}/w": shape for name, shape in shapes.items()}
    image = "PaliGemma/img/Transformer/encoderblock/MultiHeadDotProductAttention_0"
    tree |= {f"{image}/{name}/kernel": (L, *shape) for name, shape in STOCK.items()}
    tree = ones(tree)
    planned = plan(tree, Mimetic())
    assert planned.table == "OPENPI"
    assert {write.path for write in planned} == {path for path in tree if "_1/w" in path}
    new = rewrite(KEY, tree, Mimetic())
    attention = "PaliGemma/llm/layers/attn"
    query = new[f"{attention}/q_einsum_1/w"][1]
    key, _ = new[f"{attention}/kv_einsum_1/w"][1]
    assert np.einsum("hdk,dk->", query, key[0]) / H > 0.3 * D1
    only = (*zoo.GEMMA, mimetic_jax.Rule(".*_1/w", ()), mimetic_jax.Rule("PaliGemma/img/.*", ()))
    assert written(tree, rules=only) == {path for path in tree if "_einsum/w" in path}


def test_big_codes_order_is_asked_for_where_nothing_tells_it():
    """GPTBigCode without multi_query has nanoGPT's names and shapes, head by head."""
    tree = ones({"h.0.attn.c_attn.weight": (3 * D, D), "h.0.attn.c_proj.weight": (D, D)})
    assert plan(tree, Mimetic(), num_heads=H).table == "PYTORCH_NANOGPT"
    tree |= ones({"h.0.attn.c_attn.bias": (3 * D,), "h.0.attn.c_proj.bias": (D,)})
    with pytest.raises(
        InputError, match=r"give rules=zoo.PYTORCH_NANOGPT or rules=zoo.PYTORCH_BIG"
    ):
        plan(tree, Mimetic(), num_heads=H)
    new = rewrite(KEY, tree, Mimetic(), num_heads=H, rules=zoo.PYTORCH_BIGCODE)
    # As transformers' GPTBigCodeAttention splits it: per head its query, key and value.
    query, key, _ = new["h.0.attn.c_attn.weight"].reshape(H, 3, K, D).swapaxes(0, 1)
    assert np.einsum("hkd,hkd->", query, key) / H / D > 0.15


def test_an_mlp_of_a_part_that_is_left_out_stays():
    layer = {
        f"self_attn.{name}.weight": (D, D) for name in ("q_proj", "k_proj", "v_proj", "out_proj")
    }
    layer |= {"mlp.fc1.weight": (F, D), "mlp.fc2.weight": (D, F)}
    tree = ones(
        {
            f"{tower}.encoder.layers.0.{name}": shape
            for tower in ("text_model", "vision_model")
            for name, shape in layer.items()
        }
    )
    both = written(tree, (Mimetic(), MeanShift()), num_heads=H)
    assert "text_model.encoder.layers.0.mlp.fc1.weight" in both
    assert not any(path.startswith("vision_model") for path in both)


def test_an_mlp_can_be_left_out():
    tree = ones(
        {
            f"{part}/{name}/kernel": shape
            for part in ("encoder", "crossattn", "other")
            for name, shape in {"fc1": (D, F), "fc2": (F, D)}.items()
        }
    )
    rules = mlp_rules(exclude="^other/")
    assert written(tree, MeanShift(), rules=rules) == {"encoder/fc1/kernel", "crossattn/fc1/kernel"}
    assert written(tree, MeanShift(), rules=mlp_rules()) == {
        "encoder/fc1/kernel",
        "other/fc1/kernel",
    }


@pytest.mark.parametrize(
    ("scheme", "tree", "result"),
    [
        (SinCos(axes=1), {"wpe/weight": (16, D)}, {"wpe/weight"}),
        (SinCos(axes=1), {"encoder/position_table": (1, 16, D)}, {"encoder/position_table"}),
        (MeanShift(), {"ffn/fc1/weight": (F, D), "ffn/fc2/weight": (D, F)}, {"ffn/fc1/weight"}),
        (MeanShift(), {"Dense_0/kernel": (D, F), "Dense_1/kernel": (F, D)}, {"Dense_0/kernel"}),
        (MeanShift(), {"l/wi/kernel": (3, D, F), "l/wo/kernel": (3, F, D)}, {"l/wi/kernel"}),
    ],
)
def test_a_scheme_that_matches_nothing_names_the_likely_leaf(scheme, tree, result):
    tree = ones(tree | {"head/kernel": (D, 10)})
    with pytest.raises(InputError, match="matches nothing") as refused:
        plan(tree, scheme)
    rules = parse_rules(str(refused.value).rpartition("rules=")[2])
    assert written(tree, scheme, rules=rules) == result


def test_t5_is_suggested_undivided():
    """T5X stores heads flattened, and scans along axis 1."""
    names = {"query": (D, 3, D), "key": (D, 3, D), "value": (D, 3, D), "out": (D, 3, D)}
    tree = stock("encoder/layers/attention", names)
    tree |= ones({"encoder/relpos_bias/rel_embedding": (H, 32)})
    with pytest.raises(InputError, match="layers are stacked along axis 1") as refused:
        plan(tree, Mimetic())
    call = re.search(r"rules=(attention_rules\(.*?\))", str(refused.value))[1]
    assert "undivided=True" in call
    planned = plan(tree, Mimetic(), rules=parse_rules(call), num_heads=H)
    assert {write.layout for write in planned if write.role == "query"} == {"d l (h k) / √K"}


@pytest.mark.parametrize("layers", [4, 6])
def test_layers_on_the_second_axis_are_named_as_the_cause(layers):
    tree = {
        name: {"kernel": jnp.ones((shape[0], layers, *shape[1:]))} for name, shape in STOCK.items()
    }
    with pytest.raises(InputError, match="layers are stacked along axis 1") as refused:
        rewrite(KEY, tree, Mimetic())
    call = re.search(r"give (?:rules=)?(attention_rules\(.*?\))", str(refused.value))[1]
    new = rewrite(KEY, tree, Mimetic(), rules=parse_rules(call))
    moved = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), new)
    assert [layer.value_out < -0.3 for layer in mimetic_jax.check(moved)] == layers * [True]


def test_an_axis_of_layers_that_no_shape_tells_is_asked_for():
    tree = {
        name: {"kernel": jnp.ones((8, *shape))}
        for name, shape in {
            "query": (8, 8, 1),
            "key": (8, 8, 1),
            "value": (8, 8, 1),
            "out": (8, 1, 8),
        }.items()
    }
    with pytest.raises(InputError, match="may stack its layers along axis 0 or 1"):
        plan(tree, Mimetic())
    assert len(written(tree, rules=zoo.FLAX_STACKED)) == 4


def test_gemma_4s_layers_of_maxtext_are_drawn_as_the_error_says():
    """Local layers are stacked twice along axis 1, the global layer of each group once."""
    group = "params/decoder/layers"
    tree = {
        f"{group}/{part}/self_attention/{name}/kernel": (shape[0], *stacks, *shape[1:])
        for part, stacks in (("local_layers", (3, 5)), ("global_layer", (3,)))
        for name, shape in STOCK.items()
    }
    norm = f"{group}/global_layer/self_attention/query_norm/scale"
    only = {path: shape for path, shape in tree.items() if "global" in path}
    assert written(ones(only | {norm: (K, 3)})) == only.keys()
    local = {path: shape for path, shape in tree.items() if "local" in path}
    with pytest.raises(InputError, match=r"jax\.vmap\(.*split\(key, 3\)") as refused:
        plan(ones(tree | {norm: (K, 3)}), Mimetic())
    call = re.search(r"jax\.vmap\(.*\)$", str(refused.value))[0]
    params = {
        path.removeprefix(f"{group}/local_layers/"): leaf for path, leaf in ones(local).items()
    }
    scope = {"jax": jax, "rewrite": rewrite, "attention_rules": attention_rules, "key": KEY}
    new = eval(call, scope | {"scheme": Mimetic(), "params": params})
    value = new["self_attention/value/kernel"][:, 1, 2].reshape(D, D)
    out = new["self_attention/out/kernel"][:, 1, 2].reshape(D, D)
    assert np.trace(value @ out) / D == pytest.approx(-0.4, abs=0.1)


def test_llama_4s_vision_beside_maxtexts_text_is_refused_with_rules_that_work():
    text = {
        f"decoder/layers/layers_0/self_attention/{n}/kernel": (s[0], 2, *s[1:])
        for n, s in STOCK.items()
    }
    marks = {"decoder/layers/layers_0/Llama4MoEBlock_0/MoeBlock_0/gate/kernel": (D, 2, 4)}
    marks |= {"decoder/layers/layers_0/Llama4MoEBlock_0/MoeBlock_0/wi_0": (4, 2, D, F)}
    vision = stock("vision_encoder/layers_0/self_attention_vision")
    tree = ones(text | marks)
    assert plan(tree, Mimetic()).table == "MAXTEXT"
    assert written(tree) == text.keys()
    with pytest.raises(InputError, match="no rule describes vision_encoder") as refused:
        plan(tree | vision, Mimetic())
    call = re.search(r"give rules=(.*); if it is no", str(refused.value))[1]
    assert written(tree | vision, rules=parse_rules(call)) == text.keys() | vision.keys()
