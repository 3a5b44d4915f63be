"""A small ViT on CIFAR-10 whose MLPs start with a mean.

Paper: Mimetic Initialization of MLPs, figure 2 (ViT). Figure 4 is a ConvNeXt's: see
    configs/convnext_cifar.py.
Differs from the paper: as configs/convnext_cifar.py. That a ViT starts from PyTorch's defaults is
    read from what the paper says of its ConvNeXts.
"""

from ml_collections import ConfigDict

from configs import arms, recipes

FIGURE_2 = ("default", *arms.with_noise("mean_shift", "mimetic", "mimetic_mean_shift"))
"""The paper's arms, and our controls."""


def get_config(epochs: float = 10.0, b: float = arms.B, init: arms.Names = arms.ALL) -> ConfigDict:
    """Arguments: epochs (10, 20, 50), b, init (arms.mlp)."""
    config = recipes.small_images("cifar10", epochs)
    config.update(name=f"cifar_mlp_vit_{epochs:g}", seeds=(0, 1, 2, 3, 4))
    config.model.update(depth=8, patch=2, base="torch")
    config.arms = arms.chosen(init, arms.mlp(config.model.width, "torch", b), FIGURE_2)
    return config
