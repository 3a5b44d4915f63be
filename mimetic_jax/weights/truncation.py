"""What a product of rank K shows of the α and β of the matrix that it approximates, and back."""

from __future__ import annotations

import functools
import math

import numpy as np

_POINTS, _ANGLES = 257, 129
"""Points of each curve, and of the inverse: linear interpolation errs by less than 2e-4."""


def apparent_constants(alpha: float, beta: float, fraction: float) -> tuple[float, float]:
    """Return the noise and the mean diagonal of the best approximation of αZ + βI with rank ρD.

    A matrix B is measured by its mean diagonal t = tr B / D and its noise ν = √(‖B‖² / D − t²),
    which is √D times the standard deviation of its entries around t I. At full rank
    (ν, t) = (α, β). Truncation lowers both. In the limit of large D, both are known in closed form:
    with c = α², s = β² and p = r e^(iφ), the singular values of αZ + βI are

        σ² = (s − 1/p) (1 − c p)²,  1/r the largest root of τ³ − (2cs + c²) τ + 2c²s cos φ,

    φ from 0 (the smallest) to π (the largest), and the sums over the singular values below σ of 1,
    of σ u·v and of σ² are (2D/π) times the imaginary parts of

        log p / 2 − c (s p² − p) / 2,
        β [log p / 2 − c s p² / 2 + c² (s p³ / 3 − p² / 4)],
        (s + c) log p / 2 + 1/(2p) + c (s p − s² p²) / 2 + c² (p / 2 − 5 s p² / 4 + 2 s² p³ / 3)
            − c³ (s p² − p)² / 4.

    The errors at finite D are of order 1/D.

    >>> [round(x, 3) for x in apparent_constants(0.7, 0.7, 64 / 192)]
    [0.719, 0.394]

    Reference: Mimetic Initialization of Self-Attention Layers, figure 3. The singular values are
    those of a non-Hermitian random matrix Z − z with z = −β/α, whose Hermitized resolvent m
    satisfies −1/m = w + m − |z|²/(w + m) (Girko's method; here w = σ and p = m / (w + m), for
    α = 1).
    """
    if fraction == 1:
        return alpha, beta
    if alpha < 1e-6:  # a multiple of a projection, of which t = ρβ and ‖B‖² = ρ D β²
        return abs(beta) * math.sqrt(fraction - fraction**2), fraction * beta
    counts, diagonals, powers, _ = _curves(alpha, beta)
    diagonal, power = (float(np.interp(fraction, counts, curve)) for curve in (diagonals, powers))
    return math.sqrt(max(power - diagonal**2, 0)), diagonal


def actual_constants(noise: float, diagonal: float, fraction: float) -> tuple[float, float]:
    """Return the inverse of `apparent_constants`: α and β from what the truncated matrix shows.

    Both functions are homogeneous: c times the matrix has c times the constants. So for each
    fraction there is one curve to invert, of the ratio of noise to diagonal over that of α to β,
    which is tabulated once. The pairs that a matrix of rank ρD can show have |t| ≤ √(ρ (ν² + t²));
    equality is a multiple of a projection, α = 0.

    >>> [round(x, 2) for x in actual_constants(0.052 * 192**0.5, 0.395, 64 / 192)]
    [0.7, 0.7]
    """
    scale = math.hypot(noise, diagonal)
    if fraction == 1 or scale == 0:
        return float(noise), float(diagonal)
    angles, distances, scales = _inverse(fraction)
    distance = _distance(diagonal / scale, fraction)
    # An angle is arctan |β| / α; distances fall with it.
    angle = np.interp(-distance, -distances, angles)
    size = scale / np.interp(angle, angles, scales)
    return float(size * np.cos(angle)), float(math.copysign(size * np.sin(angle), diagonal))


def expected_singular_values(alpha: float, beta: float, dim: int, rank: int) -> np.ndarray:
    """Return the K largest singular values of αZ + βI, as expected for large D: their quantiles,
    [K].

    >>> expected_singular_values(0.7, 0.7, dim=192, rank=64)[[0, -1]].round(1).tolist()
    [1.8, 1.1]
    """
    if alpha == 0:
        return np.full(rank, abs(beta), float)
    scale = math.hypot(alpha, beta)
    counts, _, _, values = _curves(alpha / scale, beta / scale)
    return scale * np.interp((np.arange(rank) + 0.5) / dim, counts, values)


def _curves(alpha: float, beta: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """From the largest singular value σ down: the shares 1/D of them above σ, of Σ σ u·v, of Σ σ²,
    and σ itself, for α > 0."""
    c, s = alpha**2, beta**2
    angle = np.linspace(np.pi, 0, _POINTS)
    linear, constant = 2 * c * s + c**2, 2 * c**2 * s * np.cos(angle)
    cosine = np.clip(-constant / 2 * (3 / linear) ** 1.5, -1, 1)
    root = 2 * np.sqrt(linear / 3) * np.cos(np.arccos(cosine) / 3)
    p = np.exp(1j * angle) / root
    log = 1j * angle - np.log(root)
    count = log / 2 - c * (s * p**2 - p) / 2
    diagonal = beta * (log / 2 - c * s * p**2 / 2 + c**2 * (s * p**3 / 3 - p**2 / 4))
    power = (
        (s + c) * log / 2
        + 1 / (2 * p)
        + c * (s * p - s**2 * p**2) / 2
        + c**2 * (p / 2 - 5 * s * p**2 / 4 + 2 * s**2 * p**3 / 3)
        - c**3 * (s * p**2 - p) ** 2 / 4
    )
    above = [2 / np.pi * (curve[0] - curve).imag for curve in (count, diagonal, power)]
    squares = ((s - 1 / p) * (1 - c * p) ** 2).real
    return above[0], above[1], above[2], np.sqrt(squares.clip(min=0))


@functools.lru_cache
def _inverse(fraction: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Angles arctan β/α from 0 to π/2; there, distances from a projection, and √(ν² + t²)."""
    angles = np.linspace(0, np.pi / 2, _ANGLES)
    pairs = [apparent_constants(np.cos(angle), np.sin(angle), fraction) for angle in angles]
    scales = np.array([math.hypot(*pair) for pair in pairs])
    diagonals = np.array([diagonal for _, diagonal in pairs])
    return angles, _distance(diagonals / scales, fraction), scales


def _distance(diagonal: np.ndarray | float, fraction: float) -> np.ndarray:
    """√(1 − t² / ρ) for ν² + t² = 1: from 0 at α = 0 to 1 at β = 0, almost linear in between."""
    return np.sqrt(np.clip(1 - np.square(diagonal) / fraction, 0, 1))
