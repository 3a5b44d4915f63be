"""Trees of public codebases, by the names and einsums in their code: each fits at the first try."""

import dataclasses
import re

import numpy as np
import pytest

import mimetic_jax
from mimetic_jax import InputError, Rule, attention_rules, zoo
from mimetic_jax.schemes import Mimetic
from tests.zoo import test_norms, test_zoo
from tests.zoo.test_norms import AFTER, BEFORE, BOTH, norms
from tests.zoo.test_zoo import (
    FLAT,
    GROUPED,
    HEADS,
    SCANNED,
    STOCK,
    WIDE,
    Case,
    D,
    F,
    L,
    V,
    fused,
    in_out,
    layers,
    leaves_of,
    maxtext,
    out_in,
    pytorch,
    torch_layers,
    without,
)

DHK_OUT = (*HEADS[:3], "thk,dhk->td")
FLAT_SCANNED = ("td,dlq->tq", "td,dlp->tp", "td,dlp->tp", "tq,qld->td")
RELPOS = {"encoder/relpos_bias/rel_embedding": (4, 32)}


def t5x(layer, attention, *, table="T5X", forms=FLAT, first="", **options) -> tuple[Case, dict]:
    """T5X and flaxformer; `first` is the first layer of an MLP that isn't gated."""
    axis = "l" if "{}" not in layer else ""
    gated = {} if first else without("mlp/wi_0/kernel mlp/wi_1/kernel", f"{layer}/", (D, F))
    if axis:
        gated = dict.fromkeys(gated, (D, L, F))
    case = Case(
        table,
        f"{layer}/{attention}",
        layers(STOCK, forms),
        mlp={
            f"{layer}/mlp/{first}/kernel": f"td,d{axis}f->tf",
            f"{layer}/mlp/wo/kernel": f"tf,f{axis}d->td",
        }
        if first
        else {},
        others={
            **RELPOS,
            **gated,
            f"{layer}/encoder_decoder_attention/key/kernel": (D, L, D) if axis else (D, D),
        },
        undivided=True,
        **options,
    )
    pre = f"pre_{attention}_layer_norm pre_mlp_layer_norm"
    return case, norms(layer, pre, axes="dl" if axis else "d")


def fused_flaxformer(attention) -> tuple[Case, dict]:
    case, norms = t5x("encoder/layers_{}", "attention", table="FLAXFORMER")
    attention = attention | {"out/kernel": "thk,hkd->td"}
    return dataclasses.replace(case, attention=attention, undivided=False), norms


def praxis(layer="lm/transformer/x_layers_{}", qkv="", **options) -> tuple[Case, dict]:
    axis = "l" if "{}" not in layer else ""
    names = (f"td,{axis}dhk->thk", f"td,{axis}dgk->tgk", f"td,{axis}dgk->tgk")
    attention = (
        {"combined_qkv/w": f"td,{axis}sdhk->sthk"} if qkv else layers("query key value", names, "w")
    )
    first, second = (f"{layer}/ff_layer/ffn_layer{n}/linear" for n in "12")
    case = Case(
        "PRAXIS",
        f"{layer}/self_attention",
        attention | {"post/w": f"thk,{axis}dhk->td"},
        # The bias of a layer of an MLP is a layer of its own.
        mlp={} if options.get("bias") else in_out(first, second, "w", axis),
        others={f"{layer}/cross_attention/query/w": (D, 4, 8)},
        **options,
    )
    hybrid = "pre_layer_norm ff_layer/pre_layer_norm post_layer_norm ff_layer/post_layer_norm"
    return case, norms(layer, hybrid, BEFORE + AFTER, axes=f"{axis}d")


def simply(leaf="w", **options) -> tuple[Case, dict]:
    layer = "block_{}"
    end = leaf.removeprefix("w")
    case = Case(
        "SIMPLY",
        f"{layer}/attn",
        layers("q_proj k_proj v_proj o_proj", DHK_OUT, leaf),
        mlp=in_out(f"{layer}/ffn/ffn_0", f"{layer}/ffn/ffn_1", leaf),
        others={f"embed_linear/w{end}": (V, D)},
        **options,
    )
    names = "pre_ln_0 pre_ln_1 post_ln_0 post_ln_1"
    return case, norms(layer, names, BEFORE + AFTER, leaf=f"scale{end}")


