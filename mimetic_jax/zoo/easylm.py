"""EasyLM."""

from mimetic_jax.rules.tables import attention_rules, layer_names
from mimetic_jax.zoo.norms import gains, gated

EASYLM_LLAMA = (
    *attention_rules(**layer_names("attention/w{}", "qkvo"), flat=True),
    *gated("feed_forward/w3/kernel", "feed_forward/w1/kernel", "feed_forward/w2/kernel"),
    *gains("attention_norm/kernel", "ffn_norm/kernel"),
)
"""LLaMA in EasyLM.

Blocks are transformer/h/N, kernels [D, D] stored (in, out) with flattened heads: give `num_heads`.
No biases; positions are rotary; the MLP (feed_forward/w1, w2, w3) is gated.

Read from: young-geng/EasyLM EasyLM/models/llama/llama_model.py (9e466cf).
"""
