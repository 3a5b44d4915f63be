"""A class token that starts near 0, below zeros at the end of attention."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from mimetic_jax.rules.rule import ROLES
from mimetic_jax.schemes import Scheme, SinCos, Zero, ZeroOut
from mimetic_jax.schemes.base import inside
from mimetic_jax.tree.tree import Tree

_NAME = re.compile(
    r"(^|[/._])(cls|class|dist|distillation)(_?(tok|token|tokens|emb|embedding))?$", re.IGNORECASE
)
_MOST = 4
"""Rows of what is a class token, and no embedding of classes."""
_SMALL = 0.1
"""Root mean square up to which a token is near 0. Of two sizes that were trained, 0.02 loses and
0.7, the size of sin-cos positions, doesn't: `questions/small_images`."""
_DEPTH = 12
_ROLES = frozenset(ROLES)


def note(tree: Tree, schemes: Sequence[Scheme]) -> str:
    """What to know if attention ends in zeros and a class token starts near 0; else "".

    A class token at 0 gets nothing from zero attention, and MLPs and the head without biases give
    0 for it: all images have the same logits until attention has left 0. Whether the model reads
    the token, a tree doesn't show.
    """
    if not _ends_in_zeros(schemes):
        return ""
    for path, leaf in zip(tree.paths, tree.leaves, strict=True):
        shape = np.shape(leaf)
        rows = math.prod(shape[:-1])
        if not _NAME.search(path) or not shape or shape[-1] == 1 or rows > _MOST:
            continue
        token, position = _values(leaf), _position(tree, schemes, shape[-1])
        if token is None or position is None:
            continue
        size = math.sqrt(float(np.mean(np.square(token))) + position)
        if size <= _SMALL:
            return (
                f"{path} and its position start near 0, with a root mean square of {size:.2g}. "
                "Attention that ends in zeros brings nothing of an image to it at first. If the "
                "model reads this token, use ZeroOut(mlp=True, attention=False): in our runs it "
                "reached up to 6 points more. If it reads the mean of the patches, keep the scheme."
            )
    return ""


def warn(tree: Tree, schemes: Sequence[Scheme]) -> None:
    """Warn of what `note` says."""
    if text := note(tree, schemes):
        warnings.warn(text, stacklevel=3)


def _ends_in_zeros(schemes: Sequence[Scheme]) -> bool:
    """Whether the last of the schemes that write attention's last kernels has zeros everywhere."""
    last = [scheme for scheme in schemes if "out" in scheme.writes(_ROLES)][-1:]
    zero = any(isinstance(part, ZeroOut | Zero) for part in inside(last))
    return zero and all(last[0].covers(layer, _DEPTH) for layer in range(_DEPTH))


def _position(tree: Tree, schemes: Sequence[Scheme], dim: int) -> float | None:
    """The mean square of what is added to a class token; None if it isn't known.

    A table whose number of rows is a square has none for class tokens: patches alone.
    """
    tables = [
        leaf
        for roles in tree.blocks.values()
        if (leaf := roles.get("position")) and leaf.fits and leaf.canonical_shape[1] == dim
    ]
    if not tables:
        return 0.0
    table = tables[0]
    rows = table.canonical_shape[0]
    if math.isqrt(rows) ** 2 == rows:
        return 0.0
    written = [part for part in inside(schemes) if "position" in part.writes(_ROLES)]
    if written and isinstance(written[-1], SinCos):
        return written[-1].class_token_std ** 2
    stored = tree.leaves[table.index]
    if _values(stored) is None:
        return None
    return float(np.mean(np.square(np.asarray(tree.canonical(table, None))[0])))


def _values(leaf: Any) -> np.ndarray | None:
    """The values of a leaf, if they are at hand: not of a shape, a tracer or another process."""
    if isinstance(leaf, jax.ShapeDtypeStruct | jax.core.Tracer):
        return None
    if isinstance(leaf, jax.Array) and (leaf.is_deleted() or not leaf.is_fully_addressable):
        return None
    return np.asarray(leaf, np.float32)
