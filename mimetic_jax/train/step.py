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
    *,
    accumulate: int = 1,
    ema: float = 0.0,
) -> TrainStep:
    """The step (state, batch, dropout key, rate) → (state, metrics): pure, so it `vmap`s.

    The rate, a number that may be traced, multiplies the optimizer's updates. Metrics are those of
    the loss and the `grad_norm` before clipping.

    Args:
        loss: (params, model state, batch, key) → (mean over the batch, (means by name, new model
            state)).
        accumulate: parts of the batch, whose gradients and new model states are averaged; a divisor
            of B. Each part starts from the model state of the step, so that running averages of a
            mean are those of the whole batch.
        ema: decay of the average of parameters and model state that `state.ema` holds,
            e ← ema e + (1 − ema) p, and the last value of integers; 0 for none.
    """
    gradient = jax.grad(loss, has_aux=True)

    def mean_gradient(
        params: Any, model_state: Any, batch: Any, key: jax.Array
    ) -> tuple[Any, tuple[Metrics, Any]]:
        if accumulate == 1:
            return gradient(params, model_state, batch, key)
        # Interleaved, so that each part is sharded like the whole batch.
        parts = jax.tree.map(
            lambda x: x.reshape(-1, accumulate, *x.shape[1:]).swapaxes(0, 1), batch
        )
        keys = jax.random.split(key, accumulate)

        def add(total: Any, part: Any) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, total, gradient(params, model_state, *part)), None

        first = jax.tree.map(lambda x: x[0], parts)
        shapes = jax.eval_shape(gradient, params, model_state, first, key)
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        total, _ = jax.lax.scan(add, zeros, (parts, keys))
        return jax.tree.map(lambda x: (x / accumulate).astype(x.dtype), total)

    def step(
        state: TrainState, batch: Any, key: jax.Array, rate: jax.Array | float
    ) -> tuple[TrainState, Metrics]:
        grads, (metrics, model_state) = mean_gradient(state.params, state.model_state, batch, key)
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
