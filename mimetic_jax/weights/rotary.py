"""Rotary positions: which columns of a head turn together, and how fast."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import Range, check_fields

BASE = Range(1, 1e12, above=True, reason="rates fall from 1 to 1/base")
SHARE = Range(0, 1, above=True)
AXES = Range(1, 2)
Pairs = Literal["halves", "neighbors"]
"""Which columns of a head turn together."""


@dataclasses.dataclass(frozen=True)
class Rotary:
    """What a model's weights don't show of its rotary positions.

    Attributes:
        base: ratio of the highest to the lowest rate: "rope_theta" of many configurations.
        turned: the share of a head's columns that turn, its first ones: "partial_rotary_factor".
        pairs: which columns turn together: "halves" for (f, f + F) of F pairs, as in GPT-NeoX and
            in Llama of Hugging Face; "neighbors" for (2f, 2f + 1), as in GPT-J and in Llama as
            published.
        axes: 1 for a sequence; 2 for a grid, whose rows turn the first half of the pairs.
    """

    base: Annotated[float, BASE]
    turned: Annotated[float, SHARE] = 1.0
    pairs: Pairs = "halves"
    axes: Annotated[int, AXES] = 1

    def __post_init__(self) -> None:
        check_fields(self)

    def rates(self, head_dim: int) -> np.ndarray:
        """Return the rates of the pairs of K columns, [F, a] in float64.

        Raises:
            InputError: as `rotary_rates`, of the columns that turn.
        """
        with jax.ensure_compile_time_eval():
            rates = rotary_rates(int(self.turned * head_dim), self.base, self.axes)
            return np.asarray(rates, np.float64)

    def fast(self, head_dim: int, slowest: float) -> np.ndarray:
        """Return which of the pairs of K columns turn by at least so much per token, [F]."""
        return np.asarray(np.abs(self.rates(head_dim)).max(axis=1) >= slowest)

    def places(self, head_dim: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the columns of the real and of the imaginary part of each pair as a complex
        number, [F].

        >>> [part.tolist() for part in Rotary(100.0).places(4)]
        [[0, 1], [2, 3]]
        >>> [part.tolist() for part in Rotary(100.0, pairs="neighbors").places(4)]
        [[0, 2], [1, 3]]
        """
        pairs = np.arange(len(self.rates(head_dim)))
        if self.pairs == "halves":
            return pairs, len(pairs) + pairs
        return 2 * pairs, 2 * pairs + 1

    def turned_by(self, x: jax.Array, positions: np.ndarray) -> jax.Array:
        """Heads [..., K] at positions [..., a]."""
        real, imaginary = self.places(x.shape[-1])
        angles = np.asarray(positions @ self.rates(x.shape[-1]).T, np.float32)
        cos, sin = np.cos(angles), np.sin(angles)
        first, second = x[..., real], x[..., imaginary]
        x = x.at[..., real].set(first * cos - second * sin)
        return x.at[..., imaginary].set(first * sin + second * cos)


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
