"""The rules to give for a tree that no table describes, read off the names of its layers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from mimetic_jax.rules import names
from mimetic_jax.rules.rule import ATTENTION, Rule
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
    *(
        ("fc1", "fc2", "gate"),
        ("w_up", "w_down", "w_gate"),
        ("wi_1", "wo", "wi_0"),
        ("w_in", "w_out", "w_gate"),
    ),
)
"""Names of the three layers of a gated MLP; the last one's output is activated."""
_READOUT = re.compile(r"(?i)(^|[/.])((lm_?)?head|unembed\w*|logits\w*|output|readout)([/.]\w+)?$")

_POSITION = re.compile(
    r"(?i)(^|[/._])(pos(ition)?s?(al)?_?(emb|enc|table)|wpe|(pos(ition)?s?|pe)$)"
)

Leaf: TypeAlias = tuple[str, tuple[int, ...]]
"""The path of a leaf and its shape."""
_Layer = tuple[str, str, tuple[int, ...], str]
"""Its name, the name of its kernel, the shape, and the name of its bias."""


def suggestion(
    leaves: Iterable[Leaf],
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
        block, name, kind = names.layer_of(path)
        start = f"{block}{path[len(block)]}{name}" if block else name
        layer = re.fullmatch(r"((?:[/.]\d+)?)(?:[/.](\w+))?", path.removeprefix(start))
        if kind and layer and len(shape) > 1 and layer[2] != "bias":
            kernel = layer[2] or ""
            bias = _beside(path.removesuffix(kernel), kernel, shapes)
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


def mlp_call(
    leaves: Iterable[Leaf],
    kinds: Iterable[tuple[str, ...]] = _MLPS,
    every: Iterable[Leaf] = (),
) -> str:
    """The call of `mlp_rules` for the first MLP whose layers have names of these kinds.

    If layers elsewhere among `every` leaf have these names, it says in which blocks they are.

    >>> mlp_call([("h/0/up", (8, 32)), ("h/0/gate", (8, 32)), ("h/0/down", (32, 8))], _GATED)
    'mlp_rules(first="up", second="down", gate="gate", kernel="")'
    >>> mlp_call([("a/fc1/w", (8, 32)), ("a/fc2/w", (32, 8)), ("a/fc2/b", (8,))])
    'mlp_rules(first="fc1", second="fc2", kernel="w", bias="b")'
    """
    shapes, kinds = dict(leaves), list(kinds)
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
            narrows = shape[-2 - axis] > shape[-1]
            layers = (first, *others)
            if narrows and first == "Dense_0":  # the last layer may be made first
                layers, narrows = layers[::-1], False
            options = dict(zip(("first", "second", "gate"), layers, strict=False))
            layer = f"{found[1]}{others[0]}{found[2].removesuffix(kernel)}"
            stated = [f'{name}="{value}"' for name, value in options.items()]
            stated += _leaves(kernel, _beside(layer, kernel, shapes))
            if narrows:
                stated.append("transposed=True")
            if len(shape) == 3:
                stated.append("stacked=True")
            if axis:
                stated.append("axis=1")
            block = numbered(found[1][:-1])
            named = re.compile(rf"(?:(.*)[/.])?({'|'.join((first, *others))}){found[2]}")
            alike = (match for leaf, _ in every if (match := named.fullmatch(leaf)))
            if any(numbered(match[1] or "") != block for match in alike):
                stated.append(f'within=r"^{block}$"')
            return f"mlp_rules({', '.join(stated)})"
    return ""


def other_calls(
    leaves: Sequence[Leaf],
    roles: Collection[str],
    *,
    every: Sequence[Leaf] = (),
    widths: Collection[int] = (),
    gated: bool = True,
) -> list[str]:
    """The calls for leaves that aren't attention's, if schemes want these roles.

    Args:
        leaves: paths and shapes of leaves without a rule.
        roles: those wanted.
        every: all leaves of the tree, of which a call must not describe others; `leaves` unless
            given.
        widths: of attention. An MLP of other names is known by two kernels [D, F] and [F, D].
        gated: whether schemes write gated MLPs.

    >>> other_calls([("tok", (50, 8)), ("lm_head", (8, 50))], {"embedding", "unembedding"})
    ['embedding_rules("tok", "lm_head")']
    >>> other_calls([("tok", (50, 8)), ("head/bias", (50,))], {"unembedding_bias"})
    ['Rule("head/bias", "unembedding_bias", "t")']
    >>> other_calls([("h/0/a/kernel", (8, 32)), ("h/0/b/kernel", (32, 8))], ["mlp_out"], widths=[8])
    ['mlp_rules(first="a", second="b")']
    >>> other_calls([("stem/weight", (64, 3, 8, 8))], ["patch"])
    ['Rule("stem/weight", "patch", "d c u v")']
    """
    found, every = [], every or leaves
    if {"mlp_in", "mlp_out"}.intersection(roles):
        of_gated = mlp_call(leaves, _GATED, every)
        if gated or not of_gated:
            kinds = (*_MLPS, *_pairs(leaves, widths))
            found.append(of_gated or mlp_call(leaves, kinds, every))
    if "position" in roles and len(positions := _positions(leaves)) == 1:
        found += positions
    if "patch" in roles:
        patches = [*_patches(leaves)]
        so_named = [rule for path, rule in patches if names.embeds_patches(path)]
        rules = so_named or [rule for _, rule in patches]
        found += rules if len(rules) == 1 else []
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
            sizes = shape[:-2] + (shape[:-3:-1] if _ORDERS[kernel] else shape[-2:])
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


def _positions(leaves: Iterable[Leaf]) -> list[str]:
    """The rules of leaves with the name and the axes of a position table."""
    return [
        f'Rule("{path.replace(".", "/")}", "position", "{"1 " * (len(shape) - 2)}n d")'
        for path, shape in leaves
        if _POSITION.search(path) and (len(shape) == 2 or (len(shape) == 3 and shape[0] == 1))
    ]


def _patches(leaves: Iterable[Leaf]) -> Iterator[tuple[str, str]]:
    """Kernels with the axes of a convolution over square patches of images, and linear layers with
    the name of one; with their rules."""
    for path, shape in leaves:
        layouts = []
        if len(shape) == 4:
            axes = (("d c u v", (2, 3, 1)), ("u v c d", (0, 1, 2)))
            layouts = [x for x, (u, v, c) in axes if shape[u] == shape[v] and shape[c] <= 4]
        elif len(shape) == 2 and names.embeds_patches(path, 2):
            layouts = ["d (u v c)" if path.endswith("weight") else "(u v c) d"]
        for layout in layouts:
            yield path, f'Rule("{path.replace(".", "/")}", "patch", "{layout}")'


def numbered(path: str) -> str:
    """A regular expression for a path and for those that differ in the numbers of layers."""
    return re.sub(r"(^|[/_])\d+", r"\1\\d+", path.replace(".", "/"))


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
    stated += _leaves(*layers["out"][1::2])
    stated += [f"{flag}={value}" for flag, value in storage.items()]
    call = given([f"attention_rules({', '.join([*stated, *options])})", *others], beside)
    if "flat" not in storage:
        return call
    call = f"{call}, {_heads(grouped=sizes['(h k)'] != sizes['(g k)'])}"
    if unsure and not leaf:  # the name of no library's kernel
        name = layers["query"][0]
        call += f", if the model computes x @ {name}; with transposed=True if it is {name} @ x"
    return call


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


def _fused(
    fused: _Layer, out: _Layer, options: list[str], beside: str, others: Sequence[str]
) -> str:
    """The call for a kernel of two axes that holds query, key and value, in either order."""
    (name, _, shape, _), (out_name, _, out_shape, _) = fused, out
    if len(shape) != 2 or len(out_shape) != 2:
        return ""
    stated = [f'fused="{name}"', f'out="{out_name}"', *_leaves(*(out if out[3] else fused)[1::2])]
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