def grug(layer="blocks/{}", stack="") -> tuple[Case, dict]:
    kernels = (f"td,{stack}dq->tq", *[f"td,{stack}dp->tp"] * 2, f"tq,{stack}qd->td")
    case = Case(
        "GRUG",
        f"{layer}",
        dict(zip(("attn/w_q", "attn/w_k", "attn/w_v", "attn/w_o"), kernels, strict=True)),
        mlp={
            f"{layer}/mlp/mlp_up": f"td,{stack}df->tf",
            f"{layer}/mlp/mlp_down": f"tf,{stack}fd->td",
        },
        others={"token_embed": (V, D), "output_proj": (D, V)},
        **WIDE,
    )
    return case, norms(layer, "rms_attn rms_mlp", leaf="weight", axes=f"{stack}d")


def litgpt(first="", names="norm_1 norm_2", where=BEFORE, adds=0, **options) -> tuple[Case, dict]:
    layer = "transformer/h/{}"
    gated = without("mlp/fc_1/weight mlp/fc_2/weight", f"{layer}/", (F, D))
    case = pytorch(
        layer,
        fused("attn/qkv", "attn/proj"),
        "LITGPT",
        mlp=out_in(f"{layer}/mlp/{first}", f"{layer}/mlp/proj") if first else {},
        others={"lm_head/weight": (V, D)} | ({} if first else gated),
        **options,
    )
    return case, norms(layer, names, where, leaf="weight", adds=adds)


def gguf(attention, names="attn_norm ffn_norm", where=BEFORE, *, mlp=True, **options):
    layer = "blk/{}"
    gate = {} if mlp else without("ffn_gate/weight ffn_up/weight", f"{layer}/", (F, D))
    case = pytorch(
        layer,
        attention,
        "GGUF",
        mlp=out_in(f"{layer}/ffn_up", f"{layer}/ffn_down") if mlp else {},
        others={"token_embd/weight": (V, D)} | gate,
        **options,
    )
    return case, norms(layer, names, where, leaf="weight")


def scanned_maxtext(module, names, where, **options) -> tuple[Case, dict]:
    case = dataclasses.replace(
        maxtext("MAXTEXT", stack="layers/layers_1", module=module, **WIDE),
        others={
            f"params/decoder/layers/layers_1/{module}/{mark}": (8, L) for mark in options["marks"]
        },
        bias=options.get("bias", ""),
    )
    return case, norms("params/decoder/layers/layers_1", names, where, axes="dl")


