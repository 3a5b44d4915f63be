"""Hugging Face's names, in its Flax models and in the libraries that keep them."""

import dataclasses
import functools

from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import (
    CROSS_ATTENTION,
    QKV,
    attention_rules,
    embedding_rules,
    layer_names,
    mlp_rules,
    only_beside,
)
from mimetic_jax.zoo.norms import adding_one, hugging_face_norms

# Parts beside a text model or an encoder, with another number of heads.
EXCLUDED = (
    rf"{CROSS_ATTENTION}|pooler/|predictor/|resampler/|qformer/"
    r"|vision_(tower|model)/|audio_tower/|(?:^|/)visual/|cls_attn_blocks/|blocks_token_only/"
)
# Layers with such a leaf are no softmax attention: gated delta nets, gated linear attention.
_RECURRENT = (
    "A_log",
    "conv1d/{}",
    "q_conv1d/{}",
    "b_proj/{}",
    "gk_proj/0/{}",
    "g_norm_swish_gate/{}",
)
_QKV = ("q_proj", "k_proj", "v_proj")
QKV_OUT = ("q", "k", "v", "out")


def hugging_face(kernel: str, table: str, *, transposed: bool) -> tuple[Rule, ...]:
    """The rules for Hugging Face's names, from those of a layer's weight and of an embedding's."""
    attention = functools.partial(
        attention_rules, flat=True, transposed=transposed, kernel=kernel, exclude=EXCLUDED
    )
    mlp = functools.partial(mlp_rules, transposed=transposed, kernel=kernel, exclude=EXCLUDED)
    position = functools.partial(Rule, role="position", exclude=EXCLUDED)

    return (
        *(
            Rule(f"[qkvo]_proj/(?:{kernel}|bias)", (), beside=mark.format(kernel))
            for mark in _RECURRENT
        ),
        # Linear attention of MiniMax
        Rule(f"(?:qkv|out)_proj/{kernel}", (), beside=f"output_gate/{kernel}"),
        *only_beside(  # GPT-Neo; EXAONE 3 has these names without a bias, and divides logits by √K
            attention(**layer_names("attn/attention/{}_proj", QKV_OUT), undivided=True),
            "attn/attention/out_proj/bias",
        ),
        # Llama, Mistral, Qwen, Gemma, OPT, Whisper, BART, Phi, GPT-J, CLIP's text, ViT, DINO, Swin;
        # Nemotron-H, whose mixers may also be Mamba's.
        *attention(
            **layer_names(
                "(?:(?<=attn/)|(?<=attention/)|(?<=mixer/)){}",
                (*_QKV, "(?:o_proj|(?<!mixer/)out_proj|(?<=attn/)dense)"),
            )
        ),
        Rule(f"visual/.*/qkv/{kernel}", ()),
        # Phi-3, MPT, DBRX, ModernBERT.
        *attention(
            fused="(?:(?<=self_attn/)qkv_proj|(?<=attn/)Wqkv)", out="(?<=attn/)Wo", grouped=True
        ),
        *attention(  # BERT, RoBERTa, ViT before transformers 5
            **layer_names("attention/(?:self|attention)/{}") | {"out": "attention/output/dense"}
        ),
        *(  # GPT-NeoX of EasyDeL; in PyTorch it has another order
            attention(fused="attention/query_key_value", out="attention/dense")
            if kernel == "kernel"
            else ()
        ),
        *attention(**layer_names("attention/{}_lin", QKV_OUT)),  # DistilBERT
        *attention(  # T5
            **layer_names(r"layer/\d+/(?:Local|TransientGlobal)?SelfAttention/{}", "qkvo"),
            undivided=True,
        ),
        *attention(**layer_names("{}", (*_QKV, "attn_out")), within=r"blocks/\d+$"),  # LLaDA
        *attention(  # V-JEPA 2
            **layer_names("attention/{}", (*QKV, "proj")), within=r"encoder/layer/\d+$"
        ),
        *(  # Nemotron, DINOv3
            dataclasses.replace(rule, beside=f"!mlp/gate_proj/{kernel}")
            for rule in mlp(first="mlp/up_proj", second="mlp/down_proj")
        ),
        *mlp(first="mlp/up_proj", gate="mlp/gate_proj", second="mlp/down_proj"),
        *mlp(first="up_proj", gate="ff_proj", second="ff_out", within=r"blocks/\d+$"),  # LLaDA
        *mlp(first="mlp/(?:fc1|0)", second="mlp/(?:fc2|3)"),
        *mlp(within=r"layers/\d+$"),
        *mlp(first="intermediate/dense", second="(?<!attention/)output/dense"),
        *mlp(first="ffn/lin1", second="ffn/lin2"),
        *mlp(first="mlp/(?:c_fc|fc_in)", second="mlp/(?:c_proj|fc_out)"),
        *mlp(first="mlp/dense_h_to_4h", second="mlp/dense_4h_to_h"),
        *mlp(first=r"layer/\d+/DenseReluDense/wi", second=r"layer/\d+/DenseReluDense/wo"),
        *embedding_rules(
            f"(?:embed_tokens|wte|embed_in|shared|(?:word|tok|token)_embeddings?)/{table}",
            f"(?:lm_head|embed_out)/{kernel}",
            transposed=transposed,
            exclude=EXCLUDED,
        ),
        Rule(
            f"patch_embeddings?/projection/{kernel}",
            "patch",
            "d c u v" if transposed else "u v c d",
            exclude=EXCLUDED,
        ),
        position("embeddings/position_embeddings", layout="1 n d"),
        position(
            f"(?:embeddings/position_embeddings?|wpe|(?<=decoder/)embed_positions)/{table}",
            layout="n d",
        ),
    )


