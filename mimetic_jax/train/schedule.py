"""Learning-rate schedules per step, and the scaling of rates with the batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import optax

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import Range, converted

ScheduleName = Literal["constant", "cosine", "kentaroy_cosine", "timm_cosine", "triangle"]
Scaling = Literal["linear", "sqrt"]
Plateau = Literal["halve", "tenth"]


def make_schedule(
    name: ScheduleName,
    peak: float,
    steps: int,
    *,
    warmup: int = 0,
    warmup_from: float = 0.0,
    final: float = 0.0,
    cooldown: int = 0,
    steps_per_epoch: int = 1,
) -> optax.Schedule:
    """A schedule by name, whose highest rate is `peak`.

    - "constant": `peak`, after a linear warm-up.
    - "cosine": linear from `warmup_from` to `peak`, then half a cosine to `final`.
    - "timm_cosine": constant within an epoch. Linear in the epochs of the warm-up, after which the
      cosine continues where it would be without a warm-up: in epoch e of E the rate is
      final + (peak − final) · (1 + cos(π e / E)) / 2.
    - "kentaroy_cosine": constant within an epoch: `peak` in epoch 0, and in epoch e ≥ 1 of E
      final + (peak − final) · (1 + cos(π (e − 2) / E)) / 2, a cosine two epochs late. It peaks in
      epoch 2 and is above `final` in the last.
    - "triangle": 0 → peak at 2/5 of the steps → peak/20 at 4/5 → 0, its own warm-up.

    `warmup` and `cooldown` are numbers of steps, the last ones of `steps` being at `final`.

    >>> rate = make_schedule("triangle", peak=1.0, steps=100)
    >>> [round(float(rate(step)), 3) for step in (0, 20, 40, 80, 100)]
    [0.0, 0.5, 1.0, 0.05, 0.0]

    Reference: the triangle is the self-attention paper authors' CIFAR and ImageNet schedule;
    timm_cosine is what DeiT and the impulse paper train with (timm's `CosineLRScheduler` stepped
    once an epoch). kentaroy_cosine is what the Swin-T, MLP-Mixer and
    ConvMixer of the impulse paper train with on CIFAR-10: train_cifar10.py in
    kentaroy47/vision-transformers-cifar10 calls PyTorch's `CosineAnnealingLR.step(epoch − 1)` after
    each epoch.
    """
    converted("learning rate", Annotated[float, Range(0, above=True)], peak)
    if not 0 <= warmup < steps:
        raise InputError(f"{warmup} warm-up steps don't fit {steps} training steps")
    if not 0 <= cooldown < steps - warmup:
        raise InputError(
            f"{cooldown} cool-down steps don't fit {steps} training steps, {warmup} of them warm-up"
        )
    if cooldown and name not in ("cosine", "timm_cosine"):
        raise InputError(f"the {name} schedule takes no cool-down: {cooldown} steps of it given")
    if warmup and name in ("kentaroy_cosine", "triangle"):
        raise InputError(f"the {name} schedule takes no warm-up: {warmup} steps of it given")
    if final and name in ("constant", "triangle"):
        raise InputError(f"the {name} schedule takes no final rate: {final} given")
    if name == "kentaroy_cosine":
        return _kentaroy_cosine(peak, steps, final, steps_per_epoch)
    if name == "triangle":
        knots = jnp.array([0, steps * 2 // 5, steps * 4 // 5, steps], jnp.float32)
        rates = jnp.array([0, peak, peak / 20, 0], jnp.float32)
        return lambda step: jnp.interp(jnp.asarray(step, jnp.float32), knots, rates)
    if name == "timm_cosine":
        return _timm_cosine(peak, steps - cooldown, warmup, warmup_from, final, steps_per_epoch)
    first = warmup_from if warmup else peak
    if name == "constant":
        return optax.linear_schedule(first, peak, max(warmup, 1))
    return optax.warmup_cosine_decay_schedule(first, peak, warmup, steps - cooldown, final)


def _kentaroy_cosine(peak: float, steps: int, final: float, steps_per_epoch: int) -> optax.Schedule:
    epochs = steps / steps_per_epoch

    def schedule(step: jax.typing.ArrayLike) -> jax.Array:
        epoch = jnp.asarray(step) // steps_per_epoch
        # PyTorch's closed form; epoch 0 has the optimizer's own rate.
        decayed = (1 + jnp.cos(math.pi * jnp.where(epoch == 0, 0, (epoch - 2) / epochs))) / 2
        return final + (peak - final) * decayed

    return schedule


def _timm_cosine(
    peak: float, steps: int, warmup: int, warmup_from: float, final: float, steps_per_epoch: int
) -> optax.Schedule:
    if warmup % steps_per_epoch:
        raise InputError(
            f"{warmup} warm-up steps are not whole epochs of {steps_per_epoch} steps, "
            "which timm_cosine needs"
        )
    epochs, warmup_epochs = steps / steps_per_epoch, warmup // steps_per_epoch

    def schedule(step: jax.typing.ArrayLike) -> jax.Array:
        epoch = jnp.asarray(step) // steps_per_epoch
        decayed = (1 + jnp.cos(math.pi * jnp.minimum(epoch / epochs, 1))) / 2
        warming = warmup_from + (peak - warmup_from) * epoch / max(warmup_epochs, 1)
        return jnp.where(epoch < warmup_epochs, warming, final + (peak - final) * decayed)

    return schedule


def scaled_rate(rate: float, batch: int, base_batch: int, rule: Scaling = "linear") -> float:
    """rate · batch / base_batch ("linear", as in DeiT) or rate · √(batch / base_batch) ("sqrt",
    timm's for Adam's family unless told otherwise). A `base_batch` of 0 scales nothing."""
    if not base_batch:
        return rate
    ratio = batch / base_batch
    return rate * (ratio if rule == "linear" else math.sqrt(ratio))


def plateau_scale(losses: Sequence[float], rule: Plateau) -> float:
    """The factor of the learning rate after some evaluations, from their losses alone.

    - "halve": ½ more whenever, after the fifth, a loss isn't below the largest of the five before.
    - "tenth": ⅒ more whenever, after the fifth, a loss is above the largest of the three before.

    It depends on the history alone, without other state, which makes resuming exact.

    Reference: word_cnn and char_cnn of the program of Bai et al., which the self-attention paper's
    language models follow.
    """
    scale = 1.0
    for index in range(5, len(losses)):
        if rule == "halve" and losses[index] >= max(losses[index - 5 : index]):
            scale /= 2
        if rule == "tenth" and losses[index] > max(losses[index - 3 : index]):
            scale /= 10
    return scale
