"""A Swin-B on ImageNet-1k, with the recipe of its authors.

Paper: Structured Initialization for Vision Transformers, table 3 (Swin-B).
Differs from the paper: it says that it trains as the Swin paper does; the numbers are those of
    microsoft/Swin-Transformer for swin_base_patch4_window7_224 since October 2022, when its cosine
    came to begin after the warm-up. bfloat16 stands for float16. The impulse is that of
    configs/swin_cifar.py, one offset per head. One seed.
"""

from ml_collections import ConfigDict

from configs import arms, recipes
from configs.default import model
from mimetic_jax.schemes import ImpulseBias


def get_config(init: arms.Names = arms.ALL) -> ConfigDict:
    """Arguments: init (arms.structured)."""
    config = recipes.deit("B")
    config.name = "imagenet_swin"
    config.ema = 0.0
    config.data.repeats = 1
    config.model = model("swin", drop_path=0.5, dtype="bfloat16")  # the defaults are Swin-B
    config.optimizer.update(schedule="cosine", warmup_epochs=20.0, clip=5.0)
    config.arms = arms.chosen(init, arms.structured(ImpulseBias()), arms.STRUCTURED)
    return config
