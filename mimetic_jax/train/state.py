"""The training state, and the random streams of a run."""

from __future__ import annotations

import zlib
from typing import Any

import flax.struct
import jax


class TrainState(flax.struct.PyTreeNode):
    """Everything that a step changes.

    Attributes:
        model_state: the model's other collections by name, such as "batch_stats"; often empty.
        ema: averages of the parameters and of `model_state`, in the form of `variables`; or None.
    """

    step: jax.Array
    params: Any
    opt_state: Any
    model_state: Any = flax.struct.field(default_factory=dict)
    ema: Any = None

    @property
    def variables(self) -> dict[str, Any]:
        """What the model is called with."""
        return {"params": self.params, **self.model_state}


def stream(seed: int | jax.Array, name: str) -> jax.Array:
    """Return the key of one purpose of a seed: "init", "scheme", "data" or "dropout".

    Streams don't depend on the arm: arms of a seed share what their schemes don't touch, the
    order of the data and its augmentation, which is what makes a comparison paired.

    >>> bool(stream(0, "init") == stream(0, "data"))
    False
    """
    return jax.random.fold_in(jax.random.key(seed), zlib.crc32(name.encode()))


def order_key(data_key: jax.Array) -> jax.Array:
    """Return the key of the order of the examples, from that of the stream "data"."""
    return jax.random.fold_in(data_key, 0)


def augmentation_key(data_key: jax.Array) -> jax.Array:
    """Return the key of augmentation on the device, from that of the stream "data"."""
    return jax.random.fold_in(data_key, 1)
