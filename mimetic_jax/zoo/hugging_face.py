"""Flax models of Hugging Face transformers (version 4, the last that has them)."""

from mimetic_jax.rules import CROSS_ATTENTION, Rule, attention_rules, mlp_rules

# A vision tower beside a language model has the names of its layers and another number of heads.
_NOT_OF_TEXT = f"{CROSS_ATTENTION}|vision_tower/"

_ENCODER_LAYER = (
    Rule(r"attention/output/dense/kernel", "out", "(h k) d"),
    Rule(r"attention/output/dense/bias", "out_bias", "d"),
    # Without the lookbehind it would also match crossattention/output/dense/kernel.
    *mlp_rules(first="intermediate/dense", second="(?<!attention/)output/dense"),
)

HUGGING_FACE_VIT: tuple[Rule, ...] = (
    Rule(r"attention/attention/query/kernel", "query", "d (h k)"),
    Rule(r"attention/attention/key/kernel", "key", "d (g k)"),
    Rule(r"attention/attention/value/kernel", "value", "d (g k)"),
    Rule(r"attention/attention/query/bias", "query_bias", "(h k)"),
    Rule(r"attention/attention/key/bias", "key_bias", "(g k)"),
    Rule(r"attention/attention/value/bias", "value_bias", "(g k)"),
    *_ENCODER_LAYER,
    Rule(r"embeddings/position_embeddings", "position", "1 n d"),
)
"""FlaxViTModel and FlaxViTForImageClassification.

Blocks are vit/encoder/layer/N (without vit/ in the bare model), kernels [D, D] with flattened
heads: give `num_heads`. Biases of query, key and value exist with `qkv_bias`. The position table
[1, N + 1, D] has a row for the class token.

Read from: huggingface/transformers src/transformers/models/vit/modeling_flax_vit.py (ae19f01).
"""

HUGGING_FACE_BERT: tuple[Rule, ...] = (
    Rule(r"attention/self/query/kernel", "query", "d (h k)"),
    Rule(r"attention/self/key/kernel", "key", "d (g k)"),
    Rule(r"attention/self/value/kernel", "value", "d (g k)"),
    Rule(r"attention/self/query/bias", "query_bias", "(h k)"),
    Rule(r"attention/self/key/bias", "key_bias", "(g k)"),
    Rule(r"attention/self/value/bias", "value_bias", "(g k)"),
    *_ENCODER_LAYER,
    Rule(r"embeddings/position_embeddings/embedding", "position", "n d"),
)
"""FlaxBert and FlaxRoberta models.

Blocks are bert/encoder/layer/N, kernels [D, D] with flattened heads: give `num_heads`. The
position table is [N, D] (RoBERTa starts at row `padding_idx` + 1). These models normalize after
the residual, unlike the models in which the structure of trained weights was measured. A
decoder's crossattention keeps its initialization.

Read from: huggingface/transformers src/transformers/models/bert/modeling_flax_bert.py (299108c)
and src/transformers/models/roberta/modeling_flax_roberta.py (54242e2).
"""

HUGGING_FACE_GPT2: tuple[Rule, ...] = (
    Rule(r"attn/c_attn/kernel", ("query", "key", "value"), "(three h k) d"),
    Rule(r"attn/c_attn/bias", ("query_bias", "key_bias", "value_bias"), "(three h k)"),
    Rule(r"attn/c_proj/kernel", "out", "d (h k)"),
    Rule(r"attn/c_proj/bias", "out_bias", "d"),
    *mlp_rules(first="mlp/c_fc", second="mlp/c_proj", transposed=True),
    Rule(r"wpe/embedding", "position", "n d"),
)
"""FlaxGPT2 models.

Blocks are transformer/h/N (h/N in the bare model). FlaxConv1D stores its kernel as (out, in)
and transposes it in use, the opposite of both nn.Dense and PyTorch's Conv1D; c_attn holds
query, key and value one after the other: [3 D, D]. Give `num_heads`. Positions are wpe/embedding
[N, D], for text: `SinCos(axes=1)`. A model with cross-attention raises an error.

Read from: huggingface/transformers src/transformers/models/gpt2/modeling_flax_gpt2.py (21a7f4b).
"""