APART = torch_layers("attn_q attn_k attn_v attn_output")
SANDWICH = "norm_1 norm_2 post_attention_norm post_mlp_norm"
CODEBASES = {
    "t5x": t5x("decoder/layers_{}", "self_attention", K=16),
    "t5x_1_0": t5x("encoder/layers_{}", "attention", first="wi"),
    "t5x_scalable": t5x("encoder/encoder", "attention", forms=FLAT_SCANNED),
    "t5x_scalable_1_0": t5x("decoder/decoder", "self_attention", forms=FLAT_SCANNED, first="wi"),
    "flaxformer": t5x("encoder/layers_{}", "attention", table="FLAXFORMER", forms=HEADS, K=16),
    "flaxformer_scanned": t5x(
        "decoder/decoder", "self_attention", table="FLAXFORMER", forms=SCANNED
    ),
    "flaxformer_fused": fused_flaxformer({"qkv_fused/kernel": "td,dshk->tshk"}),
    "flaxformer_fused_key": fused_flaxformer(
        {"query/kernel": "td,dhk->thk", "kv_fused/kernel": "td,dcgk->ctgk"}
    ),
    "praxis": praxis(bias="b"),
    "praxis_grouped": praxis(**WIDE),
    "praxis_combined": praxis(qkv="combined"),
    "praxis_repeated": praxis("lm/transformer/repeat/sub/x_layers_0", **GROUPED),
    "simply": simply(**WIDE),
    "simply_annotated": simply("w/0"),
    "nanodo": (
        Case(
            "NANODO",
            "blocks_{}/CausalAttn_0",
            layers("query key value attn_out_proj", HEADS),
            mlp=in_out("blocks_{}/Mlp_0/Dense_0", "blocks_{}/Mlp_0/Dense_1"),
            position=("pos_embed/embedding", "nd"),
            others={"embed/embedding": (V, D)},
        ),
        norms("blocks_{}", "LayerNorm_0 LayerNorm_1"),
    ),
    "grug": grug(),
    "grug_stacked": grug("blocks/stacked", "l"),
    "litgpt_llama": litgpt(**WIDE),
    "litgpt_pythia": litgpt("fc", bias="bias"),
    "litgpt_gemma2": litgpt("", SANDWICH, BEFORE + AFTER, adds=1, **WIDE),
    "litgpt_olmo2": litgpt("", "post_attention_norm post_mlp_norm", AFTER),
    "litgpt_phi": litgpt("fc", "norm_1", BOTH, bias="bias"),
    "gguf_llama": gguf(APART, mlp=False, **WIDE),
    "gguf_gemma2": gguf(
        APART,
        "attn_norm ffn_norm post_attention_norm post_ffw_norm",
        BEFORE + AFTER,
        mlp=False,
        **WIDE,
    ),
    "gguf_olmo2": gguf(APART, "post_attention_norm post_ffw_norm", AFTER, mlp=False),
    "gguf_gpt2": gguf(fused("attn_qkv", "attn_output"), bias="bias"),
    "gguf_phi2": gguf(APART, "attn_norm", BOTH, bias="bias"),
    "nanochat": (
        pytorch(
            "transformer/h/{}",
            torch_layers("attn/c_q attn/c_k attn/c_v attn/c_proj"),
            "NANOCHAT",
            mlp=out_in("transformer/h/{}/mlp/c_fc", "transformer/h/{}/mlp/c_proj"),
            others={"transformer/h/{}/attn/ve_gate/weight": (2, 12)},
            **GROUPED,
        ),
        {},
    ),
    "parameter_golf": (
        pytorch(
            "blocks/{}",
            torch_layers("attn/c_q attn/c_k attn/c_v attn/proj"),
            "NANOCHAT",
            mlp=out_in("blocks/{}/mlp/fc", "blocks/{}/mlp/proj"),
            others={"tok_emb/weight": (V, D)},
            **GROUPED,
        ),
        norms("blocks/{}", "attn_scale mlp_scale", AFTER, leaf=""),
    ),
    "maxtext_gpt_oss": scanned_maxtext(
        "GptOssAttention",
        "pre_self_attention_layer_norm post_self_attention_layer_norm",
        BEFORE,
        marks=["sinks"],
        bias="bias",
    ),
    "maxtext_olmo3": scanned_maxtext(
        "attention",
        "post_self_attention_layer_norm post_mlp_layer_norm",
        AFTER,
        marks=["query_norm/scale", "key_norm/scale"],
    ),
    "flux": (
        pytorch(
            "double_blocks/{}/img_attn",
            fused("qkv", "proj"),
            "FLUX",
            mlp=out_in("double_blocks/{}/img_mlp/0", "double_blocks/{}/img_mlp/2"),
            others={"single_blocks/{}/linear1/weight": (3 * D + F, D)},
            bias="bias",
        ),
        {},
    ),
    "jflux": (
        Case(
            "FLUX",
            "double_blocks/layers/{}/txt_attn",
            layers("qkv proj", ("td,dw->tw", "tq,qd->td")),
            mlp=in_out(
                "double_blocks/layers/{}/txt_mlp/layers/0",
                "double_blocks/layers/{}/txt_mlp/layers/2",
            ),
            others={"single_blocks/layers/{}/linear2/kernel": (D + F, D)},
        ),
        {},
    ),
    "dinov3_flax": (
        Case(
            "DINOV3_FLAX",
            "blocks_{}",
            layers("attn/qkv attn/proj", ("td,dw->tw", "tq,qd->td")),
            others=without("mlp/Dense_0/kernel", "blocks_{}/", (D, F)),
            bias="bias",
        ),
        norms("blocks_{}", "norm1 norm2") | norms("blocks_{}", "ls1 ls2", AFTER, leaf="gamma"),
    ),
    "dinov3_equinox": (
        pytorch(
            "layer/{}/attention",
            torch_layers("q_proj k_proj v_proj o_proj"),
            mlp=out_in("layer/{}/mlp/up_proj", "layer/{}/mlp/down_proj"),
            bias="bias",
            dots=False,
        ),
        norms("layer/{}", "norm1 norm2", leaf="weight")
        | norms("layer/{}", "layer_scale1 layer_scale2", AFTER, leaf="lambda1"),
    ),
    "dinov3": (
        pytorch(
            "blocks/{}",
            fused("attn/qkv", "attn/proj"),
            mlp=out_in("blocks/{}/mlp/fc1", "blocks/{}/mlp/fc2"),
            others={"blocks/{}/attn/qkv/bias_mask": (3 * D,)},
            bias="bias",
        ),
        norms("blocks/{}", "norm1 norm2", leaf="weight")
        | norms("blocks/{}", "ls1 ls2", AFTER, leaf="gamma"),
    ),
    "openpi": (
        Case(
            "OPENPI",
            "PaliGemma/llm/layers",
            {
                "attn/q_einsum_1/w": "td,lhdk->thk",
                "attn/kv_einsum_1/w": "td,lcgdk->ctgk",
                "attn/attn_vec_einsum_1/w": "thk,lhkd->td",
            },
            others={
                "PaliGemma/llm/layers/attn/q_einsum/w": (L, 4, V, 16),
                "PaliGemma/llm/layers/attn/kv_einsum/w": (L, 2, 1, V, 16),
                "PaliGemma/llm/layers/attn/attn_vec_einsum/w": (L, 4, 16, V),
                "PaliGemma/llm/layers/pre_attention_norm/scale": (L, V),
            },
            G=1,
            K=16,
        ),
        norms("PaliGemma/llm/layers", "pre_attention_norm_1 pre_ffw_norm_1", adds=1, axes="ld"),
    ),
    "octo": (
        dataclasses.replace(
            test_zoo.vit_jax(),
            table="OCTO",
            block="octo_transformer/BlockTransformer_0/Transformer_0/encoderblock_{}",
            mlp=in_out(
                *(
                    f"octo_transformer/BlockTransformer_0/Transformer_0/encoderblock_{{}}/MlpBlock_0/{n}"
                    for n in ("Dense_0", "Dense_1")
                )
            ),
            position=None,
            others=without(
                "q/kernel k/kernel v/kernel o/kernel",
                "octo_transformer/task_tokenizers_language/hf_model/encoder/block/{}/layer/0/SelfAttention/",
                (F, F),
            ),
        ),
        norms(
            "octo_transformer/BlockTransformer_0/Transformer_0/encoderblock_{}",
            "LayerNorm_0 LayerNorm_1",
        ),
    ),
}
every_codebase = pytest.mark.parametrize(
    ("case", "norms"), CODEBASES.values(), ids=CODEBASES.keys()
)


