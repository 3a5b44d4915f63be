"""One training step, as a pure function of state, batch and key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import optax

from mimetic_jax.train.state import TrainState

Metrics: TypeAlias = dict[str, jax.Array]
Loss: TypeAlias = Callable[[Any, Any, jax.Array], tuple[jax.Array, Metrics]]
TrainStep: TypeAlias = Callable[..., tuple[TrainState, Metrics]]


def make_train_step(
    loss: Loss,
    optimizer: optax.GradientTransformation,
    *,
    accumulate: int = 1,
    ema: float = 0.0,
) -> TrainStep:
    """The step (state, batch, dropout key, factor = 1) → (state, metrics): pure, so it `vmap`s.

    The factor multiplies the updates, and so the learning rate.

    Args:
        loss: (params, batch, key) → (mean over the batch, means by name).
        optimizer: an optax transformation.
        accumulate: parts the batch is cut into, gradients averaged; a divisor of B.
        ema: decay of the average of the parameters that `state.ema` holds, e ← ema e + (1 − ema) p;
            0 for none.

    Returns:
        The step; its metrics are those of the loss and the `grad_norm` before clipping.
    """
    gradient = jax.grad(loss, has_aux=True)

    def mean_gradient(params: Any, batch: Any, key: jax.Array) -> tuple[Any, Metrics]:
        if accumulate == 1:
            return gradient(params, batch, key)
        # Interleaved, so that each part is spread over the devices like the whole.
        parts = jax.tree.map(
            lambda x: x.reshape(-1, accumulate, *x.shape[1:]).swapaxes(0, 1), batch
        )
        keys = jax.random.split(key, accumulate)

        def add(total: Any, part: Any) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, total, gradient(params, *part)), None

        shapes = jax.eval_shape(gradient, params, jax.tree.map(lambda x: x[0], parts), key)
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        total, _ = jax.lax.scan(add, zeros, (parts, keys))
        return jax.tree.map(lambda x: x / accumulate, total)

    def step(
        state: TrainState, batch: Any, key: jax.Array, rate_scale: jax.Array | float = 1.0
    ) -> tuple[TrainState, Metrics]:
        grads, metrics = mean_gradient(state.params, batch, key)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        updates = jax.tree.map(lambda update: rate_scale * update, updates)
        params = optax.apply_updates(state.params, updates)
        metrics["grad_norm"] = optax.tree.norm(grads)
        average = state.ema
        if ema:
            average = optax.incremental_update(params, state.ema, 1 - ema)
        return state.replace(
            step=state.step + 1, params=params, opt_state=opt_state, ema=average
        ), metrics

    return step
