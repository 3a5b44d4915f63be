"""What parts of the library need beyond its core, by the extra that installs it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import pathlib
import sys
from importlib.machinery import PathFinder

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
        if not _installed(module):
            raise MissingExtra(f"{what} needs {module}: {advice(extra)}")


def _installed(module: str) -> bool:
    """Whether a module is found without the current folder, which the command `mimetic` has on its
    path for a user's models: a file of that name there is something else."""
    if module in sys.modules:
        return sys.modules[module] is not None
    path = [entry for entry in sys.path if entry]
    return any(
        finder.find_spec(module, path if finder is PathFinder else None) for finder in sys.meta_path
    )


def advice(extra: str) -> str:
    """Return the command that adds an extra to this package, from where it was installed."""
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
