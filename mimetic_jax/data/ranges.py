"""Ranges of the numbers that crops, views and augmentation share; nothing outside is computed."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import Range

PIXELS = Range(0, 2**14)
"""Of a side, or none."""
VIEW = Range(0.01, 1)
"""Of its shorter side, what a view keeps of an image."""

Pixels: TypeAlias = Annotated[int, PIXELS]
Side: TypeAlias = Annotated[int, Range(1, PIXELS.high)]
Scale: TypeAlias = Annotated[tuple[float, ...], Range(0, 1, above=True)]
"""Least and greatest area of a crop, as parts of the image's."""
Ratio: TypeAlias = Annotated[tuple[float, ...], Range(1e-3, 1e3)]
"""Least and greatest width / height of a crop."""
Interpolation = Literal["bilinear", "bicubic", "random"]


def check_range(name: str, ends: tuple[float, ...]) -> None:
    """Check that this is the least and the greatest of some numbers."""
    if len(ends) != 2 or ends[0] > ends[1]:
        raise InputError(f"{name} {tuple(ends)} isn't (least, greatest)")
