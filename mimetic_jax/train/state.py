"""The training state, and the random streams of a run."""

from __future__ import annotations

import zlib
from typing import Any

import flax.struct
import jax


class TrainState(flax.struct.PyTreeNode):
    """Everything that a step changes; `ema` averages the parameters, or is None."""

    step: jax.Array
    params: Any
    opt_state: Any
    ema: Any = None


def stream(seed: int, name: str) -> jax.Array:
    """The key of one purpose of a seed: "init", "scheme", "data" or "dropout".

    Streams don't depend on the arm: arms of a seed share what their schemes don't touch, the
    order of the data and its augmentation, which is what makes a comparison paired.

    >>> bool(stream(0, "init") == stream(0, "data"))
    False
    """
    return jax.random.fold_in(jax.random.key(seed), zlib.crc32(name.encode()))
