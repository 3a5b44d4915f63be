"""The rules to give for a tree that no table describes, read off the names of its layers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from mimetic_jax.rules import names
from mimetic_jax.rules.rule import ATTENTION, FIRST_LAYER, Rule
from mimetic_jax.rules.tables import attention_rules

_STORAGE: tuple[dict[str, Any], ...] = tuple(
    {**stack, **dict.fromkeys(flags, True)}
    for stack in ({}, {"stacked": True}, {"stacked": True, "axis": 1})
    for flags in ((), ("flat",), ("transposed",), ("flat", "transposed"))
)
_ORDERS = {"kernel": False, "w": False, "": False, "weight": True}
"""Whether a square kernel of this name is stored output first, by the custom of libraries."""

_MLPS = (
    *((f"{name}1", f"{name}2") for name in ("fc", "lin", "linear", "dense", "w", "linear_", "fc_")),
    *(("Dense_0", "Dense_1"), ("layers_0", "layers_1"), ("up", "down"), ("up_proj", "down_proj")),
    *(("wi", "wo"), ("c_fc", "c_proj"), ("fc_in", "fc_out"), ("dense_h_to_4h", "dense_4h_to_h")),
)
"""Names of the two layers of an MLP."""
_GATED = (
    *(("up", "down", "gate"), ("up_proj", "down_proj", "gate_proj"), ("w3", "w2", "w1")),
    *(("w_up", "w_down", "w_gate"), ("wi_1", "wo", "wi_0"), ("w_in", "w_out", "w_gate")),
)
"""Names of the three layers of a gated MLP; the last one's output is activated."""
_READOUT = re.compile(r"(?i)(^|[/.])((lm_?)?head|unembed\w*|logits\w*|output|readout)([/.]\w+)?$")

TOKENS = FIRST_LAYER - {"patch"}
"""Roles of leaves for tokens, whose calls `other_calls` gives."""
_POSITION = re.compile(r"(?i)(^|[/._])(pos(ition)?s?(al)?_?(emb|enc|table)|wpe)")

_Layer = tuple[str, str, tuple[int, ...], str]
"""Its name, the name of its kernel, the shape, and the name of its bias."""


def suggestion(
    leaves: Iterable[tuple[str, tuple[int, ...]]],
    beside: str = "",
    *,
    undivided: bool = False,
    others: Sequence[str] = (),
) -> str:
    """What to give for the first attention by its names; "" unless names and shapes decide it.

    A kernel that holds query, key and value may hold them one after another or head by head, which
    no shape tells: there both are named, and what each means. `beside` are the rules of the rest of
    the tree, to be kept, and `others` are calls for other leaves.

    >>> suggestion([(f"h/0/attn/W{name}/kernel", (8, 8)) for name in "qkvo"])
    'rules=attention_rules(query="Wq", key="Wk", value="Wv", out="Wo", flat=True), num_heads=…'
    """
    shapes = dict(leaves)
    blocks: dict[str, dict[str, _Layer]] = defaultdict(dict)
    for path, shape in shapes.items():
        block, name, kind = names.found(path)
        start = f"{block}{path[len(block)]}{name}" if block else name
        layer = re.fullmatch(r"((?:[/.]\d+)?)(?:[/.](\w+))?", path.removeprefix(start))
        if kind and layer and len(shape) > 1 and layer[2] != "bias":
            kernel, bias = layer[2] or "", ""
            if kernel:
                prefix = path.removesuffix(kernel)
                inside = (one.removeprefix(prefix) for one in shapes if one.startswith(prefix))
                bias = next((one for one in inside if one != kernel), "")
            described = f"{name}{layer[1]}".replace(".", "/"), kernel, shape, bias
            blocks[block].setdefault(kind, described)
    for block, layers in blocks.items():
        options = []
        if beside:
            options.append(f'within=r"^{numbered(block)}$"')
        if undivided:
            options.append("undivided=True")
        if set(ATTENTION) <= layers.keys():
            return _apart({role: layers[role] for role in ATTENTION}, options, beside, others)
        if {"fused", "out"} <= layers.keys():
            return _fused(layers["fused"], layers["out"], options, beside, others)
    return ""


