"""The rules to give for leaves that no family knows, read off names and shapes.

What these leave open, and only the model's code tells, is "…" in a call, which can't be pasted as
it is.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from mimetic_jax.rules import names
from mimetic_jax.rules.rule import ATTENTION, Rule
from mimetic_jax.rules.tables import attention_rules
from mimetic_jax.zoo import common

_STORAGE: tuple[dict[str, Any], ...] = tuple(
    {"stacked": stacked, "axis": axis, "flat": flat, "transposed": transposed}
    for stacked, axis in ((False, 0), (True, 0), (True, 1))
    for flat in (False, True)
    for transposed in (False, True)
)
_ORDERS = {"kernel": False, "w": False, "weight": True}
"""Whether a kernel of this name is stored output first, by the custom of libraries."""

_MLPS = (
    *((f"{name}1", f"{name}2") for name in ("fc", "lin", "linear", "dense", "w", "linear_", "fc_")),
    *(("Dense_0", "Dense_1"), ("layers_0", "layers_1"), ("up", "down"), ("up_proj", "down_proj")),
    *(("wi", "wo"), ("c_fc", "c_proj"), ("fc_in", "fc_out"), ("dense_h_to_4h", "dense_4h_to_h")),
)
"""Names of the two layers of an MLP."""
GATED = (
    *common.GATED,
    *(("fc1", "fc2", "gate"), ("wi_1", "wo", "wi_0"), ("w_in", "w_out", "w_gate")),
)
"""Names of the three layers of a gated MLP; the last one's output is activated."""
_NAMED_MLPS = [kind for kind in (*GATED, *_MLPS) if kind[0] != "Dense_0"]
"""Those whose first layer has a name of its own: Linen numbers layers in any order."""
_READOUT = re.compile(
    r"(?i)(^|[/.])((lm_?)?head|unembed\w*|logits\w*|output|readout)(_?bias|[/.]\w+)?$"
)

Leaf: TypeAlias = tuple[str, tuple[int, ...]]
"""The path of a leaf and its shape."""


class _Layer(NamedTuple):
    """The name of a layer in its block, of its kernel and of its bias; the shapes of both."""

    name: str
    kernel: str
    shape: tuple[int, ...]
    bias: str
    bias_shape: tuple[int, ...]


class Call(NamedTuple):
    """A call of rules; what decides about each "…" in it; the numbers of heads that it needs."""

    text: str
    open: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()


def attention_call(
    leaves: Iterable[Leaf],
    *,
    every: Sequence[Leaf] = (),
    within: bool = False,
    undivided: bool = False,
) -> Call | None:
    """The call for the first attention by its names; None if there is none.

    Args:
        leaves: paths and shapes.
        every: those of the whole tree, whose sizes tell the width of the model.
        within: whether the call must name its blocks, as other blocks have other rules.
        undivided: whether the model may leave logits as they are, without dividing by √K.

    >>> attention_call([(f"h/0/attn/W{name}/kernel", (8, 8)) for name in "qkvo"])[::2]
    ('attention_rules(query="Wq", key="Wk", value="Wv", out="Wo", flat=True)', ('num_heads',))
    >>> shapes = {"lin_in": (8, 32), "lin_out": (32, 8), "qkv": (8, 24), "proj": (8, 8)}
    >>> attention_call([(f"h/0/{name}/kernel", shape) for name, shape in shapes.items()]).text
    'attention_rules(fused="qkv", out="proj", flat=True, by_head=…)'
    """
    for block, layers in _layers_of_attention(leaves).items():
        if set(ATTENTION) <= layers.keys():
            kernels = {role: layers[role] for role in ATTENTION}
            call = _apart(kernels, _fitting(kernels, block, every))
        elif {"fused", "out"} <= layers.keys():
            call = _fused(layers["fused"], layers["out"])
        else:
            continue
        if call is None:
            continue
        stated, reasons = [call.text.removeprefix("attention_rules(")[:-1]], call.open
        if within:
            stated.append(f'within=r"^{names.numbered(block)}$"')
        if undivided:
            stated.append("undivided=…")
            reasons += ("undivided=True if logits aren't divided by √K",)
        arguments = ", ".join(filter(None, stated))
        return Call(f"attention_rules({arguments})", reasons, call.heads)
    return None


