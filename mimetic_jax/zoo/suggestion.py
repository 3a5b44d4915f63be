"""The rules to give for a tree that no table describes, read off the names of its layers."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from mimetic_jax.tree.rules import Rule
from mimetic_jax.tree.tables import attention_rules

_SUFFIX = "(?:_?(?:proj|projection|lin|linear|layer|dense))?"
_NAMES = {
    "query": rf"(?:to_|w_?)?q(?:uery|ueries)?{_SUFFIX}",
    "key": rf"(?:to_|w_?)?k(?:eys?)?{_SUFFIX}",
    "value": rf"(?:to_|w_?)?v(?:alues?)?{_SUFFIX}",
    "fused": rf"(?:to_|w_?)?qkv{_SUFFIX}|in_proj|c_attn|query_key_value",
    "out": rf"(?:to_|w_?)?o(?:ut|utput)?{_SUFFIX}|c_proj|proj|dense",
}
_APART = ("query", "key", "value", "out")
_FLAGS = ("stacked", "flat", "transposed")
_ORDERS = {"kernel": False, "w": False, "weight": True}
"""Whether a square kernel of this name is stored output first, by the custom of libraries."""

_Layer = tuple[str, str, tuple[int, ...]]
"""Its name, the name of its kernel, and the shape."""


def suggestion(leaves: Iterable[tuple[str, tuple[int, ...]]], beside: str = "") -> str:
    """What to give for the first attention by its names; "" unless names and shapes decide it.

    A kernel that holds query, key and value may hold them one after another or head by head, which
    no shape tells: there both layouts are named, and what each means.

    Args:
        leaves: paths and shapes.
        beside: the rules of the rest of the tree, to be kept.

    Example:
        >>> suggestion([(f"h/0/attn/W{name}/kernel", (8, 8)) for name in "qkvo"])
        'rules=attention_rules(query="Wq", key="Wk", value="Wv", out="Wo", flat=True), num_heads=…'
    """
    blocks: dict[str, dict[str, _Layer]] = defaultdict(dict)
    for path, shape in leaves:
        found = re.fullmatch(r"(?:(.*)[/.])?([^/.]*[^/.\d][^/.]*(?:[/.]\d+)?)[/.](\w+)", path)
        if found and len(shape) > 1 and not path.endswith("bias"):
            block, layer, leaf = found.groups()
            name = re.split("[/.]", layer)[0]
            for role, pattern in _NAMES.items():
                if re.fullmatch(pattern, name, re.IGNORECASE):
                    described = layer.replace(".", "/"), leaf, shape
                    blocks[block or ""].setdefault(role, described)
    for layers in blocks.values():
        if set(_APART) <= layers.keys():
            return _call({role: layers[role] for role in _APART}, beside)
        if {"fused", "out"} <= layers.keys():
            return _question(layers["fused"], layers["out"], beside)
    return ""


def _call(layers: Mapping[str, _Layer], beside: str) -> str:
    """The call of `attention_rules` by which the shapes of the four layers agree."""
    names = {role: name for role, (name, _, _) in layers.items() if name != role}
    leaf = layers["out"][1]
    fitting = []
    for flags in itertools.product((False, True), repeat=len(_FLAGS)):
        chosen = dict(zip(_FLAGS, flags, strict=True))
        given: dict[str, Any] = {**names, **chosen, "kernel": leaf}
        rules = attention_rules(**given)[: len(_APART)]
        if sizes := _agreeing(rules, [shape for _, _, shape in layers.values()]):
            fitting.append((chosen, sizes))
    if len(fitting) > 1:  # square kernels
        fitting = [one for one in fitting if one[0]["transposed"] == _ORDERS.get(leaf)]
    if len(fitting) != 1:
        return ""
    chosen, sizes = fitting[0]
    options = [f'{role}="{name}"' for role, name in names.items()]
    options += [f'kernel="{leaf}"'] * (leaf != "kernel")
    options += [f"{flag}=True" for flag, is_set in chosen.items() if is_set]
    heads = ", num_heads=…" if chosen["flat"] else ""
    if chosen["flat"] and sizes["(h k)"] != sizes["(g k)"]:
        heads += ", num_kv_heads=…"
    call = f"attention_rules({', '.join(options)})"
    return f"{_given(call, beside)}{heads}"


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


def _question(fused: _Layer, out: _Layer, beside: str) -> str:
    """Both orders of a kernel of two axes that holds query, key and value."""
    (name, leaf, shape), (out_name, _, out_shape) = fused, out
    if len(shape) != 2 or len(out_shape) != 2:
        return ""
    equal = max(shape) == 3 * min(shape)

    def layout(*axes: str) -> str:
        return repr(" ".join(axes[::-1] if shape[0] > shape[1] else axes))

    rules = (
        f"Rule('{name}/{leaf}', ('query', 'key', 'value'), LAYOUT), "
        f"Rule('{out_name}/{leaf}', 'out', {layout('(h k)', 'd')})"
    )
    if equal:
        heads = "num_heads=…"
        orders = (
            f"{layout('d', '(three h k)')} for query, key and value one after another, "
            f"{layout('d', '(h three k)')} for those of each head together"
        )
    else:
        heads = "num_heads=…, num_kv_heads=…"
        orders = (
            f"{layout('d', '((h+2g) k)')} for query, key and value one after another; none for "
            "other orders"
        )
    return (
        f"{_given(rules, beside)}, {heads}, with the LAYOUT of {name} that the model's code shows: "
        f"{orders}"
    )


def _given(rules: str, beside: str) -> str:
    if beside:
        return f"rules=({'' if rules.startswith('Rule') else '*'}{rules}, *{beside})"
    return f"rules=({rules})" if rules.startswith("Rule") else f"rules={rules}"
