"""Recipes of training that several configurations share."""

from __future__ import annotations

from typing import Any

from ml_collections import ConfigDict

from configs import arms
from configs.default import check_choice, default, model
from mimetic_jax.base.errors import InputError
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
    config.data.augment.randaugment = "torchvision-n2-m9"
    config.data.augment.erase = 0.25
    config.data.augment.erase_mode = "const"

    config.optimizer.learning_rate = 3e-3
    config.optimizer.schedule = "triangle"
    config.optimizer.weight_decay = 0.01  # on all parameters, as in the authors' script
    config.optimizer.clip = 1.0
    return config


def _shifted_and_flipped(data: str, epochs: float, size: int = 0) -> ConfigDict:
    """Three seeds on small images, in batches of 512, tested every ten epochs."""
    info = describe(data)
    config = default()
    config.seeds = (0, 1, 2)
    config.batch = 512
    config.epochs = epochs
    config.data.name = data
    config.data.augment.crop = (size or info.image_shape[0]) // 8
    config.data.augment.flip = True
    epoch = info.num_train // config.batch
    config.eval.batch = 1000
    config.eval.every = config.checkpoint_every = 10 * epoch
    config.log_every = epoch
    return config


def kentaroy(epochs: float, learning_rate: float) -> ConfigDict:
    """That of kentaroy47's program on CIFAR-10, with which the structured paper trains no ViT.

    Source: randomaug.py and train_cifar10.py of kentaroy47/vision-transformers-cifar10, 5bb83d3.
    Its RandAugment is reproduced literally: nearly a quarter of the images are of one color.
    Differs from it: an epoch is 97 steps and leaves out 336 images, others each time, where the
    program takes them as a 98th batch. Its test follows each epoch, ours every tenth.
    """
    config = _shifted_and_flipped("cifar10", epochs)
    config.data.mean, config.data.std = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
    config.data.augment.randaugment = "kentaroy-n2-m14"
    config.data.augment.randaugment_first = True

    config.optimizer.name = "adam"
    config.optimizer.learning_rate = learning_rate
    config.optimizer.schedule = "kentaroy_cosine"
    config.optimizer.weight_decay = 0.0
    return config


def deit(variant: str) -> ConfigDict:
    """DeiT's, for a size of ViT with patches of 16 pixels.

    A batch is mixed with one λ here, where DeiT's code and timm's loader draw one per process.
    """
    config = imagenet(variant)
    config.batch = 1024
    config.epochs = 300.0  # DeiT parses 10 epochs of cool-down and never trains them
    config.ema = 0.99996

    config.data.repeats = 3
    config.data.augment.interpolation = "bicubic"
    config.data.mix.mixup = 0.8
    config.data.mix.cutmix = 1.0

    config.model.drop_path = 0.1

    config.optimizer.learning_rate = 5e-4
    config.optimizer.base_batch = 512
    config.optimizer.schedule = "timm_cosine"
    config.optimizer.warmup_epochs = 5.0
    config.optimizer.warmup_from = 1e-6  # as it is, not scaled with the batch
    config.optimizer.final = 1e-5
    config.optimizer.weight_decay = 0.05
    return config


def imagenet(variant: str) -> ConfigDict:
    """What every recipe for 224×224 pixels has in common here: timm's augmentation and groups."""
    check_choice("variant", variant, VARIANTS)
    config = default()
    config.label_smoothing = 0.1

    config.data.name = "imagenet2012"
    config.data.size = 224
    config.data.eval_fraction = 0.875
    config.data.augment.crop_scale = (0.08, 1.0)
    config.data.augment.flip = True
    config.data.augment.randaugment = "rand-m9-mstd0.5-inc1"
    config.data.augment.erase = 0.25

    config.model.update(VARIANTS[variant])
    config.model.patch = 16
    config.model.dtype = "bfloat16"

    config.optimizer.no_decay = True

    config.eval.batch = 512
    config.eval.every_epochs = 10.0
    config.checkpoint_every = 1_250  # an epoch of 1024 images
    return config


def structured(variant: str) -> ConfigDict:
    """DeiT's, as the structured paper trains with it."""
    config = deit(variant)
    config.epochs = 310.0
    config.ema = 0.0
    config.data.augment.interpolation = "random"  # timm's default: the command doesn't set it
    config.data.augment.erase_mixed = True  # timm's loader
    config.model.base = "torch"
    config.model.token_std = 0.0  # as timm leaves it with weight_init=skip
    config.optimizer.cooldown_epochs = 10.0
    return config


