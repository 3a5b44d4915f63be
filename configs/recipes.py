"""Recipes of training that several configurations share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from configs import arms
from configs.default import check_choice, default
from mimetic_jax.data import describe
from mimetic_jax.models import VARIANTS

SMALL_DATA = ("food101", "cifar10", "cifar100", "stl10", "oxford_flowers102", "oxford_iiit_pet")
"""The data sets of the structured paper's table 1."""


def small_images_vit(
    data: str,
    flip: bool = True,
    /,
    width: int = 192,
    depth: int = 12,
    heads: int = 3,
    patch: int = 2,
    size: int = 0,
    epochs: float = 100.0,
    scale: float = 1.0,
    randaugment: str = "torchvision-n2-m9",
    pretrained: str = "",
    init: arms.Names = arms.ALL,
) -> ConfigDict:
    """`size` is the side that images are resized to, in pixels, 0 for their own; `scale` is γ of
    the sin-cos positions, `randaugment` a policy or nothing; `pretrained` is a file whose attention
    and positions the arm of that name takes. Arms are those of arms.vision and arms.figures.
    """
    config = small_images(data, epochs, size)
    config.name = f"{data}_vit_{width}_{depth}_{heads}_p{patch}"
    if size:
        config.name += f"_s{size}"
    config.data.augment.flip = flip
    config.data.augment.randaugment = randaugment
    config.model.update(width=width, depth=depth, heads=heads, patch=patch)
    every, groups = arms.vision(scale, pretrained), arms.figures(scale)
    config.arms = arms.chosen(init, every, arms.VISION, groups)
    return config


def small_images(data: str, epochs: float, size: int = 0) -> ConfigDict:
    """How small images are trained on, whatever the model; resized to `size` pixels, 0 for none."""
    config = _shifted_and_flipped(data, epochs, size)
    if size:
        config.data.size = size
        config.data.augment.interpolation = "bicubic"  # that of the test
    config.data.augment.update(randaugment="torchvision-n2-m9", erase=0.25, erase_mode="const")
    # The decay is on all parameters, as in the authors' script.
    config.optimizer.update(learning_rate=3e-3, schedule="triangle", weight_decay=0.01, clip=1.0)
    return config


def _shifted_and_flipped(data: str, epochs: float, size: int = 0) -> ConfigDict:
    """Three seeds on small images, in batches of 512, tested every ten epochs."""
    info = describe(data)
    config = default()
    config.update(seeds=(0, 1, 2), batch=512, epochs=epochs)
    config.data.name = data
    config.data.augment.update(crop=(size or info.image_shape[0]) // 8, flip=True)
    epoch = info.num_train // config.batch
    config.eval.update(batch=1000, every=10 * epoch)
    config.update(log_every=epoch, checkpoint_every=10 * epoch)
    return config


def kentaroy(epochs: float, learning_rate: float) -> ConfigDict:
    """That of kentaroy47's program on CIFAR-10, with which the structured paper trains no ViT.

    Source: randomaug.py and train_cifar10.py of kentaroy47/vision-transformers-cifar10, 5bb83d3.
    Its RandAugment is reproduced literally: nearly a quarter of the images are of one color.
    Differs from it: an epoch is 97 steps and leaves out 336 images, others each time, where the
    program takes them as a 98th batch. Its test follows each epoch, ours every tenth.
    """
    config = _shifted_and_flipped("cifar10", epochs)
    config.data.update(mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010))
    config.data.augment.update(randaugment="kentaroy-n2-m14", randaugment_first=True)
    config.optimizer.update(name="adam", learning_rate=learning_rate, weight_decay=0.0)
    config.optimizer.schedule = "kentaroy_cosine"
    return config


def deit(variant: str) -> ConfigDict:
    """DeiT's, for a size of ViT with patches of 16 pixels.

    A batch is mixed with one λ here, where DeiT's code and timm's loader draw one per process.
    """
    config = imagenet(variant)
    # DeiT parses 10 epochs of cool-down and never trains them.
    config.update(batch=1024, epochs=300.0, ema=0.99996)
    config.data.repeats = 3
    config.data.augment.interpolation = "bicubic"
    config.data.mix.update(mixup=0.8, cutmix=1.0)
    config.model.drop_path = 0.1
    config.optimizer.update(learning_rate=5e-4, base_batch=512, weight_decay=0.05)
    # The start of the warm-up is as it is, not scaled with the batch.
    config.optimizer.update(schedule="timm_cosine", warmup_epochs=5.0, warmup_from=1e-6, final=1e-5)
    return config


