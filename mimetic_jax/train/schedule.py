"""Learning-rate schedules, per step."""

from __future__ import annotations

import jax.numpy as jnp
import optax

from mimetic_jax.errors import InputError, unknown

SCHEDULES = ("constant", "cosine", "triangle")


def make_schedule(
    name: str, peak: float, steps: int, *, warmup: int = 0, final: float = 0.0
) -> optax.Schedule:
    """A schedule by name.

    - "cosine": linear from 0 to `peak` in `warmup` steps, then half a cosine to `final`.
    - "triangle": 0 → peak at 2/5 of the steps → peak/20 at 4/5 → 0, its own warm-up.
    - "constant": `peak`, after a linear `warmup`.

    Args:
        name: one of the above.
        peak: the highest learning rate.
        steps: total optimiser steps.
        warmup: steps of linear warm-up (cosine, constant).
        final: last learning rate (cosine).

    Raises:
        InputError: for an unknown name, a negative rate, or a warm-up longer than the training.

    Example:
        >>> rate = make_schedule("triangle", peak=1.0, steps=100)
        >>> [round(float(rate(step)), 3) for step in (0, 20, 40, 80, 100)]
        [0.0, 0.5, 1.0, 0.05, 0.0]

    Reference: the triangle is the self-attention paper authors' CIFAR and ImageNet schedule.
    """
    if name not in SCHEDULES:
        raise unknown("schedule", name, SCHEDULES)
    if not peak > 0:
        raise InputError(f"learning rate {peak} is not positive")
    if not 0 <= warmup < steps:
        raise InputError(f"{warmup} warm-up steps don't fit {steps} training steps")
    if name == "triangle":
        knots = jnp.array([0, steps * 2 // 5, steps * 4 // 5, steps], jnp.float32)
        rates = jnp.array([0, peak, peak / 20, 0], jnp.float32)
        return lambda step: jnp.interp(jnp.asarray(step, jnp.float32), knots, rates)
    if name == "constant":
        return optax.linear_schedule(peak if not warmup else 0.0, peak, max(warmup, 1))
    return optax.warmup_cosine_decay_schedule(0.0 if warmup else peak, peak, warmup, steps, final)
