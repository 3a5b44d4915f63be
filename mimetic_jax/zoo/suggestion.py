"""The rules to give for a tree that no table describes, read off the names of its layers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from mimetic_jax.rules import names
from mimetic_jax.rules.rule import ATTENTION, Rule
from mimetic_jax.rules.tables import attention_rules

_STORAGE: tuple[dict[str, Any], ...] = tuple(
    {**stack, **dict.fromkeys(flags, True)}
    for stack in ({}, {"stacked": True}, {"stacked": True, "axis": 1})
    for flags in ((), ("flat",), ("transposed",), ("flat", "transposed"))
)
_ORDERS = {"kernel": False, "w": False, "weight": True}
"""Whether a square kernel of this name is stored output first, by the custom of libraries."""

_MLPS = (
    *((f"{name}1", f"{name}2") for name in ("fc", "lin", "linear", "dense", "w", "linear_", "fc_")),
    *(("Dense_0", "Dense_1"), ("layers_0", "layers_1"), ("up", "down"), ("up_proj", "down_proj")),
    *(("wi", "wo"), ("c_fc", "c_proj"), ("fc_in", "fc_out"), ("dense_h_to_4h", "dense_4h_to_h")),
)
"""Names of the two layers of an MLP."""

_POSITION = re.compile(r"(?i)(^|[/._])(pos(ition)?s?(al)?_?(emb|enc|table)|wpe)")

_Layer = tuple[str, str, tuple[int, ...], str]
"""Its name, the name of its kernel, the shape, and the name of its bias."""


def suggestion(
    leaves: Iterable[tuple[str, tuple[int, ...]]], beside: str = "", *, undivided: bool = False
) -> str:
    """What to give for the first attention by its names; "" unless names and shapes decide it.

    A kernel that holds query, key and value may hold them one after another or head by head, which
    no shape tells: there both are named, and what each means. `beside` are the rules of the rest of
    the tree, to be kept.

    >>> suggestion([(f"h/0/attn/W{name}/kernel", (8, 8)) for name in "qkvo"])
    'rules=attention_rules(query="Wq", key="Wk", value="Wv", out="Wo", flat=True), num_heads=…'
    """
    shapes = dict(leaves)
    blocks: dict[str, dict[str, _Layer]] = defaultdict(dict)
    for path, shape in shapes.items():
        block, name, kind = names.found(path)
        start = f"{block}{path[len(block)]}{name}" if block else name
        layer = re.fullmatch(r"((?:[/.]\d+)?)[/.](\w+)", path.removeprefix(start))
        if kind and layer and len(shape) > 1 and layer[2] != "bias":
            prefix = path.removesuffix(layer[2])
            others = (one.removeprefix(prefix) for one in shapes if one.startswith(prefix))
            bias = next((one for one in others if one != layer[2]), "")
            described = f"{name}{layer[1]}".replace(".", "/"), layer[2], shape, bias
            blocks[block].setdefault(kind, described)
    for block, layers in blocks.items():
        options = [] if not beside else [f'within=r"^{numbered(block)}$"']
        options += ["undivided=True"] * undivided
        if set(ATTENTION) <= layers.keys():
            return _apart({role: layers[role] for role in ATTENTION}, options, beside)
        if {"fused", "out"} <= layers.keys():
            return _fused(layers["fused"], layers["out"], options, beside)
    return ""


def mlp_suggestion(leaves: Iterable[tuple[str, tuple[int, ...]]], beside: str) -> str:
    """What to give for the first MLP by the names of its two layers; "" if there is none."""
    shapes = dict(leaves)
    for path, shape in shapes.items():
        for first, second in _MLPS:
            if not (found := re.fullmatch(rf"((?:.*[/.])?){first}([/.])(\w+)", path)):
                continue
            other = shapes.get(f"{found[1]}{second}{found[2]}{found[3]}")
            if len(shape) not in (2, 3) or other != (*shape[:-2], *shape[:-3:-1]):
                continue
            options = {"first": first, "second": second}
            options |= {"kernel": found[3]} if found[3] != "kernel" else {}
            flags = ["transposed=True"] * (shape[-2] > shape[-1]) + ["stacked=True"] * (
                len(shape) == 3
            )
            given = ", ".join([*(f'{name}="{value}"' for name, value in options.items()), *flags])
            return _given(f"mlp_rules({given})", beside)
    return ""


def position_suggestion(leaves: Iterable[tuple[str, tuple[int, ...]]], beside: str) -> str:
    """What to give for the only leaf with the name of a position table; "" if there isn't one."""
    layouts = {2: "n d", 3: "1 n d"}
    found = [
        f'Rule("{path.replace(".", "/")}", "position", "{layouts[len(shape)]}")'
        for path, shape in leaves
        if _POSITION.search(path) and len(shape) in layouts and (len(shape) == 2 or shape[0] == 1)
    ]
    return _given(found[0], beside) if len(found) == 1 else ""


