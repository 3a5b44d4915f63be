"""ImageNet-1k in 150 epochs, the recipe of ConvMixer: "ResNet-style" in the paper.

Paper: Mimetic Initialization of Self-Attention Layers, table 3 (ResNet-style).
Hardware: ConvMixer's command asks for 10 GPUs of 64 images each.
Differs from the paper: it says that it trains as ConvMixer; the numbers are those of the command
    in locuslab/convmixer and of its defaults, among them that timm's loader erases mixed images.
    No source states which of timm's ViTs it is, whose settings the command takes: here vit_*, mean
    and deviation 0.5, and a test keeps 0.9 of an image. bfloat16 stands for float16. One seed, as
    published.
"""

from ml_collections import ConfigDict

from configs import arms, recipes


def get_config(batch: int = 640, variant: str = "Ti", init: arms.Names = arms.ALL) -> ConfigDict:
    """Arguments: batch (640, 1024), variant (Ti, S, B), init (arms.vision)."""
    config = recipes.imagenet(variant)
    config.name = f"imagenet_resnet_style_{variant}_{batch}"
    config.update(batch=batch, epochs=150.0)
    config.data.update(eval_fraction=0.9, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    config.data.augment.update(interpolation="random", erase_mixed=True)  # timm's loader
    config.data.mix.update(mixup=0.5, cutmix=0.5)
    config.optimizer.update(learning_rate=0.01, schedule="triangle", eps=1e-3, clip=1.0)
    config.optimizer.weight_decay = 2e-5  # timm's default: the command doesn't set it
    config.arms = arms.chosen(init, arms.vision(), arms.VISION)
    return config