def _layers_of_attention(leaves: Iterable[Leaf]) -> dict[str, dict[str, _Layer]]:
    """The layers of each block by their kinds: roles, or "fused".

    The last layer of an MLP beside attention may have the name of attention's, such as lin_out: the
    one is taken that has no other sizes than the first layer.
    """
    shapes = dict(leaves)
    blocks: dict[str, dict[str, list[_Layer]]] = defaultdict(lambda: defaultdict(list))
    for path, shape in shapes.items():
        block, name, kind = names.layer_of(path)
        start = f"{block}{path[len(block)]}{name}" if block else name
        layer = re.fullmatch(r"((?:[/.]\d+)?)(?:[/.](\w+))?", path.removeprefix(start))
        if kind and layer and len(shape) > 1 and layer[2] != "bias":
            kernel = layer[2] or ""
            bias = _beside(path.removesuffix(kernel), kernel, shapes)
            named = f"{name}{layer[1]}".replace(".", "/")
            beside = shapes.get(f"{path.removesuffix(kernel)}{bias}", ()) if bias else ()
            blocks[block][kind].append(_Layer(named, kernel, shape, bias, beside))
    found = {}
    for block, kinds in blocks.items():
        sizes = {
            size for kind in ("fused", "query") for x in kinds.get(kind, ()) for size in x.shape
        }
        order = functools.partial(_foreign, sizes)
        found[block] = {kind: min(layers, key=order) for kind, layers in kinds.items()}
    return found


def _foreign(sizes: Collection[int], layer: _Layer) -> tuple[int, int]:
    """How many sizes of a layer aren't among these, and how large it is."""
    return len({*layer.shape} - {*sizes}), math.prod(layer.shape)


def output_first(leaves: Iterable[Leaf], every: Sequence[Leaf]) -> bool | None:
    """Whether attention of these leaves stores kernels output first, by its sizes and those of
    every leaf of the tree, whatever the custom; None if these don't tell."""
    for block, layers in _layers_of_attention(leaves).items():
        if set(ATTENTION) <= layers.keys():
            kernels = {role: layers[role] for role in ATTENTION}
            orders = {x["transposed"] for x, _ in _fitting(kernels, block, every, custom=False)}
            return orders.pop() if len(orders) == 1 else None
    return None


def _fitting(
    layers: Mapping[str, _Layer], block: str, every: Sequence[Leaf], *, custom: bool = True
) -> list[tuple[dict[str, Any], dict[str, int]]]:
    """How four layers may be stored, as the shapes of kernels and biases agree, with the sizes of
    axes: of several the ones by which other leaves have the width; then the order of the MLPs'
    first kernels, or the custom of libraries."""
    apart: dict[str, Any] = {role: x.name for role, x in layers.items()}
    kernel, fitting = layers["out"].kernel, []
    shapes = [x.shape for x in layers.values()] + [x.bias_shape for x in layers.values()]
    for storage in _STORAGE:
        rules = attention_rules(**apart, **storage, kernel=kernel, exclude="")
        stored = [
            (rule, shape)
            for rule, shape in zip(rules, shapes, strict=True)
            if "bias" not in rule.role or len(shape) == len(rule.stored.axes)
        ]
        if sizes := _agreeing(*zip(*stored, strict=True)):
            fitting.append((storage, sizes))
    here = re.compile(f"{names.numbered(block)}/")
    others = [
        (path.replace(".", "/"), shape)
        for path, shape in every
        if not names.layer_of(path)[2]
        # Norms of queries are as wide as heads.
        if len(shape) > 1 or not here.match(path.replace(".", "/"))
    ]
    known = {size for _, shape in others for size in shape}
    fitting = [one for one in fitting if one[1]["d"] in known] or fitting
    widths = {sizes["d"] for _, sizes in fitting}
    firsts = re.compile(rf"(?:.*/)?(?:{'|'.join(first for first, *_ in _NAMED_MLPS)})/{kernel}")
    orders: set[bool | None] = {
        shape[-1] in widths
        for path, shape in others
        if len({*shape[-2:]} & widths) == 1 and firsts.fullmatch(path)
    }
    order = orders.pop() if len(orders) == 1 else _ORDERS.get(kernel) if custom else None
    return [one for one in fitting if one[0]["transposed"] == order] or fitting


