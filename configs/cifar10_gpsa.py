"""ViTs on CIFAR-10 with gated positional self-attention (ConViT's GPSA) in all layers.

Paper: Mimetic Initialization of Self-Attention Layers, table 2, rows GPSA.
Command:
    python main.py --config=configs/cifar10_gpsa.py --config.data.dir=DIR \
        --config.model.dtype=bfloat16 --workdir=runs/cifar10_gpsa
Differs from the paper: as configs/cifar10_vit.py. ConViT has the gate in 10 of 12 layers and its
    class token in the last two alone; where all layers have it, the mean over patches is pooled.
    With 8 heads only 4 are local, as in ConViT's code. Positions are sin-cos, as in the other rows.
"""

from ml_collections import ConfigDict

from configs.recipes import small_images_vit


def get_config(text: str = "") -> ConfigDict:
    """Arguments: those of configs/cifar10_vit.py; `init` is the table's rows and their controls."""
    rows = "default+norm_matched+gpsa_8+gpsa_4+norm_matched_gpsa_4_value_out+gpsa_4_value_out"
    config = small_images_vit(f"init={rows},{text}", "cifar10")
    config.name += "_gpsa"
    return config
