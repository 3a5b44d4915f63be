"""Rotary positions: their rates, and parts of query and key that look at a distance."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import Range

BASE = Range(1, 1e12, above=True, reason="rates fall from 1 to 1/base")
Pairs = Literal["halves", "neighbors"]
"""Which columns of a head turn together."""


def rotary_rates(columns: int, base: float, axes: int = 1) -> jax.Array:
    """Angles θ by which the pairs of a head's columns turn per token, on each axis of positions.

    θ_j = base^(−2j a / K) on axis ⌊2 f a / K⌋ of a axes, 0 on the others, j = f mod K/2a.

    Args:
        columns: K, of a head that turn.
        base: ratio of the highest to the lowest rate, "rope_theta" of many configurations.
        axes: a, 1 for a sequence, 2 for rows and columns of a grid: the first half of the pairs
            turns with the row, the second with the column.

    Returns:
        [K/2, a] float32.

    Raises:
        InputError: if K is not a positive multiple of 2a.

    Example:
        >>> print(rotary_rates(4, 100.0).round(1))
        [[1. ]
         [0.1]]
        >>> print(rotary_rates(8, 100.0, axes=2).round(1).T)
        [[1.  0.1 0.  0. ]
         [0.  0.  1.  0.1]]

    Reference: RoFormer (Su et al. 2021), eq. 15; its two-dimensional form is the axial one of
    Rotary Position Embedding for Vision Transformer (Heo et al. 2024), in the order of DINOv3.
    """
    if columns <= 0 or columns % (2 * axes):
        per_axis = ", half of them on each axis" if axes == 2 else ""
        raise InputError(
            f"rotary positions turn pairs of columns{per_axis}: {columns} columns of a head that "
            f"turn are not a multiple of {2 * axes}"
        )
    count = columns // 2 // axes
    rates = base ** (-jnp.arange(count, dtype=jnp.float32) / count)
    return jnp.kron(jnp.eye(axes), rates[:, None]).astype(jnp.float32)


def positional_logits(
    distances: np.ndarray, offset: np.ndarray, rates: np.ndarray, sharpness: float, slowest: float
) -> np.ndarray:
    """The logits of a positional head, S Σ_f w_f cos θ_f · (Δ − δ), in float64.

    Args:
        distances: Δ = n − m of query n and key m, [..., a] tokens.
        offset: δ, [a] tokens.
        rates: θ, [K/2, a].
        sharpness: S, the logit at Δ = δ.
        slowest: pairs of lower rates have w = 0, the others equal w of sum 1.

    Returns:
        [...]: what `positional_biases` adds to logits that are divided by √K.

    Example:
        >>> rates = np.array(rotary_rates(16, 10_000.0))
        >>> logits = positional_logits(np.arange(4)[:, None], np.array([1]), rates, 8.0, 0.05)
        >>> print(logits.round(1))
        [6.6 8.  6.6 3.7]
    """
    used = np.asarray(rates, np.float64)[rates_in_use(rates, slowest)]
    angles = (np.asarray(distances, np.float64) - offset) @ used.T
    return np.asarray(sharpness * np.cos(angles).mean(axis=-1))


def positional_biases(
    angles: jax.typing.ArrayLike,
    sharpness: np.ndarray,
    in_use: np.ndarray,
    head_dim: int,
    pairs: Pairs = "halves",
) -> tuple[jax.Array, jax.Array]:
    """Parts of query and key that don't depend on the token: heads that look δ tokens back.

    For the pair f as a complex number b_Q = A_f e^{−iφ_f} and b_K = A_f, A_f² = S √K w_f. With
    φ_f = θ_f · δ their product, turned by positions and divided by √K, is `positional_logits`.

    Args:
        angles: φ, [G, R, F]: R query heads share each of G keys, F pairs turn.
        sharpness: S ≥ 0, [G, R]. The largest of a group is in the key, the rest in the queries.
        in_use: which of the F pairs have w = 1 / (their number); the others have 0.
        head_dim: K; columns beyond the pairs don't turn and are 0.
        pairs: "halves" for columns (f, f + F), as in GPT-NeoX and in Llama of Hugging Face;
            "neighbors" for (2f, 2f + 1), as in GPT-J and in Llama as published.

    Returns:
        (b_Q [G, R, K], b_K [G, K]).

    Example:
        >>> angles, sharpness, in_use = np.zeros((1, 1, 2)), np.array([[8.0]]), np.array([1, 1])
        >>> query, key = positional_biases(angles, sharpness, in_use > 0, 4)
        >>> print(query[0].round(2), key.round(2))
        [[ 2.83  2.83 -0.   -0.  ]] [[2.83 2.83 0.   0.  ]]
    """
    angles_GxRxF = jnp.asarray(angles, jnp.float32)
    largest_G = sharpness.max(axis=1)
    size_GxF = np.sqrt(largest_G[:, None] * np.sqrt(head_dim) / in_use.sum()) * in_use
    share_GxR = sharpness / np.where(largest_G > 0, largest_G, 1)[:, None]
    query_GxRxF = share_GxR[..., None] * size_GxF[:, None]
    waves = query_GxRxF * jnp.cos(angles_GxRxF), -query_GxRxF * jnp.sin(angles_GxRxF)
    still = jnp.asarray(size_GxF), jnp.zeros(size_GxF.shape)
    return _columns(waves, head_dim, pairs), _columns(still, head_dim, pairs)


def _columns(parts: tuple[jax.Array, jax.Array], head_dim: int, pairs: Pairs) -> jax.Array:
    """Real and imaginary parts [..., F] as the columns [..., K] of a head, 0 beyond the pairs."""
    if pairs == "halves":
        columns = jnp.concatenate(parts, axis=-1)
    else:
        columns = jnp.stack(parts, axis=-1).reshape(*parts[0].shape[:-1], -1)
    rest = head_dim - columns.shape[-1]
    return jnp.pad(columns, [(0, 0)] * (columns.ndim - 1) + [(0, rest)]).astype(jnp.float32)


def pairs_of(columns: np.ndarray, turned: int, pairs: Pairs) -> np.ndarray:
    """The pairs of a head's first columns as complex numbers [..., turned / 2].

    >>> print(pairs_of(np.arange(5), 4, "halves"), pairs_of(np.arange(5), 4, "neighbors"))
    [0.+2.j 1.+3.j] [0.+1.j 2.+3.j]
    """
    if pairs == "halves":
        real, imaginary = np.split(columns[..., :turned], 2, axis=-1)
    else:
        real, imaginary = columns[..., 0:turned:2], columns[..., 1:turned:2]
    return np.asarray(real + 1j * imaginary)


def rates_in_use(rates: np.ndarray, slowest: float) -> np.ndarray:
    """Which pairs turn by at least so much per token, [F].

    Raises:
        InputError: if none does.
    """
    fastest_F = np.abs(np.asarray(rates)).max(axis=1)
    if fastest_F.max() < slowest:
        raise InputError(
            f"slowest {slowest} is above all rates of these rotary positions: the fastest pair "
            f"turns by {fastest_F.max():.3g} per token"
        )
    return np.asarray(fastest_F >= slowest)
