"""Vision transformers of google-research: vision_transformer (vit_jax), scenic and big_vision."""

from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import (
    CROSS_ATTENTION,
    attention_rules,
    layer_names,
    left_out,
    mlp_rules,
)
from mimetic_jax.zoo.family import Family

_ATTENTION = r"MultiHeadDotProductAttention_\d+/"
_MLP = r"MlpBlock_\d+/"


def _block(*, stacked: bool) -> tuple[Rule, ...]:
    within, layout = ("encoderblock$", "l d") if stacked else ("", "d")
    return (
        *attention_rules(
            **layer_names(f"{_ATTENTION}{{}}"), stacked=stacked, within=within, exclude=""
        ),
        *mlp_rules(
            first=f"{_MLP}Dense_0",
            second=f"{_MLP}Dense_1",
            stacked=stacked,
            within=within,
            exclude="",
        ),
        Rule("LayerNorm_0/scale", "attention_gain", layout, within=within),
        # Submodules that are numbered together have 2 for the second norm.
        Rule("LayerNorm_[12]/scale", "mlp_gain", layout, within=within),
    )


BIG_VISION = Family(
    (
        *left_out(CROSS_ATTENTION),
        # A pooling head attends from a learned probe and has an MLP of its own.
        *(Rule(f"{name}.*", (), beside="probe") for name in (_ATTENTION, _MLP)),
        *_block(stacked=True),
        *_block(stacked=False),
        Rule(r"(posembed_input/)?pos(ition)?_embed(ding)?", "position", "1 n d"),
        Rule("(patch_)?embed(ding)?/kernel", "patch", "u v c d"),
    ),
    harmless=r"LayerNorm_\d/bias",
    needs=r"encoderblock|MlpBlock_\d+/Dense_0/",
)
"""vit_jax, scenic and big_vision, with `scan=True` (layers stacked along axis 0) and without.

Blocks are Transformer/encoderblock_N, or encoderblock for all of them, with
MultiHeadDotProductAttention_0, whose kernels are separate, [D, H, K] and out [H, K, D], and
MlpBlock_0. `num_heads` isn't needed. Checkpoints from before Linen number the submodules of a block
together, MultiHeadDotProductAttention_1 and MlpBlock_3; they draw the same numbers. The position
table is Transformer/posembed_input/pos_embedding [1, N, D], with a row for the class token if there
is one; big_vision's is pos_embedding, without. Models of one's own with MlpBlock_N have this table,
too, so that other common names of positions and patches are in it.

A text tower (txt/Encoder_0/encoderblock_N, as in two_towers) has the same blocks. Attention pooling
from a learned probe keeps its initialization, whatever its name (MAPHead_0). Two
towers have two position tables: apply schemes that need one position table to each tower's subtree.

Read from: google-research/vision_transformer vit_jax/models_vit.py (143bd26), and
vit_jax/checkpoint.py (16fc24d) for the old numbers; google-research/scenic
scenic/projects/baselines/vit.py (0c438a9) and scenic/model_lib/layers/attention_layers.py
(0cce82d); google-research/big_vision big_vision/models/vit.py,
big_vision/models/proj/image_text/{text_transformer,two_towers}.py (0127fb6).
"""
