"""Vision transformers of google-research: vision_transformer (vit_jax), scenic and big_vision."""

from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import attention_rules, layer_names, mlp_rules
from mimetic_jax.zoo.norms import gains

_ATTENTION = r"MultiHeadDotProductAttention_\d+/"
_MLP = r"MlpBlock_\d+/"

# The lookbehind keeps the name of the stack in the block's path.
_SCANNED_ATTENTION = f"(?<=encoderblock/){_ATTENTION}"
_SCANNED_MLP = f"(?<=encoderblock/){_MLP}"


def _block(attention: str, mlp: str, *, stacked: bool = False) -> tuple[Rule, ...]:
    return (
        *attention_rules(**layer_names(f"{attention}{{}}"), stacked=stacked),
        *mlp_rules(first=f"{mlp}Dense_0", second=f"{mlp}Dense_1", stacked=stacked),
        # Submodules that are numbered together have 2 for the second norm.
        *(
            rule
            for second, other in (("1", "!LayerNorm_2/scale"), ("2", "!LayerNorm_1/scale"))
            for rule in gains(
                "LayerNorm_0/scale",
                f"LayerNorm_{second}/scale",
                other,
                layout="l d" if stacked else "d",
                within="encoderblock$" if stacked else r"encoderblock_\d+$",
            )
        ),
    )


BIG_VISION: tuple[Rule, ...] = (
    # A pooling head attends from a learned probe and has an MLP of its own.
    *(Rule(f"{name}.*", (), beside="probe") for name in (_ATTENTION, _MLP)),
    *_block(_SCANNED_ATTENTION, _SCANNED_MLP, stacked=True),
    *_block(_ATTENTION, _MLP),
    Rule(r"(posembed_input/)?pos(ition)?_embed(ding)?", "position", "1 n d"),
    Rule("(patch_)?embed(ding)?/kernel", "patch", "u v c d"),
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
