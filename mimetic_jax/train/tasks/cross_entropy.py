"""Cross-entropy over a large vocabulary, without the logits of all tokens at once."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

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
        chunk_bytes: the size of a chunk's logits on each device; at least one token's.
        mesh: over whose axes "data" and "fsdp" tokens are sharded: every device then processes its
            own, and the embedding's gradient is summed over devices once, at the end. Without it,
            sharded tokens give the same losses, slower.

    >>> losses = token_losses(jnp.ones((3, 2)), jnp.zeros((4, 2)), jnp.zeros(4), jnp.arange(3))
    >>> [round(float(loss), 4) for loss in losses]  # log 4
    [1.3863, 1.3863, 1.3863]
    """
    max_chunk = max(1, chunk_bytes // (4 * len(embedding)))
    local = functools.partial(_local_losses, max_chunk=max_chunk)
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
    if count <= 1:
        return _losses(hidden, embedding, bias, targets)
    chunk = -(-tokens // count)  # even chunks: less than one token of padding per chunk
    padding = count * chunk - tokens
    hidden = jnp.pad(hidden, ((0, padding), (0, 0))).reshape(chunk, count, width)
    targets = jnp.pad(targets, (0, padding)).reshape(chunk, count)

    @jax.checkpoint
    def of_chunk(carry: None, chunk: tuple[jax.Array, jax.Array]) -> tuple[None, jax.Array]:
        return carry, _losses(chunk[0], embedding, bias, chunk[1])

    # Interleaved, so that each chunk is sharded like all tokens. The backward pass goes the other
    # way, from the first chunk to the last.
    chunks = hidden.swapaxes(0, 1), targets.swapaxes(0, 1)
    _, losses = jax.lax.scan(of_chunk, None, chunks, reverse=True)
    return losses.swapaxes(0, 1).reshape(-1)[:tokens]


@jax.custom_vjp
def _losses(
    hidden: jax.Array, embedding: jax.Array, bias: jax.Array, targets: jax.Array
) -> jax.Array:
    """The losses [C] of hidden [C, D] and targets [C], from all their logits.

    The derivative is written out because JAX's own has other last digits than published results,
    and rounds more than the factors of products to bfloat16.
    """
    return _forward(hidden, embedding, bias, targets)[0]


def _forward(
    hidden: jax.Array, embedding: jax.Array, bias: jax.Array, targets: jax.Array
) -> tuple[jax.Array, Any]:
    weights = embedding.astype(hidden.dtype)
    logits = jnp.einsum("cd,vd->cv", hidden, weights, preferred_element_type=jnp.float32) + bias
    normalizer = jax.nn.logsumexp(logits, axis=-1)
    of_targets = jnp.take_along_axis(logits, targets[:, None], -1)[:, 0]
    return normalizer - of_targets, (hidden, embedding, bias, targets, normalizer, logits)


def _backward(saved: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, None]:
    hidden, embedding, bias, targets, normalizer, logits = saved
    softmax = jnp.exp(logits - normalizer[:, None])
    exact = (softmax - jax.nn.one_hot(targets, len(bias))) * gradient[:, None]
    rounded, weights = exact.astype(hidden.dtype), embedding.astype(hidden.dtype)
    to_embedding = jnp.einsum("cv,cd->vd", rounded, hidden, preferred_element_type=jnp.float32)
    to_hidden = jnp.einsum("cv,vd->cd", rounded, weights, preferred_element_type=jnp.float32)
    return to_hidden.astype(hidden.dtype), to_embedding, exact.sum(0), None


_losses.defvjp(_forward, _backward)
