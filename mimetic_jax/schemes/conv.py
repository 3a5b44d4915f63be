"""Schemes for the filters of depthwise convolutions."""

from __future__ import annotations

import dataclasses
from typing import Annotated, ClassVar

import jax

from mimetic_jax.base.errors import InputError
from mimetic_jax.schemes.base import Scheme
from mimetic_jax.schemes.block import Block, Context
from mimetic_jax.weights.checks import ANY_SIGN
from mimetic_jax.weights.conv import (
    WIDTH,
    FilterKind,
    conv_covariance_2022,
    conv_filters,
    sample_filters,
)


@dataclasses.dataclass(frozen=True)
class ConvMimetic(Scheme):
    """Mimetic initialization of depthwise convolutions, from a covariance. Experimental.

    Filters are normal with covariance Σ(σ), and σ = σ₀ + v t + ½ a t² grows with relative depth
    t = l / (L − 1). Nothing is rescaled by fan-in, and biases are unchanged. Experimental: the
    formula is from memory, see `weights.conv.conv_covariance_2022`.

    Attributes:
        sigma: σ₀.
        velocity: v.
        acceleration: a. The defaults are (from memory too) for CIFAR and small patches; for
            ImageNet (.15, .5, .25) at patch 14 and (.15, .25, 1) at patch 7.

    Reference: Understanding the Covariance Structure of Convolutional Filters.
    """

    by_depth: ClassVar[bool] = True
    sigma: Annotated[float, WIDTH] = 0.5
    velocity: Annotated[float, ANY_SIGN] = 0.5
    acceleration: Annotated[float, ANY_SIGN] = 3.0

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        return roles & {"depthwise"}

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        size, channels = _size(block)
        depth = context.layer / max(context.num_layers - 1, 1)
        sigma = self.sigma + self.velocity * depth + self.acceleration * depth**2 / 2
        covariance = conv_covariance_2022(size, sigma)
        return {"depthwise": sample_filters(key, covariance, channels)}


@dataclasses.dataclass(frozen=True)
class ConvFilters(Scheme):
    """Simple depthwise filters of equal energy, which the paper then freezes.

    Attributes:
        kind: "random", "impulse" or "box".

    Reference: Structured Initialization for Vision Transformers, appendix H.
    """

    kind: FilterKind = "random"

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        return roles & {"depthwise"}

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        size, channels = _size(block)
        return {"depthwise": conv_filters(key, size, channels, self.kind)}


def _size(block: Block) -> tuple[int, int]:
    """k and C of the filters [k, k, C]."""
    shape = block.shapes["depthwise"]
    if shape[0] != shape[1]:
        raise InputError(f"depthwise filters {shape} (rows, columns, channels) are not square")
    return shape[0], shape[2]
