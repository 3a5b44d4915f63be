"""Does the first layer have the structure? Neighbors of tokens, and the spectrum of patches."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.weights.counts import from_counts
from mimetic_jax.weights.patches import COLORS, cosines, natural_covariance, whitened

_KNOWN = 4000
"""Most frequent tokens that neighbors are counted among."""
_COMPARED = 2000
"""Of these, tokens whose neighbors are compared."""
_NEAREST = 10
_DIM = 256
"""Most columns that the law of counts is given; a decomposition takes seconds."""


@dataclasses.dataclass(frozen=True)
class Neighbors:
    """How many nearest neighbors an embedding shares with the law of counts.

    Attributes:
        path: of the embedding.
        shared: of the ten nearest neighbors of each token by the embedding, the share that is among
            the ten by `weights.from_counts`; a number per token, of the 2,000 most frequent ones
            from the most frequent on.
    """

    path: str
    shared: tuple[float, ...]

    @property
    def chance(self) -> float:
        """The share that an embedding without structure has."""
        return _NEAREST / (len(self.shared) - 1)

    def __str__(self) -> str:
        return (
            f"{self.path}: {np.mean(self.shared):.1%} of the ten nearest neighbors are those of "
            f"the text's counts; chance {self.chance:.1%} ({len(self.shared):,} frequent tokens)"
        )


def neighbors(path: str, embedding_VxD: Any, counts: Any) -> Neighbors | None:
    """The neighbors that an embedding shares with the law of a text's counts.

    None if fewer than 100 tokens occur. Tokens are the 4,000 most frequent ones of the text. The
    law has their counts alone, and at most 256 columns.

    Args:
        path: of the embedding.
        embedding_VxD: [V, D].
        counts: C [V, V], of `weights.cooccurrence`.

    Raises:
        InputError: if V differs.

    Example:
        >>> from mimetic_jax.weights import cooccurrence
        >>> tokens = np.random.default_rng(0).zipf(1.3, 20_000) % 200
        >>> counts = cooccurrence(tokens, vocab=200)
        >>> rows = from_counts(jax.random.key(0), counts, dim=64)
        >>> found = neighbors("embedding", rows, counts)
        >>> bool(np.mean(found.shared) > 10 * found.chance)
        True
    """
    embedding = np.asarray(embedding_VxD, np.float64)
    if counts.shape != (2 * (len(embedding),)):
        raise InputError(
            f"{path} has {len(embedding)} tokens, but the counts have {counts.shape[0]}"
        )
    sums = counts.sum(axis=0)
    frequent = np.argsort(-sums, kind="stable")[: min(_KNOWN, np.count_nonzero(sums))]
    if len(frequent) < 100:
        return None
    known = counts[frequent][:, frequent]
    law = from_counts(jax.random.key(0), known, min(_DIM, embedding.shape[1], len(frequent)))
    rows = embedding[frequent] - embedding[frequent].mean(axis=0)
    ours, theirs = (_nearest(matrix[:_COMPARED]) for matrix in (rows, np.asarray(law, np.float64)))
    both = [len(set(a) & set(b)) / _NEAREST for a, b in zip(ours, theirs, strict=True)]
    return Neighbors(path, tuple(both))


def _nearest(rows_NxD: np.ndarray) -> np.ndarray:
    """The ten rows of the largest cosine with each row, itself left out."""
    norms = np.linalg.norm(rows_NxD, axis=1, keepdims=True)
    unit = rows_NxD / np.where(norms > 0, norms, 1)
    cosine = unit @ unit.T
    np.fill_diagonal(cosine, -np.inf)
    return np.argpartition(-cosine, _NEAREST, axis=1)[:, :_NEAREST]


@dataclasses.dataclass(frozen=True)
class Spectrum:
    """The energy of a patch embedding by frequency and color.

    Attributes:
        path: of the patch embedding.
        energy: by color and by frequency in half waves per patch, rounded down; relative to the
            mean of all frequencies and colors. 1 is independent noise.
        shares: of each color in the whole energy.
        law: `energy` of a draw of `schemes.Whitened()` without images.
    """

    path: str
    energy: dict[str, tuple[float, ...]]
    shares: dict[str, float]
    law: dict[str, tuple[float, ...]]

    def __str__(self) -> str:
        parts = [
            f"{color} ({self.shares[color]:.0%}) {' '.join(f'{x:.2f}' for x in energy)}"
            for color, energy in self.energy.items()
        ]
        return f"{self.path}: energy by frequency, 1 is noise: {', '.join(parts)}"


def spectrum(path: str, kernel_UxVxCxD: Any) -> Spectrum | None:
    """The spectrum of a patch embedding; None unless it is square, of three channels or one.

    Example:
        >>> noise = np.random.default_rng(0).normal(size=(4, 4, 1, 1000))
        >>> print(spectrum("patch_embed", noise))
        patch_embed: energy by frequency, 1 is noise: luminance (100%) 1.02 1.01 0.99 1.01
    """
    kernel = np.asarray(kernel_UxVxCxD, np.float64)
    rows, columns, channels, _ = kernel.shape
    if rows != columns or rows == 1 or channels not in (1, 3):
        return None
    energy, shares = _energy(kernel)
    return Spectrum(path, energy, shares, _law(rows, channels))


@functools.lru_cache
def _law(patch: int, channels: int) -> dict[str, tuple[float, ...]]:
    size = patch * patch * channels
    kernel = whitened(jax.random.key(0), natural_covariance(patch, channels), size)
    energy, _ = _energy(np.asarray(kernel, np.float64).reshape(patch, patch, channels, size))
    return energy


def _energy(kernel_UxVxCxD: np.ndarray) -> tuple[dict[str, tuple[float, ...]], dict[str, float]]:
    patch, _, channels, _ = kernel_UxVxCxD.shape
    waves = cosines(patch)
    colors = dict(zip(("luminance", "red-blue", "green"), COLORS, strict=True))
    if channels == 1:
        colors = {"luminance": np.ones(1)}
    waves = np.einsum(
        "uvcd,ua,vb,kc->kabd", kernel_UxVxCxD, waves, waves, np.stack([*colors.values()])
    )
    power = np.square(waves).sum(axis=-1)
    radius = np.hypot(np.arange(patch)[:, None], np.arange(patch)).astype(int)
    mean = power.mean() or 1.0
    energy = {
        color: tuple(float(energy[radius == r].mean() / mean) for r in range(patch))
        for color, energy in zip(colors, power, strict=True)
    }
    shares = {
        color: float(energy.mean() / mean / len(colors))
        for color, energy in zip(colors, power, strict=True)
    }
    return energy, shares
