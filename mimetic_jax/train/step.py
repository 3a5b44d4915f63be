"""One training step, as a pure function of state, batch and key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import optax

from mimetic_jax.train.state import TrainState

Metrics: TypeAlias = dict[str, jax.Array]
Loss: TypeAlias = Callable[[Any, Any, Any, jax.Array], tuple[jax.Array, tuple[Metrics, Any]]]
TrainStep: TypeAlias = Callable[..., tuple[TrainState, Metrics]]


def make_train_step(
    loss: Loss,
    optimizer: optax.GradientTransformation,
    ema: float = 0.0,
) -> TrainStep:
    """Return the step (state, batch, dropout key, rate) → (state, metrics): pure, so it `vmap`s.

    The rate, a number that may be traced, multiplies the optimizer's updates. Metrics are those of
    the loss and the `grad_norm` before clipping.

    Args:
        loss: (params, model state, batch, key) → (mean over the batch, (means by name, new model
            state)).
        ema: decay of the average of parameters and model state that `state.ema` holds,
            e ← ema e + (1 − ema) p, and the last value of integers; 0 for none.
    """
    gradient = jax.grad(loss, has_aux=True)

    def step(
        state: TrainState, batch: Any, key: jax.Array, rate: jax.Array | float
    ) -> tuple[TrainState, Metrics]:
        grads, (metrics, model_state) = gradient(state.params, state.model_state, batch, key)
        with jax.named_scope("optimizer"):
            updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
            updates = jax.tree.map(lambda update: rate * update, updates)
            params = optax.apply_updates(state.params, updates)
        metrics = {**metrics, "grad_norm": optax.tree.norm(grads)}
        state = state.replace(
            step=state.step + 1, params=params, model_state=model_state, opt_state=opt_state
        )
        if ema:
            with jax.named_scope("optimizer"):
                state = state.replace(ema=_averaged(state.variables, state.ema, 1 - ema))
        return state, metrics

    return step


def _averaged(new: Any, old: Any, share: float) -> Any:
    """The averages with a share of the new values; of integers and the like, the new values."""
    average = optax.incremental_update(new, old, share)
    return jax.tree.map(
        lambda x, last: x.astype(last.dtype) if jnp.issubdtype(last.dtype, jnp.inexact) else last,
        average,
        new,
    )