def numbered(path: str) -> str:
    """A regular expression for a path and for those that differ in the numbers of layers."""
    return re.sub(r"(^|[/_])\d+", r"\1\\d+", re.sub("[/.]", "/", path))


def _apart(layers: Mapping[str, _Layer], options: list[str], beside: str) -> str:
    """The call of `attention_rules` by which the shapes of the four layers agree."""
    apart: dict[str, Any] = {role: name for role, (name, *_) in layers.items() if name != role}
    leaf = layers["out"][1]
    fitting = []
    for storage in _STORAGE:
        rules = attention_rules(**apart, **storage, kernel=leaf)[: len(ATTENTION)]
        if sizes := _agreeing(rules, [shape for _, _, shape, _ in layers.values()]):
            fitting.append((storage, sizes))
    if len(fitting) > 1:  # square kernels
        fitting = [one for one in fitting if one[0].get("transposed", False) == _ORDERS.get(leaf)]
    if len(fitting) != 1:
        return ""
    storage, sizes = fitting[0]
    given = [f'{role}="{name}"' for role, name in apart.items()]
    given += _leaves(layers["out"])
    given += [f"{flag}={value}" for flag, value in storage.items()]
    call = _given(f"attention_rules({', '.join([*given, *options])})", beside)
    if "flat" not in storage:
        return call
    return f"{call}, {_heads(grouped=sizes['(h k)'] != sizes['(g k)'])}"


def _leaves(layer: _Layer) -> list[str]:
    """The names of a layer's leaves, if they aren't kernel and bias."""
    _, kernel, _, bias = layer
    return [f'kernel="{kernel}"'] * (kernel != "kernel") + [f'bias="{bias}"'] * (
        bias not in ("", "bias")
    )


def _agreeing(rules: Iterable[Rule], shapes: Iterable[tuple[int, ...]]) -> dict[str, int]:
    """The sizes of the stored axes, if the same axis has the same one everywhere; else none."""
    sizes: dict[str, int] = {}
    for rule, shape in zip(rules, shapes, strict=True):
        axes = re.findall(r"\([^)]*\)|\w+", rule.layout)
        if len(axes) != len(shape):
            return {}
        for axis, size in zip(axes, shape, strict=True):
            if sizes.setdefault(axis, size) != size:
                return {}
    return sizes


def _fused(fused: _Layer, out: _Layer, options: list[str], beside: str) -> str:
    """The call for a kernel of two axes that holds query, key and value, in either order."""
    (name, _, shape, _), (out_name, _, out_shape, _) = fused, out
    if len(shape) != 2 or len(out_shape) != 2:
        return ""
    given = [f'fused="{name}"', f'out="{out_name}"', *_leaves(out if out[3] else fused)]
    given += ["flat=True"] + ["transposed=True"] * (shape[0] > shape[1])
    order = (
        "all heads of query, then those of key and of value; with by_head=True in the call if it "
        "holds query, key and value of one head after the other"
    )
    if grouped := max(shape) != 3 * min(shape):
        given += ["grouped=True"]
        order = "all of query, then all of key and of value; no rule describes others"
    call = _given(f"attention_rules({', '.join([*given, *options])})", beside)
    return f"{call}, {_heads(grouped=grouped)}, if the model's code shows that {name} holds {order}"


def _given(rules: str, beside: str) -> str:
    if beside:
        rules = f"({'' if rules.startswith('Rule') else '*'}{rules}, *{beside})"
    elif rules.startswith("Rule"):
        rules = f"({rules},)"
    return f"rules={rules}"


def _heads(*, grouped: bool) -> str:
    names = ("num_heads", "num_kv_heads") if grouped else ("num_heads",)
    return ", ".join(f"{name}=…" for name in names)