HUGGING_FACE: tuple[Rule, ...] = (
    *hugging_face("kernel", "embedding", transposed=False),
    *(
        rule
        for leaf in ("scale", "weight", "kernel")
        for rule in hugging_face_norms(leaf, "kernel")
    ),
)
"""Flax models of Hugging Face transformers 4, EasyDeL's, and bonsai's that have their names.

Llama, Mistral, Gemma, Qwen, Phi, OPT, Whisper, CLIP, BERT, RoBERTa, DistilBERT, GPT-Neo, T5, ViT of
transformers; these and Phi-3, GPT-J, GPT-NeoX, MPT, DBRX of EasyDeL; Gemma 3, DINOv3, Qwen3-VL,
LLaDA, UMT5, V-JEPA 2 of bonsai. GPT-2 is `HUGGING_FACE_GPT2`.

Kernels are stored (in, out) with flattened heads: give `num_heads`, and `num_kv_heads` if heads
are grouped (FlaxLlama has as many key/value heads as query heads whatever its config specifies).
Only Phi-3, MPT and DBRX hold query, key and value in one kernel, in that order; EasyDeL's Falcon
and InternLM2 order them by group, which no layout describes. GPT-Neo and T5 don't divide logits by
√K; their query takes that factor. Cross-attention, a vision tower beside text (its subtree can be
rewritten alone), V-JEPA's predictor and gated MLPs keep their initialization.

Positions of text are wpe/embedding or decoder/embed_positions/embedding [N, D]: `SinCos(axes=1)`;
OPT reads position n in row n + 2. BERT and DistilBERT normalize after the residual, unlike the
models in which the structure of trained weights was measured. Gains are those of `PYTORCH`.

Read from: transformers 4.57.6 models/*/modeling_flax_*.py; erfanzar/EasyDeL
easydel/{modules/*/modeling_*,layers/attention/_unified,layers/linears/_linear}.py (090a03b);
jax-ml/bonsai bonsai/models/*/modeling.py (3628425).
"""

HUGGING_FACE_PLUS_ONE: tuple[Rule, ...] = adding_one(HUGGING_FACE)
"""`HUGGING_FACE` for EasyDeL's and bonsai's models with the names of `PYTORCH_PLUS_ONE`."""
