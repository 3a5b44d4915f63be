"""timm's vision transformers, and torchvision's."""

from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import torch_attention, torch_mlp
from mimetic_jax.zoo.common import IN_PROJ
from mimetic_jax.zoo.family import Family
from mimetic_jax.zoo.storage import TORCH, only_beside

_NORM_BIASES = r"norm[12]/bias"
_MLP = torch_mlp(first="mlp/fc1", second="mlp/fc2", exclude="")
_BLOCK = (
    *torch_attention(fused="attn/qkv", out="attn/proj", exclude=""),
    *_MLP,
    Rule("patch_embed/proj/weight", "patch", "d c u v"),
)
_BEFORE = TORCH.norms("gain", "norm1", "norm2")

TIMM = Family(
    (
        *_BLOCK,
        # Without these the names are those of a ResPostBlock, too, whose norms come after.
        *(
            rule
            for leaf in ("attn/qkv/bias", "ls1/gamma", "gamma_1")
            for rule in only_beside(_BEFORE, leaf)
        ),
        *(
            Rule(f"{name}", f"{kind}_scale", "d")
            for name, kind in (("ls1/gamma|gamma_1", "attention"), ("ls2/gamma|gamma_2", "mlp"))
        ),
        Rule("prenorm/weight", "attention_gain", "d"),  # of Equimo, whose norms have other names
        Rule("postnorm/weight", "attention_scale", "d"),
        Rule("norm/weight", "mlp_gain", "d", beside="prenorm/weight"),
        Rule("attn/[qk]_norm/weight", ()),
        Rule("pos_embed", "position", "1 n d"),
        Rule("global_pos_embed/weight", "position", "n d"),
    ),
    harmless=r"norm[12]?/bias|attn/[qk]_norm/bias|attn/qkv/bias_mask|drop\w*/|rngs",
    absent=r"cpe1/|(?:^|/)stages/|temperature|/visual/",
)
"""timm's ViT, DeiT, DINO and Equimo's, which have these names in Equinox's modules.

Blocks are blocks/N: attn/qkv holds query, key and value one after the other, stored (out, in); give
`num_heads`. Read from: timm 1.0.31 models/vision_transformer.py; equimo 1.1.0 models/vit.py.
"""

SWIN = Family(
    (*_BLOCK, *_BEFORE, Rule("attn/relative_position_bias_table", "relative_bias", "r h")),
    harmless=rf"{_NORM_BIASES}|attn/relative_position_index|attn_mask",
    needs=r"attn/relative_position_bias_table",
    absent=r"logit_scale|(?:^|/)stages/|cpe1/",
)
"""timm's Swin, whose tables of biases show the heads of each stage.

Read from: timm 1.0.31 models/swin_transformer.py.
"""

TORCHVISION = Family(
    (
        *IN_PROJ,
        *torch_mlp(first="mlp/(?:0|linear_1)", second="mlp/(?:3|linear_2)", exclude=""),
        *TORCH.norms("gain", "ln_1", "ln_2"),
        Rule("conv_proj/weight", "patch", "d c u v"),
        Rule("pos_embedding", "position", "1 n d"),
    ),
    harmless=r"ln_[12]/bias",
    needs=r"encoder_layer_\d+/self_attention/in_proj_weight",
)
"""torchvision's ViT, made of torch.nn.MultiheadAttention.

Read from: torchvision 0.29.2 models/vision_transformer.py.
"""
