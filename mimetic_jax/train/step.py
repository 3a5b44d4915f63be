"""One training step and the evaluation of a batch, as pure functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from mimetic_jax.train.state import TrainState

Batch: TypeAlias = tuple[jax.Array, jax.Array]  # images [B, h, w, C] float32, labels [B]
Metrics: TypeAlias = dict[str, jax.Array]
TrainStep: TypeAlias = Callable[[TrainState, Batch, jax.Array], tuple[TrainState, Metrics]]


def make_train_step(
    model: nn.Module,
    optimizer: optax.GradientTransformation,
    *,
    label_smoothing: float = 0.0,
    accumulate: int = 1,
) -> TrainStep:
    """The step (state, batch, dropout key) → (state, metrics): pure, so it can be `vmap`ped.

    Args:
        model: called as `model.apply({"params": …}, images, train=True, rngs={"dropout": …})`.
        optimizer: an optax transformation.
        label_smoothing: ε of the smoothed targets (1 − ε) onehot + ε / C.
        accumulate: parts the batch is cut into, gradients averaged; a divisor of B.

    Returns:
        The step; its metrics are the means `loss` and `accuracy` and the `grad_norm` before
        clipping.
    """

    def loss(params: Any, batch: Batch, key: jax.Array) -> tuple[jax.Array, Metrics]:
        images, labels = batch
        logits: Any = model.apply({"params": params}, images, train=True, rngs={"dropout": key})
        targets = jax.nn.one_hot(labels, logits.shape[-1])
        targets = optax.smooth_labels(targets, label_smoothing)
        value = optax.softmax_cross_entropy(logits, targets).mean()
        return value, {"loss": value, "accuracy": (logits.argmax(-1) == labels).mean()}

    gradient = jax.grad(loss, has_aux=True)

    def mean_gradient(params: Any, batch: Batch, key: jax.Array) -> tuple[Any, Metrics]:
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

    def step(state: TrainState, batch: Batch, key: jax.Array) -> tuple[TrainState, Metrics]:
        grads, metrics = mean_gradient(state.params, batch, key)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        metrics["grad_norm"] = optax.tree.norm(grads)
        return TrainState(step=state.step + 1, params=params, opt_state=opt_state), metrics

    return step


def count_batch(model: nn.Module, params: Any, batch: Batch, weights: jax.Array) -> Metrics:
    """Sums over a batch, each example counted by its weight (0 for padding, 1 else).

    Returns:
        `correct` and `count` as int32, exact for any number of examples, and the sum of `loss`.
    """
    images, labels = batch
    logits: Any = model.apply({"params": params}, images, train=False)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    counted = weights > 0
    return {
        "correct": ((logits.argmax(-1) == labels) & counted).sum(dtype=jnp.int32),
        "count": counted.sum(dtype=jnp.int32),
        "loss": (losses * weights).sum(),
    }