def mlp_suggestion(leaves: Iterable[tuple[str, tuple[int, ...]]], beside: str) -> str:
    """What to give for the first MLP by the names of its layers; "" if there is none."""
    call = mlp_call(leaves)
    return given([call], beside) if call else ""


def mlp_call(
    leaves: Iterable[tuple[str, tuple[int, ...]]], kinds: Sequence[tuple[str, ...]] = _MLPS
) -> str:
    """The call of `mlp_rules` for the first MLP whose layers have names of these kinds.

    >>> mlp_call([("h/0/up", (8, 32)), ("h/0/gate", (8, 32)), ("h/0/down", (32, 8))], _GATED)
    'mlp_rules(first="up", second="down", gate="gate", kernel="")'
    """
    shapes = dict(leaves)
    for path, shape in shapes.items():
        for first, *others in kinds:
            if not (found := re.fullmatch(rf"((?:.*[/.])?){first}((?:[/.]\w+)?)", path)):
                continue
            second, *gate = (shapes.get(f"{found[1]}{name}{found[2]}") for name in others)
            stacks = {(*shape[:-2], *shape[:-3:-1]): 0, shape[::-1]: 1}
            if len(shape) not in (2, 3) or second not in stacks or set(gate) - {shape}:
                continue
            kernel = found[2][1:]
            options = dict(zip(("first", "second", "gate"), (first, *others), strict=False))
            if kernel != "kernel":
                options["kernel"] = kernel
            stated = [f'{name}="{value}"' for name, value in options.items()]
            axis = stacks[second] if len(shape) == 3 else 0
            if shape[-2 - axis] > shape[-1]:
                stated.append("transposed=True")
            if len(shape) == 3:
                stated.append("stacked=True")
            if axis:
                stated.append("axis=1")
            return f"mlp_rules({', '.join(stated)})"
    return ""


def other_calls(leaves: Sequence[tuple[str, tuple[int, ...]]], roles: Collection[str]) -> list[str]:
    """The calls for an MLP and for tokens, if a scheme wants these roles.

    >>> other_calls([("tok", (50, 8)), ("lm_head", (8, 50))], {"embedding", "unembedding"})
    ['embedding_rules("tok", "lm_head")']
    >>> other_calls([("tok", (50, 8)), ("head/bias", (50,))], {"unembedding_bias"})
    ['Rule("head/bias", "unembedding_bias", "t")']
    """
    found = []
    if "mlp_in" in roles:
        found += [mlp_call(leaves, _GATED) or mlp_call(leaves)]
    readouts = [one for one in leaves if one[1] and _READOUT.search(one[0])]
    tables = [one for one in leaves if names.embeds_tokens(*one) and one not in readouts]
    if "embedding" in roles and len(tables) == 1:
        [(path, shape)] = tables
        outputs = [one for one in readouts if one[1] in (shape, shape[::-1])]
        stated = [f'"{name.replace(".", "/")}"' for name, _ in [(path, shape), *outputs[:1]]]
        if outputs and outputs[0][1] == shape:
            stated.append("transposed=True")
        found.append(f"embedding_rules({', '.join(stated)})")
    tokens = {shape[0] for _, shape in tables}
    biases = [path for path, (size, *rest) in readouts if not rest and size in tokens]
    if "unembedding_bias" in roles and len(biases) == 1:
        found.append(f'Rule("{biases[0].replace(".", "/")}", "unembedding_bias", "t")')
    return [call for call in found if call]


def position_suggestion(leaves: Iterable[tuple[str, tuple[int, ...]]], beside: str) -> str:
    """What to give for the only leaf with the name of a position table; "" if there isn't one."""
    layouts = {2: "n d", 3: "1 n d"}
    found = [
        f'Rule("{path.replace(".", "/")}", "position", "{layouts[len(shape)]}")'
        for path, shape in leaves
        if _POSITION.search(path) and len(shape) in layouts and (len(shape) == 2 or shape[0] == 1)
    ]
    return given(found, beside) if len(found) == 1 else ""


