"""What methods depend on in a network's sizes: a row that is scaled down keeps these ratios.

`Small.keeps` names those of a row. `python launch/reproduce.py TABLE --list` prints them as
published and as scaled down; a row in which one differs by more than `FAR` says why.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

import jax
from ml_collections import ConfigDict

from mimetic_jax.data import describe
from mimetic_jax.schemes import MeanShift
from mimetic_jax.train.config import arms_of
from mimetic_jax.trained.aim import aim, attention_maps
from mimetic_jax.weights.impulse import impulse_matrices, impulse_query_key, offsets

FAR = 1.5
"""The factor by which a ratio may differ without a reason."""


@dataclasses.dataclass(frozen=True)
class Ratio:
    """A number that a method depends on, of a network of any size.

    Attributes:
        name: as it is printed.
        of: its value by the configuration of a row.
    """

    name: str
    of: Callable[[ConfigDict], float]

    def apart(self, one: ConfigDict, other: ConfigDict) -> float:
        """By which factor two networks differ in it, at least 1."""
        few, many = sorted(self.of(config) for config in (one, other))
        return 1.0 if few == many else many / few


def _head_dim(config: ConfigDict) -> int:
    """Width of a head, in the first stage of several."""
    model = config.model
    width: int = model.head_dim if "head_dim" in model else model.width // model.heads
    return width


def _side(config: ConfigDict) -> int:
    """Tokens along a side of the grid."""
    side: int = config.data.get("size") or describe(config.data.name).image_shape[0]
    return side // int(config.model.patch)


def _largest_shift(config: ConfigDict) -> float:
    """Of a hidden unit by a unit of the norm's bias: b D, where b counts deviations of (3 D)^-½."""
    schemes = (scheme for arm in arms_of(config).values() for scheme in arm.scheme)
    shifts = [abs(scheme.b) for scheme in schemes if isinstance(scheme, MeanShift)]
    return max(shifts, default=0.0) * math.sqrt(config.model.width / 3)


@functools.cache
def _hits(width: int, heads: int, side: int) -> float:
    position = 0.02 * jax.random.normal(jax.random.key(0), (side**2, width))
    query, key = impulse_query_key(jax.random.key(1), position, (side, side), heads)
    targets = impulse_matrices((side, side), offsets(3, heads))
    maps = attention_maps(query, key, jax.nn.standardize(position, axis=1))
    return float(aim(maps, targets).hits.mean())


ALIGNED = Ratio("K / D", lambda config: _head_dim(config) / config.model.width)
"""Rank of W_Q W_Kᵀ, which is at most that close to I, by its full rank."""

WORDS = Ratio("exp(½ √K)", lambda config: math.exp(0.5 * math.sqrt(_head_dim(config))))
"""A token's weight at itself, over that at another: logits of W_Q W_Kᵀ = ½ I."""

LOCATED = Ratio(
    "rows that attend to their impulse",
    lambda config: _hits(config.model.width, config.model.heads, _side(config)),
)
"""By positions alone. The rank K decides how sharp impulses are."""

FILTERS = Ratio("D / k²", lambda config: config.model.width / config.model.filter_size**2)
"""Random filters for each position of a filter: all filters are their sums if they are enough."""

REACH = Ratio("k / side", lambda config: config.model.filter_size / _side(config))
"""How much of the grid a filter covers."""

SHIFTS = Ratio("hidden / N", lambda config: config.model.token_ratio)
"""Shifts of each token in a block that mixes tokens."""

MEAN = Ratio("b D", _largest_shift)
"""How far a unit of the norm's bias moves a hidden unit: .5 √(D / 3) at half a deviation."""

HIDDEN = Ratio("hidden / D", lambda config: config.model.mlp_ratio)
"""Of an MLP."""
