"""Trees whose arrays have axes with names: haliax, and so levanter; penzai.

The roles and layouts of such a tree are read off it, for the names of its axes say how each array
is stored: there is no table. levanter's models are pytrees of haliax's arrays, and go in and come
back as they are. penzai keeps its variables apart from the model, each with a label:

    model, variables = pz.unbind_params(model, freeze=True)
    arrays = rewrite(key, {one.label: one.value for one in variables}, scheme)
    new = [dataclasses.replace(one, value=arrays[one.label]) for one in variables]
    model = pz.bind_variables(model, new)

Known are levanter's Llama, Mistral, Qwen, Gemma and GPT-2 and penzai's transformers, whatever is
first in a kernel, layers stacked or apart. Queries with an axis for groups and one for the heads of
a group have layout "… g q k …", and a key without an axis of heads has one. Gains and scales are
those of Hugging Face's names, and penzai's; levanter's Gemma 1 has Llama's names and adds 1, which
the tree doesn't tell. Cross-attention keeps its initialization, and so do gated MLPs and experts.

Read from: stanford-crfm/levanter src/levanter/layers/attention.py,
src/levanter/models/{llama,gemma,gpt2,olmo,qwen}.py (9263f81); stanford-crfm/haliax
src/haliax/{core,axis}.py, src/haliax/nn/{linear,scan,normalization}.py (f41e7d4);
google-deepmind/penzai penzai/core/named_axes.py, penzai/nn/linear_and_affine.py,
penzai/models/transformer/variants/{llamalike_common,gpt_neox,gemma}.py (aac7808).
"""

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import jax

from mimetic_jax.rules import names
from mimetic_jax.rules.rule import Rule, find_rule
from mimetic_jax.rules.tables import CROSS_ATTENTION, QKV
from mimetic_jax.zoo.norms import gains, hugging_face_norms, scales
from mimetic_jax.zoo.suggestion import numbered

_AXES = {
    "embed": "d",
    "embedding": "d",
    "heads": "h",
    "kv_head": "g",
    "head_groups": "g",
    "q_heads_per_group": "q",
    "query_heads": "q",
    "head_size": "k",
    "projection": "k",
    "mlp": "f",
    "neurons": "f",
    "layers": "l",
    "blocks": "l",
    "qkv": "three",
    "position": "n",
    "vocab": "t",
}
"""Letters of layouts by the names of axes, haliax's and levanter's, and penzai's."""

_MLP = {
    "mlp_gate": "gate_proj|gating_linear",
    "mlp_in": "c_fc|up_proj|fc1|in|value_linear",
    "mlp_out": "c_proj|down_proj|fc2|out|out_linear",
}


_HALIAX, _PENZAI = "weight/0", "scale/weights/data_array"
_NORMS = (
    *hugging_face_norms(_HALIAX, _HALIAX),
    *gains(f"ln_1/{_HALIAX}", f"ln_2/{_HALIAX}"),
    *scales(f"post_attn_layernorm/{_HALIAX}", f"post_mlp_layernorm/{_HALIAX}"),
    *gains(f"pre_attention_norm/{_PENZAI}", f"pre_ffw_norm/{_PENZAI}"),
    *scales(f"post_attention_norm/{_PENZAI}", f"post_ffw_norm/{_PENZAI}"),
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
    return tuple(dict.fromkeys(rule for rule in rules if rule))


def _axis_names(node: Any) -> tuple[str, ...]:
    """The names of an array's axes; none for another node."""
    if isinstance(named := getattr(node, "named_axes", None), Mapping):  # penzai
        return tuple(named)
    axes = getattr(node, "axes", None)  # haliax
    if isinstance(axes, tuple) and hasattr(node, "array"):
        return tuple(str(getattr(axis, "name", "")) for axis in axes)
    return ()


def _rule(
    array: _Array, block: str, role: str | tuple[str, ...], axes: Iterable[str], **options: Any
) -> Rule:
    path = array.path.removeprefix(block).lstrip("/.").replace(".", "/")
    within = rf"^{numbered(block)}$"
    return Rule(path, role, " ".join(axes), within=within, exclude=CROSS_ATTENTION, **options)


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
        return Rule(numbered(array.path), "position", " ".join(array.axes))
    if array.of_layer == {"t", "d"}:
        role = "unembedding" if re.search("head|decode", array.path) else "embedding"
        return Rule(numbered(array.path), role, " ".join(array.axes))
    if array.of_layer != {"d"}:
        return None
    if kind == "out" and "bias" in array.path:
        return _rule(array, block, "out_bias", array.axes)
    if norm is None or not norm[0].roles:
        return None
    rule, block = norm
    return _rule(array, block, rule.role, array.axes, plus_one=rule.plus_one)