HUGGING_FACE_LLAMA: tuple[Rule, ...] = attention_rules(
    query="self_attn/q_proj",
    key="self_attn/k_proj",
    value="self_attn/v_proj",
    out="self_attn/o_proj",
    flat=True,
    exclude=_NOT_OF_TEXT,
)
"""FlaxLlama, FlaxMistral and FlaxGemma models.

Blocks are model/layers/N (layers/N in the bare model), kernels (in, out) with flattened heads:
give `num_heads`, and `num_kv_heads` where heads are grouped (Mistral, Gemma; FlaxLlama has as
many key/value heads as query heads whatever its config specifies). Biases exist with
`attention_bias`. Positions are rotary, the MLP (gate_proj, up_proj, down_proj) is gated.

Read from: huggingface/transformers src/transformers/models/llama/modeling_flax_llama.py
(112f939), src/transformers/models/mistral/modeling_flax_mistral.py (4d57351),
src/transformers/models/gemma/modeling_flax_gemma.py (d3f2ebc).
"""

HUGGING_FACE_OPT: tuple[Rule, ...] = (
    # Named by its kind, cross-attention is left out instead of refused.
    *attention_rules(
        query="(self|encoder)_attn/q_proj",
        key="(self|encoder)_attn/k_proj",
        value="(self|encoder)_attn/v_proj",
        out="(self|encoder)_attn/out_proj",
        flat=True,
        exclude=_NOT_OF_TEXT,
    ),
    *mlp_rules(within=r"layers/\d+$"),
    Rule(r"(?<=decoder/)embed_positions/embedding", "position", "n d"),
)
"""FlaxOPT and FlaxWhisper models.

Blocks are model/decoder/layers/N, and in Whisper model/encoder/layers/N too (without model/ in bare
models), kernels [D, D] (in, out) with flattened heads: give `num_heads`. The cross-attention of
Whisper's decoder, encoder_attn, keeps its initialization; its keys have no bias. Encoder and
decoder count their layers apart.

The decoder's positions are embed_positions/embedding [N, D], for text: `SinCos(axes=1)`. OPT's has
two rows more than positions and reads position n in row n + 2. Those of Whisper's encoder are
sinusoids that aren't trained: no rule matches them. OPT 350M normalizes after the residual, and has
projections to and from the width of its embedding, which are left as they are.

Read from: transformers 4.57.6, models/opt/modeling_flax_opt.py and
models/whisper/modeling_flax_whisper.py.
"""

HUGGING_FACE_GPT_NEO: tuple[Rule, ...] = (
    *attention_rules(
        query="attn/attention/q_proj",
        key="attn/attention/k_proj",
        value="attn/attention/v_proj",
        out="attn/attention/out_proj",
        flat=True,
        undivided=True,
    ),
    *mlp_rules(first="mlp/c_fc", second="mlp/c_proj"),
    Rule(r"wpe/embedding", "position", "n d"),
)
"""FlaxGPTNeo models.

Blocks are transformer/h/N (h/N in the bare model), kernels (in, out), unlike GPT-2's, [D, D] with
flattened heads: give `num_heads`. Only out_proj has a bias. Positions are wpe/embedding [N, D], for
text: `SinCos(axes=1)`. Every other layer attends within a window.

The model multiplies queries by √K, so that logits aren't divided by it: the query takes the factor
1/√K, so that a scheme's logits are those of other models.

Read from: transformers 4.57.6, models/gpt_neo/modeling_flax_gpt_neo.py.
"""

HUGGING_FACE_DISTILBERT: tuple[Rule, ...] = (
    *attention_rules(
        query="attention/q_lin",
        key="attention/k_lin",
        value="attention/v_lin",
        out="attention/out_lin",
        flat=True,
    ),
    *mlp_rules(first="ffn/lin1", second="ffn/lin2"),
    Rule(r"embeddings/position_embeddings/embedding", "position", "n d"),
)
"""FlaxDistilBert models.

Blocks are distilbert/transformer/layer/N (without distilbert/ in the bare model), kernels [D, D]
(in, out) with flattened heads: give `num_heads`. The position table is [N, D], for text:
`SinCos(axes=1)`; with `sinusoidal_pos_embds` there is none. Like BERT, the model normalizes after
the residual.

Read from: transformers 4.57.6, models/distilbert/modeling_flax_distilbert.py.
"""