def patch_suggestion(leaves: Iterable[tuple[str, tuple[int, ...]]], beside: str) -> str:
    """What to give for the only kernel with the name and the axes of a patch embedding.

    >>> patch_suggestion([("stem/weight", (64, 3, 8, 8))], "zoo.PYTORCH")
    'rules=(Rule("stem/weight", "patch", "d c u v"), *zoo.PYTORCH)'
    """
    found = [
        f'Rule("{path.replace(".", "/")}", "patch", "{layout}")'
        for path, shape in leaves
        if len(shape) == 4 and names.embeds_patches(path)
        for layout, (u, v, c) in (("d c u v", (2, 3, 1)), ("u v c d", (0, 1, 2)))
        if shape[u] == shape[v] and shape[c] <= 4
    ]
    return given(found, beside) if len(found) == 1 else ""


def numbered(path: str) -> str:
    """A regular expression for a path and for those that differ in the numbers of layers."""
    return re.sub(r"(^|[/_])\d+", r"\1\\d+", re.sub("[/.]", "/", path))


def _apart(
    layers: Mapping[str, _Layer], options: list[str], beside: str, others: Sequence[str]
) -> str:
    """The call of `attention_rules` by which the shapes of the four layers agree."""
    apart: dict[str, Any] = {role: name for role, (name, *_) in layers.items() if name != role}
    leaf = layers["out"][1]
    fitting = []
    for storage in _STORAGE:
        rules = attention_rules(**apart, **storage, kernel=leaf)[: len(ATTENTION)]
        if sizes := _agreeing(rules, [shape for _, _, shape, _ in layers.values()]):
            fitting.append((storage, sizes))
    unsure = len(fitting) > 1
    if unsure:  # square kernels
        fitting = [one for one in fitting if one[0].get("transposed", False) == _ORDERS.get(leaf)]
    if len(fitting) != 1:
        return ""
    storage, sizes = fitting[0]
    stated = [f'{role}="{name}"' for role, name in apart.items()]
    stated += _leaves(layers["out"])
    stated += [f"{flag}={value}" for flag, value in storage.items()]
    call = given([f"attention_rules({', '.join([*stated, *options])})", *others], beside)
    if "flat" not in storage:
        return call
    call = f"{call}, {_heads(grouped=sizes['(h k)'] != sizes['(g k)'])}"
    if unsure and not leaf:  # the name of no library's kernel
        name = layers["query"][0]
        call += f", if the model computes x @ {name}; with transposed=True if it is {name} @ x"
    return call


def _leaves(layer: _Layer) -> list[str]:
    """The names of a layer's leaves, if they aren't kernel and bias."""
    _, kernel, _, bias = layer
    stated = []
    if kernel != "kernel":
        stated.append(f'kernel="{kernel}"')
    if bias not in ("", "bias"):
        stated.append(f'bias="{bias}"')
    return stated


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


def _fused(
    fused: _Layer, out: _Layer, options: list[str], beside: str, others: Sequence[str]
) -> str:
    """The call for a kernel of two axes that holds query, key and value, in either order."""
    (name, _, shape, _), (out_name, _, out_shape, _) = fused, out
    if len(shape) != 2 or len(out_shape) != 2:
        return ""
    stated = [f'fused="{name}"', f'out="{out_name}"', *_leaves(out if out[3] else fused)]
    stated.append("flat=True")
    if shape[0] > shape[1]:
        stated.append("transposed=True")
    order = (
        "all heads of query, then those of key and of value; with by_head=True in the call if it "
        "holds query, key and value of one head after the other"
    )
    if grouped := max(shape) != 3 * min(shape):
        stated += ["grouped=True"]
        order = "all of query, then all of key and of value; no rule describes others"
    call = given([f"attention_rules({', '.join([*stated, *options])})", *others], beside)
    return f"{call}, {_heads(grouped=grouped)}, if the model's code shows that {name} holds {order}"


def given(calls: Sequence[str], beside: str) -> str:
    """The argument of these rules or calls, in front of other rules."""
    if len(calls) == 1 and not beside and not calls[0].startswith("Rule"):
        return f"rules={calls[0]}"
    every = [call if call.startswith("Rule") else f"*{call}" for call in calls]
    if beside:
        every.append(f"*{beside}")
    end = "," if len(every) == 1 else ""
    return f"rules=({', '.join(every)}{end})"


def _heads(*, grouped: bool) -> str:
    names = ("num_heads", "num_kv_heads") if grouped else ("num_heads",)
    return ", ".join(f"{name}=…" for name in names)
