"""diffusers."""

from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import attention_rules, layer_names

DIFFUSERS_UNET: tuple[Rule, ...] = (
    *attention_rules(
        **layer_names("to_{}", ("q", "k", "v", "out_0")), flat=True, within=r"(^|/)attn1$"
    ),
    Rule("norm1/scale", "attention_gain", "d", beside="attn1/to_q/kernel"),
    Rule("norm2/scale", (), beside="attn2/to_q/kernel"),
)
"""FlaxUNet2DConditionModel, the UNet of Stable Diffusion.

Blocks are …/attentions_N/transformer_blocks_N/attn1, kernels [D, D] (in, out) with flattened heads:
give `num_heads`, which the model's config calls `attention_head_dim`. If it differs by level (5,
10, 20, 20 in Stable Diffusion 2), rewrite each level's subtree. Only to_out_0 has a bias. The
widths of levels differ; blocks on the way down, in the middle and up count their layers apart.

attn2 attends to the text and keeps its initialization. With `only_cross_attention`, attn1 does too:
leave such levels out. The MLP is gated; there are no positions.

Read from: diffusers 0.35.2, models/attention_flax.py and
models/unets/{unet_2d_blocks_flax,unet_2d_condition_flax}.py.
"""
