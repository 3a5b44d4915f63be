"""AdamW with path rules for decay, freezing and learning-rate groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from mimetic_jax import paths
from mimetic_jax.errors import InputError

Rules = Sequence[tuple[str, float]]


def adamw(
    schedule: optax.Schedule,
    *,
    weight_decay: float = 0.0,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    clip: float = 0.0,
    decay_rules: Rules = (),
    rate_rules: Rules = (),
) -> optax.GradientTransformation:
    """AdamW: p ← p − η_t · r(p) · (Adam(clip(g)) + λ · d(p) · p).

    r and d are factors by the path of a parameter: the first rule that matches, else 1. A
    rate of 0 freezes: such a parameter neither moves nor counts in the clipped norm.

    Args:
        schedule: η, a function of the step.
        weight_decay: λ, decoupled and multiplied by the learning rate as in PyTorch.
        betas: Adam's decay rates.
        eps: Adam's ε.
        clip: largest global gradient norm; 0 for no clipping.
        decay_rules: ordered (regular expression, factor of λ).
        rate_rules: ordered (regular expression, factor of η).

    Raises:
        InputError: for a negative weight decay, clip norm or factor.
    """
    for name, value in (("weight decay", weight_decay), ("clip norm", clip)):
        if not value >= 0:
            raise InputError(f"{name} {value} is negative")
    for pattern, factor in (*decay_rules, *rate_rules):
        if not factor >= 0:
            raise InputError(f"factor {factor} of rule {pattern!r} is negative")
    return optax.chain(
        _scale_by_rules([(pattern, float(factor > 0)) for pattern, factor in rate_rules]),
        optax.clip_by_global_norm(clip) if clip else optax.identity(),
        optax.scale_by_adam(*betas, eps=eps),
        _decay_by_rules(weight_decay, decay_rules),
        _scale_by_rules(rate_rules),
        optax.scale_by_learning_rate(schedule),
    )


def _factors(tree: Any, rules: Rules) -> Any:
    named, treedef = paths.flatten(tree)
    return jax.tree.unflatten(treedef, [paths.first_match(rules, path, 1.0) for path, _ in named])


def _scale_by_rules(rules: Rules) -> optax.GradientTransformation:
    if not rules:
        return optax.identity()
    return optax.stateless(
        lambda updates, _: jax.tree.map(jnp.multiply, updates, _factors(updates, rules))
    )


def _decay_by_rules(weight_decay: float, rules: Rules) -> optax.GradientTransformation:
    if not weight_decay:
        return optax.identity()

    def decay(updates: Any, params: Any) -> Any:
        return jax.tree.map(
            lambda update, param, factor: update + weight_decay * factor * param,
            updates,
            params,
            _factors(params, rules),
        )

    return optax.stateless(decay)