@every_codebase
def test_the_model_computes_with_what_the_scheme_drew_and_the_rest_stays(case, norms):
    test_zoo.test_the_model_computes_with_what_the_scheme_drew_and_the_rest_stays(case)


@every_codebase
def test_mlps_and_positions(case, norms):
    test_zoo.test_mlps_and_positions(case)


@every_codebase
def test_fit_reads_the_scheme_under_any_gains_and_scales(case, norms):
    if not norms:
        pytest.skip("its norms have no parameters")
    test_norms.assert_fit_reads_the_scheme(case, norms)


def gemma4(layer, attention):
    return Case("GEMMA", layer, attention, others={"layer_0/skip_scale": (1,)}, G=2, K=16)


def test_the_key_of_gemma_4s_global_layers_is_the_value():
    """Its products W_Q·W_Kᵀ are written everywhere, V and out where there is a value."""
    kernels = {"q_einsum": "td,hdk->thk", "attn_vec_einsum": "thk,hkd->td"}
    local = {f"attn/{name}/w": form for name, form in kernels.items()}
    local["attn/kv_einsum/w"] = "td,cgdk->ctgk"
    case = gemma4("layer_{}", local)
    tree = test_zoo.leaves_of(case.params())
    random = np.random.default_rng(1)
    for layer, heads, width in ((2, 4, 32), (3, 4, 32)):
        shapes = {"q_einsum": (heads, D, width), "k_einsum": (1, D, width)}
        shapes |= {"attn_vec_einsum": (heads, width, D)}
        for name, shape in shapes.items():
            tree[f"layer_{layer}/attn/{name}/w"] = random.normal(size=shape).astype(np.float32)
    vision = "vision_encoder/transformer/layer_0/attn/q_einsum/w"
    tree |= {vision: np.ones((2, F, 8), np.float32)}
    planned = mimetic_jax.plan(test_zoo.nested(tree), Mimetic())
    assert planned.table == "GEMMA"
    new = leaves_of(mimetic_jax.rewrite(test_zoo.KEY, test_zoo.nested(tree), Mimetic()))
    for layer in (2, 3):
        out = f"layer_{layer}/attn/attn_vec_einsum/w"
        np.testing.assert_array_equal(new[out], tree[out])
        query, key = (new[f"layer_{layer}/attn/{name}_einsum/w"] for name in "qk")
        for head in query:
            assert np.trace(head @ key[0].T) > 10
    np.testing.assert_array_equal(new[vision], tree[vision])
    out, value = new["layer_0/attn/attn_vec_einsum/w"], new["layer_0/attn/kv_einsum/w"][1]
    assert np.trace(np.einsum("gdk,hke->de", value, out)) != 0


