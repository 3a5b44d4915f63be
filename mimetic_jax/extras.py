"""What parts of the library need beyond its core, by the extra that installs it."""

from __future__ import annotations

import importlib.util

from mimetic_jax.errors import InputError

_DATA = ("PIL", "cv2", "grain", "safetensors", "sklearn")
EXTRAS = {
    "data": _DATA,
    "train": (*_DATA, "absl", "etils", "ml_collections", "optax", "orbax", "tqdm"),
    "plot": ("matplotlib",),
    "tensorboard": ("tensorboardX",),
    "gcs": ("gcsfs",),
    "prepare": ("tensorflow",),
}
"""Modules of each extra. TFDS and its format, which data need that it prepared, are in data."""


class MissingExtra(InputError, ImportError):
    """A part of the library whose extra isn't installed."""


def need(what: str, extra: str) -> None:
    """Check that the modules of an extra are installed; imports none of them.

    >>> need("training", "train")

    Args:
        what: needs it, in the error.
        extra: one of `EXTRAS`.

    Raises:
        MissingExtra: one is missing.
    """
    for module in EXTRAS[extra]:
        if importlib.util.find_spec(module) is None:
            raise MissingExtra(f"{what} needs {module}: pip install 'mimetic-jax[{extra}]'")