def _apart(
    layers: Mapping[str, _Layer], fitting: Sequence[tuple[dict[str, Any], dict[str, int]]]
) -> Call | None:
    """The call for four layers, stored in one of the ways that fit, in whose differences it is
    open; None without any."""
    apart = {role: x.name for role, x in layers.items() if x.name != role}
    out = layers["out"]
    if not fitting:
        return None
    stated = [f'{role}="{name}"' for role, name in apart.items()]
    stated += _leaves(out.kernel, out.bias)
    reasons = []
    for flag in _STORAGE[0]:
        values = {storage[flag] for storage, _ in fitting}
        if len(values) > 1:
            stated.append(f"{flag}=…")
            reasons.append(_DECIDES[flag].format(layers["query"].name))
        elif value := values.pop():
            stated.append(f"{flag}={value}")
    heads: tuple[str, ...] = ()
    if any(storage["flat"] for storage, _ in fitting):
        grouped = any(sizes.get("(h k)") != sizes.get("(g k)") for _, sizes in fitting)
        heads = ("num_heads", "num_kv_heads") if grouped else ("num_heads",)
    return Call(f"attention_rules({', '.join(stated)})", tuple(reasons), heads)


_DECIDES = {
    "stacked": "stacked=True if an axis of {0} counts layers",
    "axis": "axis=1 if the second axis of {0} counts layers",
    "flat": "flat=True if {0} stores heads and their columns along one axis",
    "transposed": "transposed=True if the model computes {0} @ x, and False for x @ {0}",
}
"""What in the model's code decides about an argument."""


def _fused(fused: _Layer, out: _Layer) -> Call | None:
    """The call for a kernel that holds query, key and value in an order of its own."""
    named = out if out.bias else fused
    stated = [f'fused="{fused.name}"', f'out="{out.name}"', *_leaves(named.kernel, named.bias)]
    by_head = (
        f"by_head=True if {fused.name} holds query, key and value of one head after the other, and "
        "False if it holds all heads of query, then those of key and of value"
    )
    if len(fused.shape) == 4:
        orders = [
            order
            for order in (False, True)
            if _agreeing(
                attention_rules(fused="qkv", by_head=order, exclude="")[:2],
                (fused.shape, out.shape),
            ).get("three")
            == 3
        ]
        if not orders:
            return None
        either = len(orders) == 2
        stated += ["by_head=…"] if either else ["by_head=True"] * orders[0]
        return Call(f"attention_rules({', '.join(stated)})", (by_head,) * either)
    if len(fused.shape) != 2 or len(out.shape) != 2:
        return None
    stated.append("flat=True")
    transposed = fused.shape[0] > fused.shape[1]
    if transposed:
        stated.append("transposed=True")
    if max(fused.shape) == 3 * out.shape[int(transposed)]:
        heads: tuple[str, ...] = ("num_heads",)
        stated.append("by_head=…")
        reason = by_head
    else:
        heads = ("num_heads", "num_kv_heads")
        stated.append("grouped=…")
        reason = (
            f"grouped=True if {fused.name} holds all heads of query, then all of key and of value; "
            "no rule describes another order"
        )
    return Call(f"attention_rules({', '.join(stated)})", (reason,), heads)


