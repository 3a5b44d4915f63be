"""CIFAR-100 with the CIFAR-10 recipe.

Paper: Mimetic Initialization of Self-Attention Layers, table 4.
Differs from the paper: as configs/cifar10_vit.py.
"""

from ml_collections import ConfigDict

from configs.recipes import small_images_vit


def get_config(text: str = "") -> ConfigDict:
    """Arguments: those of configs/cifar10_vit.py."""
    return small_images_vit(text, "cifar100")
