"""What the GPU queue measures and trains, most informative first."""

from __future__ import annotations

from types import ModuleType

from ml_collections import ConfigDict

from benchmarks.gpu.throughput import Measurement
from configs import cifar10_vit, ptb_char, ptb_word, recipes

VISION_ARMS = ("mimetic", "norm_matched", "default", "sincos")
TEXT_ARMS = ("mimetic", "default", "norm_matched")
"""In training order: the arms that claims need come first."""

TEXT_EPOCHS = 100
"""As in the paper."""


def measurements() -> list[Measurement]:
    """The training steps to time, all on random data, so that no data set is needed."""
    return [
        Measurement(_one_arm(cifar(heads=3)), peer=False),  # its step augments, PyTorch's doesn't
        Measurement(_one_arm(ptb(ptb_char)), peer=True),
        *(Measurement(deit(variant), peer=True) for variant in ("S", "Ti", "B")),
        Measurement(_one_arm(ptb(ptb_word)), peer=True),
        Measurement(_one_arm(cifar(heads=6)), peer=False),
    ]


def cifar(heads: int, data_dir: str | None = None) -> ConfigDict:
    """The comparison of table 1 for ViT-Tiny with `heads` heads."""
    config = cifar10_vit.get_config(f"width=192,depth=12,heads={heads}")
    config.data.dir = data_dir
    config.model.dtype = "bfloat16"
    config.checkpoint_every = 5 * config.log_every  # 5 epochs: half a minute at 10k images/s
    return _with_arms(config, VISION_ARMS)


def text(text_dir: str, epochs: int = TEXT_EPOCHS) -> ConfigDict:
    """The comparison of table 6 on the characters of the Penn Treebank.

    The learning rate depends on the losses so far, not on the number of epochs, so a shorter run
    is the beginning of the paper's.
    """
    config = ptb(ptb_char)
    config.data.dir = text_dir
    config.epochs = float(epochs)
    if epochs != TEXT_EPOCHS:
        config.name += f"_e{epochs}"
    config.log_every, config.checkpoint_every = 500, 2500  # 5 epochs
    return _with_arms(config, TEXT_ARMS)


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


def _with_arms(config: ConfigDict, arms: tuple[str, ...]) -> ConfigDict:
    config.arms = ConfigDict({arm: config.arms[arm] for arm in arms}, sort_keys=False)
    return config


def _one_arm(config: ConfigDict) -> ConfigDict:
    return _with_arms(config, ("default",))