def mlp_call(
    leaves: Iterable[Leaf],
    kinds: Iterable[tuple[str, ...]] = (*GATED, *_MLPS),
    every: Iterable[Leaf] = (),
    widths: Collection[int] = (),
) -> Call | None:
    """The call of `mlp_rules` for the first MLP whose layers have names of these kinds.

    If layers elsewhere among `every` leaf have these names, it says in which blocks they are.
    `widths` are those of attention, which tell a layer's inputs from its outputs.

    >>> mlp_call([("h/0/up", (8, 32)), ("h/0/gate", (8, 32)), ("h/0/down", (32, 8))], GATED).text
    'mlp_rules(first="up", second="down", gate="gate", kernel="", transposed=…)'
    >>> mlp_call([("a/fc1/w", (8, 32)), ("a/fc2/w", (32, 8)), ("a/fc2/b", (8,))]).text
    'mlp_rules(first="fc1", second="fc2", kernel="w", bias="b")'
    >>> shapes = {"mlp/wi": (8, 32), "mlp/wo": (32, 8), "mlp/wg": (8, 32)}
    >>> mlp_call(shapes.items(), every=shapes.items(), widths=[8]).text
    'mlp_rules(first=…, gate=…, second="wo", kernel="")'
    """
    shapes, kinds, every = dict(leaves), list(kinds), list(every)
    for path, shape in shapes.items():
        for first, *others in kinds:
            if not (found := re.fullmatch(rf"((?:.*[/.])?){first}((?:[/.]\w+)?)", path)):
                continue
            second, *gate = (shapes.get(f"{found[1]}{name}{found[2]}") for name in others)
            stacks = {(*shape[:-2], *shape[:-3:-1]): 0, shape[::-1]: 1}
            if len(shape) not in (2, 3) or second not in stacks or set(gate) - {shape}:
                continue
            kernel = found[2][1:]
            axis = stacks[second] if len(shape) == 3 else 0
            options = dict(zip(("first", "second", "gate"), (first, *others), strict=False))
            layer = f"{found[1]}{others[0]}{found[2].removesuffix(kernel)}"
            stated = [f'{name}="{value}"' for name, value in options.items()]
            stated += _leaves(kernel, _beside(layer, kernel, shapes))
            reasons: tuple[str, ...] = ()
            ends = [shape[-2 - axis] in widths, shape[-1] in widths]
            output_first = ends[1] if ends[0] != ends[1] else _ORDERS.get(kernel)
            if first == "Dense_0" and ends == [False, True]:  # the last layer is made first
                stated[:2], output_first = ['first="Dense_1"', 'second="Dense_0"'], False
            elif first == "Dense_0" and ends[0] == ends[1] and shape[-2 - axis] > shape[-1]:
                stated[:2] = ["first=…", "second=…"]
                reasons = (
                    "first is the layer that gets the MLP's input: Linen numbers the layers of "
                    "nn.Dense(D)(nn.gelu(nn.Dense(F)(x))) from the last",
                )
            inside = re.compile(rf"{names.numbered(found[1])}(\w+){found[2]}".replace(".", "/"))
            thirds = [
                name[1]
                for leaf, size in every
                if size == shape and (name := inside.fullmatch(leaf.replace(".", "/")))
                if name[1] != first
            ]
            if thirds and not gate:
                stated[0:1] = ["first=…", "gate=…"]
                reasons += (
                    f"gate is the one of {first} and {thirds[0]} whose output is activated, if "
                    "either is, and first the other",
                )
            if output_first is None:
                stated.append("transposed=…")
                reasons += (_DECIDES["transposed"].format(first),)
            elif output_first:
                stated.append("transposed=True")
            if len(shape) == 3:
                stated.append("stacked=True")
            if axis:
                stated.append("axis=1")
            block = names.numbered(found[1][:-1])
            named = re.compile(rf"(?:(.*)[/.])?({'|'.join((first, *others))}){found[2]}")
            alike = (match for leaf, _ in every if (match := named.fullmatch(leaf)))
            if any(names.numbered(match[1] or "") != block for match in alike):
                stated.append(f'within=r"^{block}$"')
            return Call(f"mlp_rules({', '.join(stated)})", reasons)
    return None


