"""Kernels that are stored beside what multiplies them: quantized, of weight norms, of adapters.

A draw of such a kernel would be multiplied by a scale that stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mimetic_jax.base.errors import InputError
from mimetic_jax.rules import paths
from mimetic_jax.tree.leaf import Leaf

_SCALES = (
    r"(weight_|kernel_|w_|input_|lora_|dora_|ia3_)?"
    r"(scales?(_inv)?|zeros|zero_?points?|absmax|scb|quant_(state|map)|nested_\w+|magnitude(_vector)?"
    r"|g|v|original[01]|lengths?|l|d|s[uv]|qidxs|codebooks|q_(scale|groups|perm|invperm))"
    r"([/._](?!bias$).*)?"
)
_NAME, _END = re.compile(f"(?i){_SCALES}"), re.compile(f"(?i)(^|[/._]){_SCALES}$")
"""What stands beside a kernel, in its layer or with its name in front, and multiplies it."""


def is_scale(name: str) -> bool:
    """Whether the last part of a path in a module is that of a kernel's scale."""
    *layer, last = name.split("/")
    return bool(layer and _NAME.fullmatch(last))


def named_scales(every: Iterable[str]) -> list[str]:
    """The paths that may be those of a scale of some kernel."""
    return [path for path in every if _END.search(path)]


def check_unscaled(leaf: Leaf, block: str, scales: Iterable[str]) -> None:
    """Raise InputError for a kernel that is stored as a multiple of its scales: beside it, or in
    another module, as Flax's WeightNorm."""
    if leaf.role.endswith(("_shift", "_gain", "_scale")) or leaf.role == "post_norm":
        return  # the norm's gain beside it is no scale of it
    # PEFT's layers hold the one that they are put around as base_layer.
    layer = re.sub(r"[/.]base_layer$", "", paths.parent(leaf.path))
    kernel = leaf.path.removeprefix(layer).lstrip("/.")
    for path in scales:
        if path.removesuffix("/scale").endswith(f"/{leaf.path}"):
            raise _scaled(leaf, path)
        name = path.removeprefix(layer) if layer else f"/{path}"
        if path in (leaf.path, name) or name[:1] not in ("/", "."):
            continue
        name = name[1:]
        if name.startswith(kernel):
            name = name.removeprefix(kernel).lstrip("/._")
        elif layer == block:  # a scale of its own, as of a norm or of logits
            continue
        if _NAME.fullmatch(name):
            raise _scaled(leaf, path)


def _scaled(leaf: Leaf, path: str) -> InputError:
    return InputError(
        f"{leaf.path} is quantized or scaled by {path}, which a scheme would leave as it is: pass "
        "the weights in floating point, without scales"
    )
