"""EasyDeL."""

from mimetic_jax.rules import Rule, attention_rules

EASYDEL_PHI3: tuple[Rule, ...] = attention_rules(
    fused="self_attn/qkv_proj", out="self_attn/o_proj", grouped=True, flat=True
)
"""EasyDeL's Phi-3.

Blocks are model/layers/N (layers/N in the bare model). self_attn/qkv_proj/kernel [D, (H + 2 G) K]
holds the heads of the query, then those of the key, then those of the value; o_proj/kernel is
[H K, D]. Give `num_heads` and `num_kv_heads`. No biases; positions are rotary; the MLP is gated.

Read from: erfanzar/EasyDeL easydel/modules/phi3/modeling_phi3.py (0317bfa); the axes of kernels in
`ParallelLinear` of easydel/layers/components/linears/_linear.py (19ace7f).
"""
