"""What in a training state belongs to an optimizer, and isn't the model's parameters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import jax

_OPTIMIZER = re.compile(r"(^|/)opt(imizer)?_states?/")


def of_optimizer(params: Any, names: Sequence[str]) -> dict[int, str]:
    """Find what the leaves of a training state belong to that aren't its parameters, by index.

    A moment mirrors the parameters, and a schedule-free optimizer, float32 masters or a moving
    average hold a copy of them.
    """

    def is_optax(node: Any) -> bool:
        return isinstance(node, tuple) and type(node).__module__.split(".")[0] == "optax"

    owners: dict[int, str] = {}
    index = 0
    for node in jax.tree.leaves(params, is_leaf=is_optax):
        size = len(jax.tree.leaves(node))
        if is_optax(node):
            owners |= dict.fromkeys(range(index, index + size), f"optax's {type(node).__name__}")
        index += size
    known = frozenset(names)
    for index, path in enumerate(names):
        top, _, rest = path.partition("/")
        if _OPTIMIZER.search(path) or _moments(path) & known:
            owners.setdefault(index, "an optimizer's state")
        elif top != "params" and f"params/{rest}" in known:
            owners.setdefault(index, f"{top}, a copy of params")
    return owners


def _moments(path: str) -> set[str]:
    """The counts that an optimizer without its classes has beside the moments of a path."""
    moments = re.finditer(r"(?:^|/)(?:mu|nu)/", path)
    return {f"{path[: moment.start()]}/count".removeprefix("/") for moment in moments}