def small_data(data: str) -> ConfigDict:
    """DeiT's augmentation, with a longer warm-up to a higher rate."""
    check_choice("data", data, SMALL_DATA)
    config = deit("Ti")
    config.seeds = (0, 1, 2)
    config.batch = 512
    config.ema = 0.0  # the command sets its decay but doesn't turn it on

    config.data.name = data
    published = describe("imagenet2012")  # whose mean and deviation all of them are normalized by
    config.data.mean, config.data.std = published.mean, published.std
    config.data.repeats = 1
    config.data.augment.interpolation = "random"

    config.optimizer.learning_rate = 2e-3
    config.optimizer.base_batch = 0
    config.optimizer.warmup_epochs = 50.0
    config.optimizer.final = 1e-6

    epoch = describe(data).num_train // config.batch
    config.checkpoint_every = 10 * epoch
    config.log_every = epoch
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
    """The set-up of Bai et al. (2018): constant learning rates, which the plateau rule lowers."""
    config = language(width, depth, heads, init)
    config.name = f"{data}_{width}_{depth}_{heads}"
    config.data.name = data
    config.epochs = epochs
    config.eval.every_epochs = 1.0
    config.optimizer.name = optimizer
    config.optimizer.schedule = "constant"
    if optimizer == "sgd":
        config.optimizer.learning_rate = 4.0
        config.optimizer.weight_decay = 0.0
    else:
        config.optimizer.learning_rate = 5e-4
        config.optimizer.warmup = 200
        config.optimizer.no_decay = True
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
    config.data.length, config.data.valid = 80, 40
    config.batch = config.eval.batch = 16
    config.model.dropout = 0.45
    config.model.embedding_dropout = 0.25
    config.optimizer.clip = 0.35
    config.optimizer.plateau = "halve"
    config.log_every = 100
    config.checkpoint_every = 500
    return config


def short_text(width: int, depth: int, heads: int, steps: int, init: arms.Names) -> ConfigDict:
    """Language models that train for minutes, with the optimizer of configs/python_docs.py."""
    config = language(width, depth, heads, init)
    config.steps = steps
    config.model.base = "torch"
    config.model.embedding_std = beside_positions(width)

    config.optimizer.learning_rate = 8e-3
    config.optimizer.schedule = "constant"
    config.optimizer.warmup = steps // 10
    config.optimizer.weight_decay = 0.01
    config.optimizer.clip = 1.0

    return config


def beside_positions(width: int) -> float:
    """Standard deviation of an embedding that sinusoidal positions don't drown: D^-1/2 / 2.

    The model multiplies it by √D: a third of what enters the first block is content then, where
    the model's own .01 leaves one percent at width 64. The factor was chosen by the default arm,
    see configs/python_docs.py.
    """
    return 0.5 * width**-0.5


def few_images(share: float, **fields: Any) -> ConfigDict:
    """A ViT with mean pooling on a part of CIFAR-10, crop and flip: what one CPU core trains."""
    config = default()
    config.data.name = "cifar10"
    config.data.subset = share
    config.data.augment.crop, config.data.augment.flip = 4, True
    config.model = model("vit", pool="mean", **fields)
    return config


TEXTS = {"text": "python_docs", "ptb": "ptb_char_raw", "words": "ptb_word"}


def sequences(task: str, **fields: Any) -> ConfigDict:
    """A GPT on a text, on copying or on recall of 4 pairs: what one CPU core trains."""
    if task in TEXTS:
        config = default("text")
        config.data.name = TEXTS[task]
        config.data.length = config.data.valid = 64
        config.eval.batch = 64
        embedding: dict[str, Any] = {"embedding_std": beside_positions(fields["width"])}
    else:
        config = default("recall")
        config.data.name = "associative" if task == "recall" else task
        config.data.num_test = 64
        embedding = {"embedding": "uniform"}
    if task == "recall":
        config.data.vocabulary, config.data.pairs, config.data.queries = 32, 4, 4
    config.model = model("gpt", **embedding, **fields)
    return config


def recall(
    name: str, state: int, positions: str, rate: float, steps: int, init: arms.Names
) -> ConfigDict:
    """Small models of recall, three seeds of each arm."""
    check_choice("model", name, ("mamba", "gpt"))
    if other := positions if name == "mamba" else state:
        raise InputError(f"model {name} has no {'positions' if positions else 'state'} {other}")
    own = {"state": state or 32} if name == "mamba" else {"positions": positions or "sinusoidal"}
    config = default("recall")
    config.name = name
    config.seeds = (0, 1, 2)
    config.batch = 64
    config.steps = steps
    config.model = model(name, width=64, depth=2, heads=4, **own)
    if name == "mamba":  # PyTorch's; at the reference's .02 the first block drowns the tokens
        config.model.embedding_std = 1.0
    else:  # at a normal of .01 the positions drown the tokens
        config.model.embedding = "uniform"
    every = arms.mamba() if name == "mamba" else arms.language()
    config.arms = arms.chosen(init, every, arms.LANGUAGE)

    config.optimizer.learning_rate = rate
    config.optimizer.schedule = "constant"
    config.optimizer.warmup = 50
    config.optimizer.clip = 1.0

    config.data.num_test = 64

    config.eval.every = max(1, steps // 16)
    config.checkpoint_every = 500
    return config