def test_a_key_without_an_axis_of_heads_has_one():
    """flaxformer's multi-query attention."""
    shapes = {"query": (D, 4, 8), "key": (D, 8), "value": (D, 8), "out": (4, 8, D)}
    random = np.random.default_rng(0)
    tree = {
        "encoder": {
            "layers_0": {
                "attention": {
                    name: {"kernel": random.normal(size=shape).astype(np.float32)}
                    for name, shape in shapes.items()
                }
            }
        }
    }
    rules = (
        Rule("key/kernel", "key", "d k"),
        Rule("value/kernel", "value", "d k"),
        *zoo.FLAXFORMER,
    )
    new = mimetic_jax.rewrite(test_zoo.KEY, tree, Mimetic(), rules=rules)
    kernels = {
        name: leaf["kernel"] for name, leaf in new["encoder"]["layers_0"]["attention"].items()
    }
    assert {name: kernel.shape for name, kernel in kernels.items()} == shapes
    for head in range(4):
        product = kernels["query"][:, head] * 8**0.5 @ kernels["key"].T
        assert np.trace(product) / 8 > 0.5
    with pytest.raises(InputError, match="must have the axes 'd h k'"):
        Rule("query/kernel", "query", "d k")


SQUARE, APART = (D, D), (D, 4, 8)
REFUSED = {
    # The tree, what the error advises, and the same tree as the advice cuts it.
    "modded_nanogpt": (
        {"qk_bank": (16, 16, D), "vo_bank": (8, D, D), "mlp_bank": (12, 2, F, D)},
        "as the docstring of zoo.NANOCHAT does",
        {},
    ),
    "modded_nanogpt_medium": (
        {"blocks/0/attn/qkvo_w": (4 * D, D)},
        'rules=(Rule("qkv", ("query", "key", "value"), "(three h k) d"), '
        'Rule("out", "out", "d (h k)")), num_heads=4',
        {"blocks/0/attn/qkv": (3 * D, D), "blocks/0/attn/out": SQUARE},
    ),
    "flux_single_blocks": (
        {"single_blocks/0/linear1/weight": (3 * D + F, D)},
        'rules=(Rule("qkv", ("query", "key", "value"), "(three h k) d"), '
        'Rule("out", "out", "d (h k)")), num_heads=4',
        {"single_blocks/0/qkv": (3 * D, D), "single_blocks/0/out": SQUARE},
    ),
    "latent_attention": (
        {"transformer/h/0/attn/q_a_proj/weight": (8, D)},
        'Rule(r"(?:q|kv)_[ab]_proj.*", ())',
        {},
    ),
    "praxis_nhd": (
        dict.fromkeys(
            (f"x_layers_0/self_attention/{n}/w" for n in ("query", "key", "value")), APART
        )
        | {"x_layers_0/self_attention/post/w": (4, 8, D)},
        'rules=(Rule("post/w", "out", "h k d"), *zoo.PRAXIS)',
        None,
    ),
    "praxis_combined_dims": (
        dict.fromkeys(
            (f"x_layers_0/self_attention/{n}/w" for n in ("query", "key", "value", "post")), SQUARE
        ),
        'rules=(Rule("post/w", "out", "d (h k)"), '
        '*attention_rules(kernel="w", bias="b", flat=True)), num_heads=4',
        None,
    ),
    "multi_query": (
        {
            "encoder/layers_0/attention/query/kernel": APART,
            "encoder/layers_0/attention/key/kernel": (D, 8),
            "encoder/layers_0/attention/value/kernel": (D, 8),
            "encoder/layers_0/attention/out/kernel": (4, 8, D),
        },
        "a key or value of one head without an axis for it has layout 'd k'",
        {},
    ),
}


