"""Trees whose arrays have axes with names, of haliax and so of levanter.

The roles and layouts of such a tree are read off it, for the names of its axes say how each array
is stored: it needs no family. levanter's models are pytrees of haliax's arrays, and go in and come
back as they are.

Known are levanter's Llama, Mistral, Qwen, Gemma and GPT-2, whatever is first in a kernel, layers
stacked or apart. Queries with an axis for groups and one for the heads of a group have layout
"… g q k …". Gains and scales are those of Hugging Face's names; levanter's Gemma 1 has Llama's and
adds 1, which the tree doesn't tell. Cross-attention keeps its initialization, and so do gated MLPs
and experts.

Read from: stanford-crfm/levanter src/levanter/layers/attention.py,
src/levanter/models/{llama,gemma,gpt2,olmo,qwen}.py (9263f81); stanford-crfm/haliax
src/haliax/{core,axis}.py, src/haliax/nn/{linear,scan,normalization}.py (f41e7d4).
"""

import dataclasses
import re
from collections.abc import Collection, Iterable
from typing import Any

import jax

from mimetic_jax.rules import names
from mimetic_jax.rules.rule import Rule, find_rule
from mimetic_jax.rules.tables import CROSS_ATTENTION, QKV, left_out

_AXES = {
    "embed": "d",
    "heads": "h",
    "kv_head": "g",
    "q_heads_per_group": "q",
    "head_size": "k",
    "mlp": "f",
    "layers": "l",
    "blocks": "l",
    "qkv": "three",
    "position": "n",
    "vocab": "t",
}
"""Letters of layouts by haliax's and levanter's names of axes."""

_MLP = {
    "mlp_gate": "gate_proj",
    "mlp_in": "c_fc|up_proj|fc1",
    "mlp_out": "c_proj|down_proj|fc2",
}

_SANDWICH = "pre_feedforward_layernorm/weight/0"
_NORMS = tuple(
    Rule(f"(?:{name})/weight/0", role, "d", beside=beside)
    for role, name, beside in (
        ("attention_gain", "input_layernorm|ln_1", ""),
        ("mlp_gain", "pre_feedforward_layernorm|ln_2", ""),
        ("attention_scale", "post_attention_layernorm", _SANDWICH),
        ("mlp_scale", "post_feedforward_layernorm", _SANDWICH),
        ("mlp_gain", "post_attention_layernorm", ""),
        ("attention_scale", "post_attn_layernorm", ""),
        ("mlp_scale", "post_mlp_layernorm", ""),
    )
)
"""Norms by their names, wherever a layer's axis is."""


@dataclasses.dataclass(frozen=True)
class _Array:
    """A leaf of the tree, with the letters of its axes."""

    path: str
    axes: tuple[str, ...]

    @property
    def of_layer(self) -> set[str]:
        return set(self.axes) - {"l"}


def named_rules(params: Any, shapes: Iterable[tuple[str, tuple[int, ...]]]) -> tuple[Rule, ...]:
    """The rules that the names of a tree's axes give, whose leaves have these paths and shapes;
    none if its axes have no names."""
    nodes = jax.tree.leaves(params, is_leaf=lambda node: bool(_axis_names(node)))
    each = (_axis_names(node) for node in nodes for _ in jax.tree.leaves(node))
    arrays = [
        _Array(path, tuple(map(_AXES.__getitem__, axes)))
        for (path, shape), axes in zip(shapes, each, strict=True)
        if axes and len(axes) == len(shape) and _AXES.keys() >= {*axes}
    ]
    places = {array: names.layer_of(array.path)[::2] for array in arrays}  # block and kind
    present = {array.path for array in arrays}
    norms = {array: find_rule(array.path, _NORMS, present) for array in arrays}
    layers = {array: layer for array in arrays if (layer := _layer_of_mlp(array))}
    kernels = {layer for array, layer in layers.items() if array.of_layer == {"d", "f"}}
    mlps = {array: layer for array, layer in layers.items() if layer in kernels}
    gated = {block for block, role in mlps.values() if role == "mlp_gate"}
    rules = (
        _attention(array, *places[array])
        or (_mlp(array, *mlps[array], gated) if array in mlps else None)
        or _other(array, *places[array], norms[array])
        for array in arrays
    )
    found = tuple(dict.fromkeys(rule for rule in rules if rule))
    return left_out(CROSS_ATTENTION) + found if found else ()


def _axis_names(node: Any) -> tuple[str, ...]:
    """The names of an array's axes; none for another node."""
    axes = getattr(node, "axes", None)
    if isinstance(axes, tuple) and hasattr(node, "array"):
        return tuple(str(getattr(axis, "name", "")) for axis in axes)
    return ()


def _rule(
    array: _Array, block: str, role: str | tuple[str, ...], axes: Iterable[str], **options: Any
) -> Rule:
    path = array.path.removeprefix(block).lstrip("/.").replace(".", "/")
    within = rf"^{names.numbered(block)}$"
    return Rule(path, role, " ".join(axes), within=within, **options)


def _attention(array: _Array, block: str, kind: str) -> Rule | None:
    heads = {"h", "g", "q"} & set(array.axes)
    if "k" not in array.axes or not (heads or kind in ("key", "value")):
        return None
    end = "" if "d" in array.axes else "_bias"
    axes = array.axes
    if "three" in axes:
        return _rule(array, block, tuple(f"{role}{end}" for role in QKV), axes)
    if kind in ("key", "value"):
        axes = tuple("g" if axis == "h" else axis for axis in axes)
    elif kind not in ("query", "out"):
        return None
    elif "g" not in axes:  # all queries are of one group
        axes = tuple("h" if axis == "q" else axis for axis in axes)
    return _rule(array, block, f"{kind}{end}", axes)


def _mlp(array: _Array, block: str, role: str, gated: Collection[str]) -> Rule | None:
    if "f" in array.axes and "d" in array.axes:
        return _rule(array, block, role, array.axes, read_only=block in gated)
    return None if block in gated else _rule(array, block, f"{role}_bias", array.axes)


def _layer_of_mlp(array: _Array) -> tuple[str, str] | None:
    """The block and the role of a kernel or a bias of an MLP."""
    for part in re.finditer(r"[^/.]+", array.path):
        for role, expression in _MLP.items():
            bias = {"f"} if role != "mlp_out" else {"d"}
            if re.fullmatch(expression, part[0]) and (
                array.of_layer == {"d", "f"} or (array.of_layer == bias and "bias" in array.path)
            ):
                return array.path[: max(part.start() - 1, 0)], role
    return None


def _other(array: _Array, block: str, kind: str, norm: tuple[Rule, str] | None) -> Rule | None:
    """The rule of a table of positions or tokens, a bias of the output, a gain or a scale."""
    if array.of_layer == {"n", "d"}:
        return Rule(names.numbered(array.path), "position", " ".join(array.axes))
    if array.of_layer == {"t", "d"}:
        role = "unembedding" if re.search("head|decode", array.path) else "embedding"
        return Rule(names.numbered(array.path), role, " ".join(array.axes))
    if array.of_layer != {"d"}:
        return None
    if kind == "out" and "bias" in array.path:
        return _rule(array, block, "out_bias", array.axes)
    if norm is None or not norm[0].roles:
        return None
    rule, block = norm
    return _rule(array, block, rule.role, array.axes)