def other_calls(
    leaves: Sequence[Leaf],
    roles: Collection[str],
    *,
    every: Sequence[Leaf] = (),
    widths: Collection[int] = (),
    gated: bool = True,
) -> list[Call]:
    """The calls for leaves that aren't attention's, if schemes want these roles.

    Args:
        leaves: paths and shapes of leaves without a rule.
        roles: those wanted.
        every: all leaves of the tree, of which a call must not describe others; `leaves` unless
            given.
        widths: of attention. An MLP of other names is known by two kernels [D, F] and [F, D].
        gated: whether schemes write gated MLPs.

    >>> [call] = other_calls([("tok", (50, 8)), ("lm_head", (8, 50))], {"embedding", "unembedding"})
    >>> call.text
    'embedding_rules("tok", "lm_head")'
    >>> mlp = [("a/kernel", (8, 32)), ("b/kernel", (32, 8))]
    >>> [call] = other_calls(mlp, ["mlp_out"], widths=[8])
    >>> call.text
    'mlp_rules(first="a", second="b")'
    >>> [call] = other_calls([("stem/weight", (64, 3, 8, 8))], ["patch"])
    >>> call.text
    'Rule("stem/weight", "patch", "d c u v")'
    """
    found: list[Call | None] = []
    every = every or leaves
    if {"mlp_in", "mlp_out"}.intersection(roles):
        of_gated = mlp_call(leaves, GATED, every, widths)
        if gated or not of_gated:
            kinds = (*_MLPS, *_pairs(leaves, widths))
            found.append(of_gated or mlp_call(leaves, kinds, every, widths))
    if "position" in roles and len(positions := _positions(leaves)) == 1:
        found += positions
    if "patch" in roles:
        patches = [*_patches(leaves)]
        so_named = [call for path, call in patches if names.embeds_patches(path)]
        rules = so_named or [call for _, call in patches]
        found += rules if len(rules) == 1 else []
    readouts = [one for one in leaves if one[1] and _READOUT.search(one[0])]
    tables = [one for one in leaves if names.embeds_tokens(*one) and one not in readouts]
    if "embedding" in roles and len(tables) == 1:
        [(path, shape)] = tables
        outputs = [one for one in readouts if one[1] in (shape, shape[::-1])]
        stated = [f'"{name.replace(".", "/")}"' for name, _ in [(path, shape), *outputs[:1]]]
        if outputs and outputs[0][1] == shape:
            stated.append("transposed=True")
        found.append(Call(f"embedding_rules({', '.join(stated)})"))
    tokens = {shape[0] for path, shape in every if names.embeds_tokens(path, shape)}
    biases = [path for path, (size, *rest) in readouts if not rest and size in tokens]
    if "unembedding_bias" in roles and len(biases) == 1:
        found.append(Call(f'Rule("{biases[0].replace(".", "/")}", "unembedding_bias", "t")'))
    return [call for call in found if call]


def _pairs(leaves: Iterable[Leaf], widths: Collection[int]) -> Iterator[tuple[str, str]]:
    """The names of two layers [D, F] and [F, D] of one module, F > D, if it has no third."""
    modules: dict[tuple[str, ...], dict[str, tuple[int, ...]]] = defaultdict(dict)
    for path, shape in leaves:
        if names.embeds_tokens(path, shape) or _READOUT.search(path):
            continue
        *above, layer = re.split("[/.]", path)
        kernel = ""
        if above and layer in _ORDERS:
            (*above, layer), kernel = above, layer
        if len(shape) in (2, 3):
            sizes = shape[:-2] + (shape[:-3:-1] if _ORDERS.get(kernel) else shape[-2:])
            modules[(*above, kernel)][layer] = sizes
    for layers in modules.values():
        pairs = [
            (first, second)
            for first, (*stack, width, hidden) in layers.items()
            for second, sizes in layers.items()
            if sizes == (*stack, hidden, width) and width in widths and hidden > width
        ]
        if len(pairs) == 1:
            yield pairs[0]


