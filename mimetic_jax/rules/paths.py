"""Paths of a parameter tree as strings, and the one matcher for ordered rules over them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

T = TypeVar("T")

# Names of parts that stand beside each other; those of the second kind may be layers as well.
_TOWER = re.compile(r"(?i)(tower|branch|stream|critic|expert|member)(e?s)?$")
_PART = re.compile(r"(?i)(encoder|decoder|model|network|net)s?$")
_LAYER = re.compile(r"(?i)(layer|block)s?(_?\d+)?$|^h$")
_MODULE = re.compile(r"(?i)(att|mha|multi_?head|cross|^self|mlp|^ffn?|feed_?forward|mixing)")


def flatten(tree: Any) -> tuple[list[tuple[str, Any]], Any]:
    """The leaves of a tree with their paths as "a/b/c", and its structure.

    Dictionaries, Flax boxes, NNX states, dataclasses and lists each add a name to the path, and
    keys that are tuples, as of `flax.traverse_util.flatten_dict`, one for each of their names; the
    attribute in which a box stores its array, `value` without others beside it, doesn't. Nor does
    the key `value` of a checkpoint of boxes that is restored without them.

    >>> flatten({"block": [{"kernel": 1.0}]})[0]
    [('block/0/kernel', 1.0)]
    >>> flatten({"query": {"kernel": {"value": 1.0}}})[0]
    [('query/kernel', 1.0)]
    """
    leaves, treedef = jax.tree_util.tree_flatten_with_path(tree)
    held = Counter(path[:depth] for path, _ in leaves for depth in range(len(path)))
    return [(_path_name(path, alone=held[path[:-1]] == 1), leaf) for path, leaf in leaves], treedef


def shapes(tree: Any) -> list[tuple[str, tuple[int, ...]]]:
    """The paths of the leaves of a tree with their shapes."""
    return [(path, np.shape(leaf)) for path, leaf in flatten(tree)[0]]


def natural_order(path: str) -> tuple[tuple[tuple[int, int | str], ...], ...]:
    """Sort key that puts block_10 after block_9, and block before block_1.

    >>> sorted(["block_10/out", "block/out", "block_9/out"], key=natural_order)
    ['block/out', 'block_9/out', 'block_10/out']
    """
    return tuple(
        tuple(
            (0, int(part)) if part.isdecimal() else (1, part) for part in re.split(r"(\d+)", name)
        )
        for name in path.split("/")
    )


def of_layer(path: str, layer: int | None) -> str:
    """The name of a block: its path, with the index of a layer if several are stacked."""
    return path if layer is None else f"{path}[{layer}]"


def family(path: str) -> str:
    """The path without its numbers, which the layers of one kind share.

    The first of several layers may have no number, as in Keras. Towers keep theirs, since
    each has a depth of its own; encoders and models do if they have numbered layers.

    >>> family("encoder/attention"), family("encoder/attention_1")
    ('encoder/attention', 'encoder/attention')
    >>> family("tower_1/block_3"), family("stage_1/block_3")
    ('tower_1/block', 'stage/block')
    """
    names = re.split(r"[/.]", path)
    kept = []
    for at, name in enumerate(names):
        holder = names[at - 1] if at and name.isdecimal() else re.sub(r"_?\d+$", "", name)
        layers = any(_LAYER.search(later) for later in names[at + 1 :])
        if name != holder and (_TOWER.search(holder) or (layers and _PART.search(holder))):
            kept.append(name)
        else:
            short = re.sub(r"_?\d+$", "", name) or (name and "#")
            kept.append(re.sub(r"\d+", "#", short))
    return "/".join(kept)


def parent(path: str) -> str:
    """The path without its last name."""
    return re.sub(r"(^|[/.])[^/.]*$", "", path)


def above(path: str) -> list[str]:
    """A path, with "/" between its names, and those of what it is in, up to the root.

    >>> above("h.0.attn")
    ['h/0/attn', 'h/0', 'h', '']
    """
    names = path.replace(".", "/").split("/") if path else []
    return ["/".join(names[:count]) for count in range(len(names), -1, -1)]


def meeting(path: str, kind: str) -> list[str]:
    """Where an attention or MLP may meet the other of its layer, the nearest place first.

    >>> meeting("h.0.attn.self", "attention"), meeting("h.0.mlp", "mlp")
    (['h/0/attn/self', 'h/0/attn', 'h/0'], ['h/0/mlp', 'h/0'])
    """
    return above(path)[: 3 if kind == "attention" else 2]


def layer(path: str, *, stacked: bool = False) -> str:
    """The layer that a block of attention or an MLP is in, "" if nothing shows one.

    That is the nearest numbered place whose name isn't that of attention or an MLP, or of stacked
    layers the nearest place.

    >>> layer("h.0.attn.self"), layer("Block_1/MultiHeadDotProductAttention_0"), layer("h.0")
    ('h/0', 'Block_1', 'h/0')
    >>> layer("stage_0/blocks/attention", stacked=True)
    'stage_0/blocks'
    """
    for place in above(path):
        *rest, name = place.split("/")
        holder = rest[-1] if name.isdecimal() and rest else name
        if not _MODULE.search(holder) and (stacked or name[-1:].isdecimal()):
            return place
    return ""


def is_module(path: str) -> bool:
    """Whether a path is that of attention or of an MLP by its name."""
    return _MODULE.search(re.split(r"[/.]", path)[-1]) is not None


def is_layer(path: str) -> bool:
    """Whether a path is that of a layer or a block by its name."""
    return _LAYER.search(re.split(r"[/.]", path)[-1]) is not None


def group_alike(paths: Iterable[str]) -> list[list[str]]:
    """Paths that differ in numbers alone, in lists; in the order of the first of each.

    >>> group_alike(["layer_0/up", "layer_0/down", "layer_1/up"])
    [['layer_0/up', 'layer_1/up'], ['layer_0/down']]
    """
    lists: dict[str, list[str]] = {}
    for path in paths:
        lists.setdefault(re.sub(r"\d+", "#", path), []).append(path)
    return list(lists.values())


def summary(paths: Sequence[str]) -> str:
    """One path for a list of `group_alike`: "#" stands for the numbers that differ.

    >>> summary(["block_0/fc1", "block_1/fc1"])
    'block_#/fc1'
    """
    parts = zip(*(re.split(r"(\d+)", path) for path in paths), strict=True)
    return "".join(part[0] if len(set(part)) == 1 else "#" for part in parts)


def first_match(rules: Sequence[tuple[str, T]], path: str, default: T) -> T:
    """The value of the first rule whose regular expression is found in the path.

    >>> first_match([(r"bias$", 0.0), (r".", 1.0)], "mlp/fc1/bias", default=2.0)
    0.0
    """
    for pattern, value in rules:
        if re.search(pattern, path):
            return value
    return default


def _path_name(path: tuple[Any, ...], alone: bool) -> str:
    """A JAX key path as "a/b/c"; `alone` if it leads to the only leaf of its node."""
    # A box holds one array; a dataclass with the kernels of attention has a value among others.
    restored = len(path) > 1 and getattr(path[-1], "key", None) == "value"
    boxed = alone and (restored or getattr(path[-1], "name", None) == "value")
    names = (name for key in (path[:-1] if boxed else path) for name in _names(key))
    return jax.tree_util.keystr(tuple(names), simple=True, separator="/")


def _names(key: Any) -> Iterable[Any]:
    """The keys in a key of a dictionary: in `flax.traverse_util.flatten_dict`'s it is a tuple."""
    name = getattr(key, "key", None)
    return map(jax.tree_util.DictKey, name) if isinstance(name, tuple) else (key,)