@pytest.mark.parametrize(("tree", "advice", "cut"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused_names_the_rule_by_hand_that_works(tree, advice, cut):
    def ones(shapes):
        return {path: np.ones(shape, np.float32) for path, shape in shapes.items()}

    with pytest.raises(InputError, match=re.escape(advice.replace("=4", "=…"))):
        mimetic_jax.plan(ones(tree), Mimetic())
    if advice.startswith("rules="):
        names = {"Rule": Rule, "zoo": zoo, "attention_rules": attention_rules}
        options = eval(f"dict({advice})", names)
        planned = mimetic_jax.plan(ones(tree if cut is None else cut), Mimetic(), **options)
        assert {write.role for write in planned} == {"query", "key", "value", "out"}


def test_maxtexts_global_layers_of_gemma_4_have_no_value():
    block = "params/decoder/layers/global_layer/self_attention"
    shapes = {"query/kernel": (D, L, 4, 8), "key/kernel": (D, L, 2, 8), "out/kernel": (4, L, 8, D)}
    shapes |= {"query_norm/scale": (8, L)}
    random = np.random.default_rng(0)
    tree = {f"{block}/{name}": random.normal(size=shape) for name, shape in shapes.items()}
    planned = mimetic_jax.plan(tree, Mimetic())
    assert planned.table == "MAXTEXT"
    assert {write.role for write in planned} == {"query", "key"}
    new = mimetic_jax.rewrite(test_zoo.KEY, tree, Mimetic())
    for layer in range(L):
        query, key = (new[f"{block}/{name}/kernel"][:, layer] for name in ("query", "key"))
        for head in range(4):
            assert np.trace(query[:, head] @ key[:, head // 2].T) / 8 > 0.6


@pytest.mark.parametrize(
    ("name", "added"),
    [
        ("simply", ["attention_gain", "mlp_gain", "attention_scale", "mlp_scale"]),
        ("litgpt_llama", ["attention_gain"]),
        ("litgpt_pythia", ["attention_gain", "mlp_gain"]),
    ],
)
def test_tables_that_add_one_differ_in_gains_alone(name, added):
    case, norms = CODEBASES[name]
    leaves = test_norms.with_norms(norms, test_norms.leaves_by_slash(case.params()), {})
    tree = (test_zoo.flat_names if case.dots else test_zoo.nested)(leaves)
    tables = (zoo.TABLES[f"{case.table}{end}"] for end in ("", "_PLUS_ONE"))
    one, other = (mimetic_jax.blocks(tree, rules=rules, **case.numbers) for rules in tables)
    found = set()
    for (path, _, block), (path_too, _, block_too) in zip(one, other, strict=True):
        assert path == path_too
        assert block.keys() == block_too.keys()
        for role in block:
            differ = np.asarray(block_too[role]) - np.asarray(block[role])
            np.testing.assert_allclose(differ, float(role in added), atol=1e-6)
            found.add(role)
    assert found >= set(added)
