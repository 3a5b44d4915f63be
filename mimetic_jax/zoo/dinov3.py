"""Ports of DINOv3 to Flax."""

from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import attention_rules
from mimetic_jax.zoo.norms import gains, scales

DINOV3_FLAX: tuple[Rule, ...] = (
    *attention_rules(fused="attn/qkv", out="attn/proj", flat=True, within=r"blocks_\d+$"),
    *gains("norm1/scale", "norm2/scale", "attn/qkv/kernel"),
    *scales("ls1/gamma", "ls2/gamma", "attn/qkv/kernel"),
)
"""dinov3-jax: DINOv3's names in Flax Linen, which are timm's.

Blocks are blocks_N. attn/qkv/kernel [D, 3 D] holds query, key and value one after the other: give
`num_heads`. Positions are rotary. The port applies its activation after the second layer of the MLP
too, so that it is no MLP of two layers here: it keeps its initialization.

Other ports have known names: Meta's own code and timm's (`PYTORCH`), Equimo's (`PYTORCH`),
nshepperd/dinov3-jax in Equinox, whose names are Hugging Face's (`PYTORCH`), and bonsai's
(`HUGGING_FACE`).

Read from: Dhia-naouali/dinov3-jax dinov3_jax/layers/{attention,block,ffn_layers,layer_scale}.py
(27e6476); nshepperd/dinov3-jax dinov3_jax/layers/{attention,layer,mlp}.py (6056aaf);
facebookresearch/dinov3 dinov3/layers/{attention,block}.py (6876159).
"""
