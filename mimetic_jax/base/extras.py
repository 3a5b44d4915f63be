"""What parts of the library need beyond its core, by the extra that installs it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import pathlib

from mimetic_jax.base.errors import InputError

_DATA = ("PIL", "cv2", "grain", "pooch", "safetensors", "sklearn")
_PLOT = ("matplotlib", "jinja2")
_TRAINER = ("absl", "etils", "flax", "ml_collections", "optax", "orbax", "tokenizers")
EXTRAS = {
    "flax": ("flax",),
    "data": _DATA,
    "plot": _PLOT,
    "train": (*_TRAINER, *_DATA, *_PLOT),
    "gcs": ("gcsfs",),
    "tensorboard": ("tensorboardX",),
    "tfds": ("tensorflow_datasets", "array_record"),
}
"""Modules of each extra."""


class MissingExtra(InputError, ImportError):
    """A part of the library whose extra isn't installed."""


def need(what: str, extra: str) -> None:
    """Raise MissingExtra unless the modules of an extra are installed; imports none of them.

    >>> need("training", "train")
    """
    for module in EXTRAS[extra]:
        if importlib.util.find_spec(module) is None:
            raise MissingExtra(f"{what} needs {module}: {advice(extra)}")


def advice(extra: str) -> str:
    """The command that adds an extra to this package, from where it was installed."""
    package = pathlib.Path(__file__).resolve().parents[1]
    if (checkout := package.parent / "pyproject.toml").is_file():
        return f"pip install -e '{checkout.parent}[{extra}]'"
    wanted = f"mimetic-jax[{extra}]"
    with contextlib.suppress(importlib.metadata.PackageNotFoundError, ValueError, KeyError):
        # The record of an install from an address (PEP 610); one from an index has none.
        text = importlib.metadata.distribution("mimetic-jax").read_text("direct_url.json")
        origin = json.loads(text or "{}")
        kind = "git+" if "vcs_info" in origin else ""
        wanted += f" @ {kind}{origin['url']}"
    return f"pip install '{wanted}'"
