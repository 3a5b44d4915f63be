"""The training steps that are timed, most informative first."""

from __future__ import annotations

from types import ModuleType

from ml_collections import ConfigDict

from benchmarks.gpu.throughput import Measurement
from configs import cifar10_vit, ptb_char, ptb_word, recipes


def measurements() -> list[Measurement]:
    """The training steps to time, all on random data, so that no data set is needed."""
    return [
        Measurement(_one_arm(cifar(heads=3)), peer=False),  # its step augments, PyTorch's doesn't
        Measurement(_one_arm(ptb(ptb_char)), peer=True),
        *(Measurement(deit(variant), peer=True) for variant in ("S", "Ti", "B")),
        Measurement(_one_arm(ptb(ptb_word)), peer=True),
        Measurement(_one_arm(cifar(heads=6)), peer=False),
    ]


def cifar(heads: int) -> ConfigDict:
    """The self-attention paper's ViT-Tiny on CIFAR-10, in bfloat16."""
    config = cifar10_vit.get_config(f"width=192,depth=12,heads={heads}")
    config.model.dtype = "bfloat16"
    return config


def ptb(recipe: ModuleType) -> ConfigDict:
    """A Penn Treebank recipe at full size, in bfloat16."""
    config = recipe.get_config()
    config.model.dtype = "bfloat16"
    return config


def deit(variant: str) -> ConfigDict:
    """A DeiT at 224 pixels whose step is model and optimizer alone, as PyTorch's is.

    PyTorch would augment on the host, ours on the device; here neither augments.
    """
    config = recipes.deit(variant)
    config.name = f"deit_{variant}_224"
    config.batch = 128 if variant == "B" else 256
    config.ema = 0.0
    config.data.augment.update(flip=False, randaugment="", erase=0.0)
    config.data.mix.update(mixup=0.0, cutmix=0.0)
    return config


def _one_arm(config: ConfigDict) -> ConfigDict:
    config.arms = ConfigDict({"default": config.arms["default"]})
    return config
