"""A ViT-Ti on small data sets, every image resized to 224×224 pixels.

Paper: Structured Initialization for Vision Transformers, table 1.
Published: seed 0; the paper's figure 5 has five seeds.
Differs from the paper: see papers/structured.py; arms are those of the released code.
"""

from ml_collections import ConfigDict

from configs import arms, recipes


def get_config(data: str = "cifar10", init: arms.Names = arms.ALL) -> ConfigDict:
    """Arguments: data, init (arms.structured).

    `data` is food101, cifar10, cifar100, stl10, oxford_flowers102 or oxford_iiit_pet.
    """
    config = recipes.small_data(data)
    config.name = f"small_data_vit_{data}"
    config.data.augment.erase_mixed = True  # timm's loader
    config.model.update(base="torch", token_std=0.0)  # as timm leaves it with weight_init=skip
    config.arms = arms.chosen(init, arms.structured(), arms.STRUCTURED)
    return config
