"""Optimizers with path rules for decay, freezing and learning-rate groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax
from optax import contrib

from mimetic_jax import zoo
from mimetic_jax.base.errors import InputError
from mimetic_jax.rules import paths
from mimetic_jax.rules.rule import ATTENTION, Rule, find_rule

Rules = Sequence[tuple[str, float]]

_HIDDEN = {*ATTENTION, "mlp_in", "mlp_gate", "mlp_out", "token_in", "token_out"}
"""Roles of the kernels that Muon updates: not those of the first and last layer, nor filters."""


def make_optimizer(
    name: str,
    *,
    weight_decay: float = 0.0,
    eps: float = 1e-8,
    clip: float = 0.0,
    decay_rules: Rules = (),
    rate_rules: Rules = (),
    roles: Sequence[Rule] | None = None,
) -> optax.GradientTransformation:
    """Make an optimizer by name, with updates of a learning rate of 1: times η_t they move p.

    - "adamw": p ← p − η_t · r(p) · (Adam(clip(g)) + λ · d(p) · p).
    - "adam": the same without weight decay.
    - "muon": p ← p − η_t · r(p) · (0.2 √max(m, n) · O + λ · d(p) · p) for each kernel of a hidden
      layer as a matrix of m inputs × n outputs, all heads together, where O is close to U Vᵀ of the
      singular vectors of its momentum. All other parameters are AdamW's, also kernels that no rule
      describes. The factor gives O the root mean square of Adam's updates, so that both take the
      same η and λ.
    - "sgd": p ← p − η_t · r(p) · clip(g), without momentum.

    r and d are factors by the path of a parameter: the first rule that matches, else 1. A
    rate of 0 freezes: such a parameter neither moves nor counts in the clipped norm.

    λ is multiplied by the learning rate, as in PyTorch. Muon's momentum decays at 0.95. `clip` is
    the largest global norm of the gradient, 0 for no limit; PyTorch divides by the norm + 1e-6.
    The rules `roles` tell Muon a kernel's inputs from its outputs and layers; by default those that
    `rewrite` finds.

    Reference: Decoupled Weight Decay Regularization, algorithm 2, as PyTorch's `AdamW` has it; Muon
    is Scalable for LLM Training (Liu et al. 2025), eq. 4, as `optax.contrib` has it.
    """
    if name not in ("adamw", "muon") and weight_decay:
        raise InputError(f"{name} has no weight decay: set {weight_decay} to 0, or take adamw")
    adam = optax.scale_by_adam(eps=eps)
    direction = (
        _muon(adam, roles) if name == "muon" else adam,
        _decay_by_rules(weight_decay, decay_rules),
    )
    return optax.chain(
        # Frozen gradients become zero before the norm is taken.
        _scale_by_rules([(pattern, float(factor > 0)) for pattern, factor in rate_rules]),
        optax.clip_by_global_norm(clip) if clip else optax.identity(),
        *(() if name == "sgd" else direction),
        _scale_by_rules(rate_rules),
        optax.scale(-1.0),
    )


def _muon(
    adam: optax.GradientTransformation, roles: Sequence[Rule] | None
) -> optax.GradientTransformation:
    """Take Muon's directions of the kernels of attention and MLPs, Adam's of the rest."""

    def both(tree: Any) -> optax.GradientTransformation:
        named, treedef = paths.flatten(tree)
        rules, among = zoo.rules_of(tree) if roles is None else roles, dict(named)
        axes: list[contrib.MuonDimensionNumbers | None] = []
        for path, leaf in named:
            rule, _ = find_rule(path, rules, among, leaf.ndim) or (None, "")
            hidden = rule and rule.roles and _HIDDEN.issuperset(rule.roles)
            axes.append(contrib.MuonDimensionNumbers(*rule.matrix) if rule and hidden else None)
        labels = ["muon" if numbers else "adam" for numbers in axes]
        numbers = jax.tree.unflatten(treedef, axes)
        # The direction alone: learning rates and decay follow by their rules.
        muon = contrib.muon(-1.0, consistent_rms=0.2, muon_weight_dimension_numbers=numbers)
        return optax.partition({"muon": muon, "adam": adam}, jax.tree.unflatten(treedef, labels))

    return optax.GradientTransformation(
        lambda params: both(params).init(params),
        lambda updates, state, params=None: both(updates).update(updates, state, params),
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
