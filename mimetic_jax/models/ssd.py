"""State space duality: one linear recurrence per head, as attention and in chunks.

    state_n = exp(Δ_n A) state_{n−1} + Δ_n B_n x_nᵀ,    y_n = C_nᵀ state_n

Both functions compute this sum, in float32, and take the same arguments:

- x: [B, N, H, P], what each head writes.
- step: Δ [B, N, H], positive.
- decay: A [H], negative.
- b, c: [B, N, G, S], what is written under and what is read; each of G groups serves H / G heads.

They return y [B, N, H, P]. Shape letters: B batch, N tokens, H heads, P head width, G groups,
S state size.

Reference: Transformers are SSMs (Dao and Gu 2024), eq. 16 and listing 1.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def dual(x: jax.Array, step: jax.Array, decay: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
    """The sum as masked linear attention, for short sequences: N² products per head.

    y_n = Σ_{m ≤ n} (C_n · B_m) exp(A Σ_{m < j ≤ n} Δ_j) Δ_m x_m

    >>> ones = jnp.ones((1, 3, 1, 1))
    >>> dual(ones, ones[..., 0], jnp.zeros(1), ones, ones).ravel().tolist()
    [1.0, 2.0, 3.0]
    """
    x, step, b, c = _wide(x, step, b, c)
    return _within(x, step, jnp.cumsum(step * decay, axis=1), b, c)


def chunked(
    x: jax.Array, step: jax.Array, decay: jax.Array, b: jax.Array, c: jax.Array, chunk: int
) -> jax.Array:
    """The same sum for long sequences: `dual` within chunks of tokens, the last of which may be
    shorter, and the recurrence from chunk to chunk.

    >>> ones = jnp.ones((1, 3, 1, 1))
    >>> chunked(ones, ones[..., 0], jnp.zeros(1), ones, ones, chunk=2).ravel().tolist()
    [1.0, 2.0, 3.0]
    """
    length = x.shape[1]
    x, step, b, c = (_in_chunks(array, chunk) for array in _wide(x, step, b, c))
    heads = x.shape[3] // b.shape[3]
    sums = jnp.cumsum(step * decay, axis=2)  # of the logarithms of the decay since a chunk's start
    inside = jax.vmap(_within, in_axes=1, out_axes=1)(x, step, sums, b, c)
    # What each chunk adds to the state at its end, and how much that state keeps of the one before.
    weights = jnp.exp(sums[:, :, -1:] - sums) * step
    written = jnp.einsum("bzqh,bzqhs,bzqhp->bzhsp", weights, b.repeat(heads, axis=3), x)
    kept = jnp.exp(sums[:, :, -1])

    def advance(
        state: jax.Array, of_chunk: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        written, kept = of_chunk
        return kept[..., None, None] * state + written, state

    of_chunks = written.swapaxes(0, 1), kept.swapaxes(0, 1)
    before = jax.lax.scan(advance, jnp.zeros_like(written[:, 0]), of_chunks)[1].swapaxes(0, 1)
    from_before = jnp.einsum(
        "bzqh,bzqhs,bzhsp->bzqhp", jnp.exp(sums), c.repeat(heads, axis=3), before
    )
    y = inside + from_before
    return y.reshape(len(y), -1, *y.shape[3:])[:, :length]


def _within(
    x: jax.Array, step: jax.Array, sums: jax.Array, b: jax.Array, c: jax.Array
) -> jax.Array:
    """`dual`, from the running sums Σ_{j ≤ n} Δ_j A [B, N, H]."""
    products = jnp.einsum("bngs,bmgs->bgnm", c, b)
    logs = sums.swapaxes(1, 2)
    between = logs[..., :, None] - logs[..., None, :]
    # Masked before the exponential, which may overflow above the diagonal: its gradient too.
    causal = jnp.tri(x.shape[1], dtype=bool)
    decayed = jnp.exp(jnp.where(causal, between, -jnp.inf))
    weights = products.repeat(x.shape[2] // b.shape[2], axis=1) * decayed
    return jnp.einsum("bhnm,bmhp->bnhp", weights, step[..., None] * x)


def _in_chunks(array: jax.Array, chunk: int) -> jax.Array:
    """[B, Z, Q, …] from [B, N, …]. Tokens of step 0 fill the last chunk: they change no state."""
    missing = -array.shape[1] % chunk
    padded = jnp.pad(array, [(0, 0), (0, missing), *[(0, 0)] * (array.ndim - 2)])
    return padded.reshape(len(array), -1, chunk, *array.shape[2:])


def _wide(*arrays: jax.Array) -> tuple[jax.Array, ...]:
    return tuple(array.astype(jnp.float32) for array in arrays)
