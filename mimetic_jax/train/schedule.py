"""Learning-rate schedules per step, and the scaling of rates with the batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp

from mimetic_jax.base.errors import InputError

Rate: TypeAlias = float | jax.Array
Step: TypeAlias = int | jax.Array
Schedule: TypeAlias = Callable[[Rate, Step], jax.Array]
"""(highest rate, step) → rate. Both may be traced: one program trains at any rate."""

ScheduleName = Literal["constant", "cosine", "kentaroy_cosine", "timm_cosine", "triangle"]
Scaling = Literal["linear", "sqrt"]
Plateau = Literal["halve", "tenth"]


def make_schedule(
    name: ScheduleName,
    steps: int,
    *,
    warmup: int = 0,
    warmup_from: float = 0.0,
    final: float = 0.0,
    cooldown: int = 0,
    steps_per_epoch: int = 1,
) -> Schedule:
    """Return a schedule by name, as a function of its highest rate, `peak`, and the step.

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

    >>> rate = make_schedule("triangle", steps=100)
    >>> [round(float(rate(1.0, step)), 3) for step in (0, 20, 40, 80, 100)]
    [0.0, 0.5, 1.0, 0.05, 0.0]

    Reference: the triangle is the self-attention paper authors' CIFAR and ImageNet schedule;
    timm_cosine is what DeiT and the impulse paper train with (timm's `CosineLRScheduler` stepped
    once an epoch). kentaroy_cosine is what the Swin-T, MLP-Mixer and
    ConvMixer of the impulse paper train with on CIFAR-10: train_cifar10.py in
    kentaroy47/vision-transformers-cifar10 calls PyTorch's `CosineAnnealingLR.step(epoch − 1)` after
    each epoch.
    """
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
        return _kentaroy_cosine(steps, final, steps_per_epoch)
    if name == "triangle":
        return _triangle(steps)
    by_epoch = name == "timm_cosine"
    unit = steps_per_epoch if by_epoch else 1
    if warmup % unit:
        raise InputError(
            f"{warmup} warm-up steps are not whole epochs of {unit} steps, which timm_cosine needs"
        )
    warming_units, start = warmup // unit, 0 if by_epoch else warmup
    decaying = (steps - cooldown - start) / unit

    def schedule(peak: Rate, step: Step) -> jax.Array:
        at = step // unit
        warming = warmup_from + (peak - warmup_from) * at / max(warming_units, 1)
        if name == "constant":
            return jnp.where(at < warming_units, warming, peak)
        left = (1 + jnp.cos(math.pi * jnp.minimum((at - start) / decaying, 1))) / 2
        return jnp.where(at < warming_units, warming, final + (peak - final) * left)

    return schedule


def _triangle(steps: int) -> Schedule:
    knots = jnp.array([0, steps * 2 // 5, steps * 4 // 5, steps], jnp.float32)
    heights = jnp.array([0, 1, 1 / 20, 0], jnp.float32)
    return lambda peak, step: peak * jnp.interp(jnp.asarray(step, jnp.float32), knots, heights)


def _kentaroy_cosine(steps: int, final: float, steps_per_epoch: int) -> Schedule:
    epochs = steps / steps_per_epoch

    def schedule(peak: Rate, step: Step) -> jax.Array:
        epoch = step // steps_per_epoch
        # PyTorch's closed form; epoch 0 has the optimizer's own rate.
        done = jnp.where(epoch == 0, 0, (epoch - 2) / epochs)
        return final + (peak - final) * (1 + jnp.cos(math.pi * done)) / 2

    return schedule


def scaled_rate(rate: float, batch: int, base_batch: int, rule: Scaling = "linear") -> float:
    """rate · batch / base_batch ("linear", as in DeiT) or rate · √(batch / base_batch) ("sqrt",
    timm's for Adam's family unless told otherwise). A `base_batch` of 0 scales nothing."""
    if not base_batch:
        return rate
    ratio = batch / base_batch
    return rate * (ratio if rule == "linear" else math.sqrt(ratio))


def plateau_scale(losses: Sequence[float], rule: Plateau) -> float:
    """Return the factor of the learning rate after some evaluations, from their losses alone.

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
