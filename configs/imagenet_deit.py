"""ImageNet-1k in 300 epochs, the DeiT recipe.

Paper: Mimetic Initialization of Self-Attention Layers, table 3 (DeiT-style).
Hardware: DeiT's code asks for 4 GPUs of 256 images each.
Differs from the paper: it says that it trains as DeiT; the numbers are those of
    facebookresearch/deit. bfloat16 stands for float16. The published accuracy is of the parameters
    themselves, "average" beside it of their moving average. One seed, as published.
"""

from ml_collections import ConfigDict

from configs import arms, recipes


def get_config(variant: str = "Ti", init: arms.Names = arms.ALL) -> ConfigDict:
    """Arguments: variant (Ti, S, B), init (arms.vision)."""
    config = recipes.deit(variant)
    config.name = f"imagenet_deit_{variant}"
    config.arms = arms.chosen(init, arms.vision(), arms.VISION)
    return config
