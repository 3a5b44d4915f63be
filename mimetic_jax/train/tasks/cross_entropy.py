"""Cross-entropy over a large vocabulary, without the logits of all tokens at once."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from mimetic_jax.base.errors import InputError
from mimetic_jax.train.cluster.mesh import BATCH


def token_losses(
    hidden: jax.Array,
    embedding: jax.Array,
    bias: jax.Array,
    targets: jax.Array,
    *,
    chunk_bytes: int = 2**27,
    mesh: Mesh | None = None,
) -> jax.Array:
    """log Σ_v exp z_v − z_target of each token, with logits z = E h + b.

    Tokens are processed in chunks, in the backward pass too, where logits are computed again unless
    there is only one chunk: at most one chunk of logits exists at a time.
    Products are in the precision of `hidden` with float32 sums; everything else is float32, also
    the sum of the embedding's gradient over the chunks.

    Args:
        hidden: [T, D], float32 or bfloat16.
        embedding: E float32 [V, D].
        bias: b float32 [V].
        targets: int32 [T], in [0, V).
        chunk_bytes: of the logits of a chunk, on each device; at least one token's.
        mesh: over whose axes "data" and "fsdp" tokens are sharded: every device then processes its
            own, and the embedding's gradient is summed over devices once, at the end. Without it,
            sharded tokens give the same losses, slower.

    Returns:
        float32 [T].

    Raises:
        InputError: shapes don't fit together.

    Example:
        >>> losses = token_losses(jnp.ones((3, 2)), jnp.zeros((4, 2)), jnp.zeros(4), jnp.arange(3))
        >>> [round(float(loss), 4) for loss in losses]  # log 4
        [1.3863, 1.3863, 1.3863]
    """
    (tokens, width), (vocab, rows) = hidden.shape, embedding.shape
    if rows != width or bias.shape != (vocab,) or targets.shape != (tokens,):
        raise InputError(
            f"hidden {hidden.shape}, embedding {embedding.shape}, bias {bias.shape} and targets "
            f"{targets.shape} don't fit [T, D], [V, D], [V] and [T]"
        )
    local = functools.partial(_local_losses, max_chunk=max(1, chunk_bytes // (4 * vocab)))
    if mesh is None:
        return local(hidden, embedding, bias, targets)
    # Its derivative sums gradients of replicated arguments over the devices.
    return jax.shard_map(
        local, mesh=mesh, in_specs=(BATCH, P(), P(), BATCH), out_specs=BATCH, check_vma=False
    )(hidden, embedding, bias, targets)


def _local_losses(
    hidden: jax.Array, embedding: jax.Array, bias: jax.Array, targets: jax.Array, *, max_chunk: int
) -> jax.Array:
    tokens, width = hidden.shape
    count = -(-tokens // max_chunk)
    chunk = -(-tokens // count)  # even chunks: less than one token of padding per chunk
    padding = count * chunk - tokens
    hidden = jnp.pad(hidden, ((0, padding), (0, 0))).reshape(chunk, count, width)
    targets = jnp.pad(targets, (0, padding)).reshape(chunk, count)
    # Interleaved, so that each chunk is sharded like all tokens.
    losses = _chunk_losses(hidden.swapaxes(0, 1), embedding, bias, targets.swapaxes(0, 1))
    return losses.swapaxes(0, 1).reshape(-1)[:tokens]


@jax.custom_vjp
def _chunk_losses(
    hidden: jax.Array, embedding: jax.Array, bias: jax.Array, targets: jax.Array
) -> jax.Array:
    """Losses [S, C] of chunks: hidden [S, C, D], targets [S, C]."""
    return _forward(hidden, embedding, bias, targets)[0]


def _logits(hidden: jax.Array, weights: jax.Array, bias: jax.Array) -> jax.Array:
    return jnp.einsum("cd,vd->cv", hidden, weights, preferred_element_type=jnp.float32) + bias


def _forward(
    hidden: jax.Array, embedding: jax.Array, bias: jax.Array, targets: jax.Array
) -> tuple[jax.Array, Any]:
    weights = embedding.astype(hidden.dtype)

    def losses(chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        logits = _logits(chunk[0], weights, bias)
        normalizer = jax.nn.logsumexp(logits, axis=-1)
        chosen = jnp.take_along_axis(logits, chunk[1][:, None], -1)[:, 0]
        return normalizer - chosen, normalizer, logits

    if len(hidden) == 1:  # the backward pass would hold these logits anyway: keep them
        result, normalizer, logits = losses((hidden[0], targets[0]))
        return result[None], (hidden, embedding, bias, targets, normalizer[None], logits)
    result, normalizers = jax.lax.map(lambda chunk: losses(chunk)[:2], (hidden, targets))
    return result, (hidden, embedding, bias, targets, normalizers, None)


def _backward(saved: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, None]:
    hidden, embedding, bias, targets, normalizers, kept = saved
    weights = embedding.astype(hidden.dtype)

    def add(total: Any, chunk: Any) -> tuple[Any, jax.Array]:
        hidden, target, normalizer, gradient = chunk
        logits = _logits(hidden, weights, bias) if kept is None else kept
        softmax = jnp.exp(logits - normalizer[:, None])
        exact = (softmax - jax.nn.one_hot(target, len(bias))) * gradient[:, None]
        rounded = exact.astype(hidden.dtype)
        to_embedding = jnp.einsum("cv,cd->vd", rounded, hidden, preferred_element_type=jnp.float32)
        to_hidden = jnp.einsum("cv,vd->cd", rounded, weights, preferred_element_type=jnp.float32)
        total = (total[0] + to_embedding, total[1] + exact.sum(0))
        return total, to_hidden.astype(hidden.dtype)

    zeros = (jnp.zeros(embedding.shape, jnp.float32), jnp.zeros(bias.shape, jnp.float32))
    (to_embedding, to_bias), to_hidden = jax.lax.scan(
        add, zeros, (hidden, targets, normalizers, gradient)
    )
    return to_hidden, to_embedding.astype(embedding.dtype), to_bias.astype(bias.dtype), None


_chunk_losses.defvjp(_forward, _backward)