def _positions(leaves: Iterable[Leaf]) -> list[Call]:
    """The rules of leaves with the name and the axes of a position table."""
    return [
        Call(f'Rule("{path.replace(".", "/")}", "position", "{"1 " * (len(shape) - 2)}n d")')
        for path, shape in leaves
        if names.embeds_positions(path, shape)
    ]


def _patches(leaves: Iterable[Leaf]) -> Iterator[tuple[str, Call]]:
    """Kernels with the axes of a convolution over square patches of images, and linear layers with
    the name of one; with their rules."""
    for path, shape in leaves:
        layouts: list[str] = []
        reasons: tuple[str, ...] = ()
        if len(shape) == 4:
            axes = (("d c u v", (2, 3, 1)), ("u v c d", (0, 1, 2)))
            layouts = [x for x, (u, v, c) in axes if shape[u] == shape[v] and shape[c] <= 4]
        elif len(shape) == 2 and names.embeds_patches(path, 2):
            order = "d ({})" if path.endswith("weight") else "({}) d"
            layouts = ["…"]
            reasons = (
                f"the layout is {order.format('u v c')!r} if the numbers of a patch are its rows, "
                f"columns and channels in this order, {order.format('c u v')!r} if channels come "
                "first",
            )
        for layout in layouts:
            yield path, Call(f'Rule("{path.replace(".", "/")}", "patch", "{layout}")', reasons)


def _beside(layer: str, kernel: str, among: Iterable[str]) -> str:
    """The name of another leaf in a kernel's layer; "" if there is none, or the kernel has none."""
    inside = (path.removeprefix(layer) for path in among if path.startswith(layer))
    return next((name for name in inside if name != kernel), "") if kernel else ""


def _leaves(kernel: str, bias: str) -> list[str]:
    """The names of a layer's leaves, if they aren't kernel and bias."""
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


def rules_argument(calls: Iterable[Call], beside: str = "") -> str:
    """The argument of these calls, in front of other rules, with the numbers of heads.

    >>> rules_argument([Call('Rule("a", "patch", "d c u v")')], "zoo.COMMON")
    'rules=(Rule("a", "patch", "d c u v"), *zoo.COMMON)'
    """
    calls = list(calls)
    texts = [call.text if call.text.startswith("Rule") else f"*{call.text}" for call in calls]
    texts += [f"*{beside}"] if beside else []
    heads = dict.fromkeys(name for call in calls for name in call.heads)
    rules = f"({', '.join(texts)}{',' * (len(texts) == 1)})"
    if len(texts) == 1 and texts[0].startswith("*"):
        rules = texts[0][1:]
    return ", ".join([f"rules={rules}", *(f"{name}=…" for name in heads)])


def without(rules: str, *parts: str, keep: bool = False) -> str:
    """Rules that leave out these leaves, or all below a path that ends in a slash.

    They are for all layers: numbers stand for any, but for those in the last name if kept.

    >>> without("zoo.TIMM", "model.decoder/")
    'rules=(Rule(r"^model/decoder/.*", ()), *zoo.TIMM)'
    """
    left = []
    for part in parts:
        last = re.split("[/.]", part.removesuffix("/"))[-1] + "/" if keep else ""
        name = names.numbered(part.removesuffix(last)) + last
        left.append(f'Rule(r"^{name}{".*" * name.endswith("/")}", ())')
    return f"rules=({', '.join(dict.fromkeys(left))}, *{rules})"


def part_of(path: str, other: str) -> str:
    """The start of a path up to the first name that another one doesn't have, and a slash."""
    parts, others = re.split("[/.]", path), re.split("[/.]", other)
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(parts, others, strict=False))
    return "/".join(parts[: len(list(same)) + 1]) + "/"
