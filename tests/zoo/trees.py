"""Trees from paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def nested(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dictionaries from paths such as "a/b/c"."""
    tree: dict[str, Any] = {}
    for path, leaf in leaves.items():
        *parents, name = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = leaf
    return tree


def flat_names(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Names as in PyTorch's state dicts."""
    return {path.replace("/", "."): leaf for path, leaf in leaves.items()}


def at(tree: Any, path: str) -> Any:
    """The subtree at a path."""
    for name in path.split("/"):
        tree = tree[name]
    return tree