def imagenet(variant: str) -> ConfigDict:
    """What every recipe for 224×224 pixels has in common here: timm's augmentation and groups."""
    check_choice("variant", variant, VARIANTS)
    config = default()
    config.label_smoothing = 0.1
    config.data.update(name="imagenet2012", size=224, eval_fraction=0.875)
    config.data.augment.update(crop_scale=(0.08, 1.0), flip=True, erase=0.25)
    config.data.augment.randaugment = "rand-m9-mstd0.5-inc1"
    config.model.update(VARIANTS[variant], patch=16, dtype="bfloat16")
    config.optimizer.no_decay = True
    config.eval.update(batch=512, every_epochs=10.0)
    config.checkpoint_every = 1_250  # an epoch of 1024 images
    return config


def structured(variant: str) -> ConfigDict:
    """DeiT's, as the structured paper trains with it."""
    config = deit(variant)
    config.update(epochs=310.0, ema=0.0)
    config.data.augment.interpolation = "random"  # timm's default: the command doesn't set it
    config.data.augment.erase_mixed = True  # timm's loader
    config.model.update(base="torch", token_std=0.0)  # as timm leaves it with weight_init=skip
    config.optimizer.cooldown_epochs = 10.0
    return config


def small_data(data: str) -> ConfigDict:
    """DeiT's augmentation, with a longer warm-up to a higher rate."""
    check_choice("data", data, SMALL_DATA)
    config = deit("Ti")
    config.update(seeds=(0, 1, 2), batch=512)
    config.ema = 0.0  # the command sets its decay but doesn't turn it on
    published = describe("imagenet2012")  # whose mean and deviation all of them are normalized by
    config.data.update(name=data, mean=published.mean, std=published.std, repeats=1)
    config.data.augment.interpolation = "random"
    config.optimizer.update(learning_rate=2e-3, base_batch=0, warmup_epochs=50.0, final=1e-6)
    epoch = describe(data).num_train // config.batch
    config.update(log_every=epoch, checkpoint_every=10 * epoch)
    return config


def language(width: int, depth: int, heads: int, init: arms.Names) -> ConfigDict:
    """Language models of some size, three seeds of each arm."""
    config = default("text")
    config.seeds = (0, 1, 2)
    config.model.update(width=width, depth=depth, heads=heads)
    config.arms = arms.chosen(init, arms.language(), arms.LANGUAGE)
    return config


def bai(
    data: str, width: int, depth: int, heads: int, epochs: float, optimizer: str, init: arms.Names
) -> ConfigDict:
    """The set-up of Bai et al. (2018): constant learning rates, which the plateau rule lowers, and
    a text that each epoch and each seed reads from its start to its end."""
    config = language(width, depth, heads, init)
    config.update(name=f"{data}_{width}_{depth}_{heads}", epochs=epochs)
    config.data.update(name=data, shuffled=False)
    config.eval.every_epochs = 1.0
    config.optimizer.update(name=optimizer, schedule="constant")
    if optimizer == "sgd":
        config.optimizer.update(learning_rate=4.0, weight_decay=0.0)
    else:
        config.optimizer.update(learning_rate=5e-4, warmup=200, no_decay=True)
    return config


def words(
    data: str,
    /,
    width: int = 384,
    depth: int = 12,
    heads: int = 8,
    epochs: float = 100.0,
    optimizer: str = "adamw",
    init: arms.Names = arms.ALL,
) -> ConfigDict:
    """`optimizer` is adamw or sgd; arms are those of arms.language."""
    config = bai(data, width, depth, heads, epochs, optimizer, init)
    config.data.update(length=80, valid=40)
    config.batch = config.eval.batch = 16
    config.model.update(dropout=0.45, embedding_dropout=0.25)
    config.optimizer.update(clip=0.35, plateau="halve")
    config.update(log_every=100, checkpoint_every=500)
    return config


def short_text(width: int, depth: int, heads: int, steps: int, init: arms.Names) -> ConfigDict:
    """Language models that train for minutes, with the optimizer of configs/python_docs.py."""
    config = language(width, depth, heads, init)
    config.steps = steps
    config.model.update(base="torch", embedding_std=beside_positions(width))
    config.optimizer.update(learning_rate=8e-3, schedule="constant", weight_decay=0.01)
    config.optimizer.update(warmup=steps // 10, clip=1.0)
    return config


def beside_positions(width: int) -> float:
    """Standard deviation of an embedding that sinusoidal positions don't drown: D^-1/2 / 2.

    The model multiplies it by √D: a third of what enters the first block is content then, where
    the model's own .01 leaves one percent at width 64. The factor was chosen by the default arm,
    see configs/python_docs.py.
    """
    return 0.5 * width**-0.5


MODERN: Mapping[str, Any] = {
    "positions": "rotary",
    "qk_norm": True,
    "rms_norm": True,
    "swiglu": True,
    "mlp_ratio": 8 / 3,
}
"""Fields of a GPT as language models of today are."""
