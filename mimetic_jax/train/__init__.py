"""Training: from a configuration to a table of results, sharded, exact and resumable."""

from __future__ import annotations

from typing import Any

from mimetic_jax.base.extras import need
from mimetic_jax.host.sums import compile_right_sums

compile_right_sums()  # before JAX has devices

__all__ = ["Comparison"]


def __getattr__(name: str) -> Any:
    # A configuration's fields are read without the seconds that importing the trainer takes.
    if name == "Comparison":
        need("training", "train")
        from mimetic_jax.train.comparison import Comparison

        return Comparison
    raise AttributeError(f"module 'mimetic_jax.train' has no attribute {name!r}")
