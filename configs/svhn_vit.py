"""SVHN with the CIFAR-10 recipe.

Paper: Mimetic Initialization of Self-Attention Layers, table 4.
Differs from the paper: as configs/cifar10_vit.py; no flips, since a mirrored digit is no digit (the
    paper says "the same settings" and doesn't say whether these flip); the 73,257 train images
    alone, which the paper doesn't say either.
"""

from ml_collections import ConfigDict

from configs.recipes import small_images_vit


def get_config(text: str = "") -> ConfigDict:
    """Arguments: those of configs/cifar10_vit.py."""
    config = small_images_vit(text, data="svhn")
    config.data.augment.flip = False
    return config
