"""Leaves that are no weights of a model: an optimizer's state, and the scales of other leaves."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax

from mimetic_jax.base.errors import InputError
from mimetic_jax.rules import paths
from mimetic_jax.tree.leaf import Leaf

_OPTIMIZER = re.compile(r"(^|/)opt(imizer)?_states?/")

SCALES = re.compile(
    r"(?i)(weight_|kernel_|w_|input_)?(scales?(_inv)?|zeros|zero_?points?|absmax|scb|quant_state)"
    r"([/._].*)?"
)
"""What files of quantized weights have beside a kernel, in its layer or with its name in front."""


def is_scale(name: str) -> bool:
    """Whether a path in an attention's module is that of a quantized kernel's scale."""
    *layer, last = name.split("/")
    return bool(layer and SCALES.fullmatch(last))


def scaled_elsewhere(names: Collection[str]) -> dict[str, str]:
    """The scale of each kernel that has one in another module, such as Flax's WeightNorm.

    >>> scaled_elsewhere({"a/out/kernel", "WeightNorm_0/a/out/kernel/scale"})
    {'a/out/kernel': 'WeightNorm_0/a/out/kernel/scale'}
    """
    scale_of: dict[str, str] = {}
    for path in names:
        *parts, last = path.split("/")
        if SCALES.fullmatch(last):
            without = ("/".join([*parts[:at], *parts[at + 1 :]]) for at in range(len(parts)))
            scale_of |= {kernel: path for kernel in without if kernel in names}
    return scale_of


def check_unscaled(
    leaf: Leaf, block: str, scaled: Mapping[str, str], held: Mapping[str, Sequence[str]]
) -> None:
    """Raise InputError for a kernel that is stored as a multiple of its scales: those `scaled` in
    another module, or beside it among the paths by what they are in, `held`."""
    if leaf.role.endswith("_shift"):
        return  # the norm's gain beside it is no scale of it
    if scale := scaled.get(leaf.path):
        raise InputError(
            f"{leaf.path} is scaled by {scale}, as by a weight norm: its stored length has no "
            "effect, and a scheme would leave the scale as it is"
        )
    layer = paths.parent(leaf.path)
    kernel = leaf.path.removeprefix(layer).lstrip("/.")
    for path in (*held.get(layer, ()), *held.get(leaf.path, ())):
        name = path.removeprefix(layer).lstrip("/.")
        if name.startswith(kernel):
            name = name.removeprefix(kernel).lstrip("/._")
        elif layer == block:  # a scale of its own, as of a norm or of logits
            continue
        if SCALES.fullmatch(name):
            raise InputError(
                f"{leaf.path} is quantized or scaled by {path}, which a scheme would leave as "
                "it is: give the weights in floating point, without scales"
            )


def of_optimizer(params: Any, names: Sequence[str]) -> dict[int, str]:
    """What the leaves of a training state belong to that aren't its parameters, by their index.

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
