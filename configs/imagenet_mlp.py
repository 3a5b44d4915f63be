"""A DeiT-S on ImageNet-1k in 100 epochs whose MLPs start with a mean.

Paper: Mimetic Initialization of MLPs, figure 3.
Differs from the paper: b isn't stated there, see papers/mlp.py; the constant bias is as large. Its
    other control, a learnable b · sum(x), is left out. One seed, as published.
"""

from ml_collections import ConfigDict

from configs import arms, recipes

COMPARED = ("default", "norm_matched_mean_shift", "constant_bias", "mean_shift")


def get_config(init: arms.Names = arms.ALL) -> ConfigDict:
    """Arguments: init (arms.mlp)."""
    config = recipes.deit("S")
    config.update(name="imagenet_mlp", epochs=100.0)
    every = arms.mlp(config.model.width, config.model.base)
    config.arms = arms.chosen(init, every, COMPARED)
    return config
