"""bonsai, the NNX models of jax-ml."""

from mimetic_jax.rules import Rule, attention_rules
from mimetic_jax.zoo.hugging_face import HUGGING_FACE_LLAMA

BONSAI_QWEN3: tuple[Rule, ...] = attention_rules(
    query="attn/q_proj", key="attn/k_proj", value="attn/v_proj", out="attn/o_proj"
)
"""bonsai's Qwen3.

Blocks are layers/N, kernels of nnx.Einsum [D, H, K], [D, G, K] and out [H, K, D]: `num_heads` isn't
needed. H·K need not be D. No biases; queries and keys are normalized before their product;
positions are rotary; the MLP is gated.

Read from: jax-ml/bonsai bonsai/models/qwen3/modeling.py (3628425).
"""

BONSAI_DINOV3: tuple[Rule, ...] = attention_rules(
    query="attention/q_proj",
    key="attention/k_proj",
    value="attention/v_proj",
    out="attention/o_proj",
    flat=True,
)
"""bonsai's DINOv3.

Blocks are layer/N, kernels [D, D] (in, out) with flattened heads: give `num_heads`. All but the key
have biases. Positions are rotary. The MLP is gated in some sizes, and the two layers of the others
have the names of two of its three: it keeps its initialization.

Read from: jax-ml/bonsai bonsai/models/dinov3/modeling.py (3628425).
"""

BONSAI_GEMMA3: tuple[Rule, ...] = HUGGING_FACE_LLAMA
"""The text model of bonsai's Gemma 3.

The names and shapes are those of `HUGGING_FACE_LLAMA`, which `zoo.detect` calls it. Blocks are
language_model/layers/N, kernels (in, out) with flattened heads, [D, H K], [D, G K] and
out [H K, D]: give `num_heads` and `num_kv_heads`. H·K need not be D. Biases exist with
`attention_bias`. Queries and keys are normalized before their product; positions are rotary; the
MLP is gated.

The vision tower (SigLIP) has another number of heads and keeps its initialization, as does its
pooling head. For its encoder, rewrite that subtree:

>>> from mimetic_jax import attention_rules
>>> names = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "out_proj"}
>>> rules = attention_rules(**names, flat=True)

Read from: jax-ml/bonsai bonsai/models/gemma3/modeling.py (3628425).
"""
