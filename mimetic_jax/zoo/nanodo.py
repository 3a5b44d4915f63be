"""nanodo."""

from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import attention_rules, embedding_rules, mlp_rules
from mimetic_jax.zoo.norms import gains

NANODO: tuple[Rule, ...] = (
    *attention_rules(out="attn_out_proj", within=r"CausalAttn_0$"),
    *mlp_rules(first="Mlp_0/Dense_0", second="Mlp_0/Dense_1", within=r"blocks_\d+$"),
    *gains("LayerNorm_0/scale", "LayerNorm_1/scale", within=r"blocks_\d+$"),
    *embedding_rules("embed/embedding"),
    Rule("pos_embed/embedding", "position", "n d"),
)
"""nanodo.

Blocks are blocks_N/CausalAttn_0, kernels [D, H, K] and attn_out_proj [H, K, D]: `num_heads` isn't
needed. No biases. The MLP is Mlp_0, positions are pos_embed/embedding [N, D], for text:
`SinCos(axes=1)`.

Read from: google-deepmind/nanodo nanodo/model.py (10aefde).
"""
