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
import numpy as np

from mimetic_jax.rules import names, paths
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


def named_rules(params: Any) -> tuple[Rule, ...]:
    """The rules that the names of a tree's axes give; none if its axes have no names."""
    arrays = [one for one in _arrays(params) if "" not in one.axes]
    layers = {one: found for one in arrays if (found := _layer_of_mlp(one))}
    kernels = {found for one, found in layers.items() if one.of_layer == {"d", "f"}}
    mlps = {one: found for one, found in layers.items() if found in kernels}
    gated = {block for block, role in mlps.values() if role == "mlp_gate"}
    present = {one.path for one in arrays}
    rules = (
        _attention(one)
        or (_mlp(one, *mlps[one], gated) if one in mlps else None)
        or _other(one, present)
        for one in arrays
    )
    return tuple(dict.fromkeys(rule for rule in rules if rule))


def _arrays(params: Any) -> Iterable[_Array]:
    """The named arrays of a tree."""
    leaves = iter(paths.flatten(params)[0])
    for node in jax.tree.leaves(params, is_leaf=lambda node: bool(_axis_names(node))):
        for _ in jax.tree.leaves(node):
            path, leaf = next(leaves)
            if (axes := _axis_names(node)) and len(axes) == np.ndim(leaf):
                yield _Array(path, tuple(_AXES.get(axis, "") for axis in axes))


def _axis_names(node: Any) -> tuple[str, ...]:
    """The names of an array's axes; none for another node."""
    if isinstance(named := getattr(node, "named_axes", None), Mapping):  # penzai
        return tuple(named)
    axes = getattr(node, "axes", None)  # haliax
    if isinstance(axes, tuple) and hasattr(node, "array"):
        return tuple(str(getattr(axis, "name", "")) for axis in axes)
    return ()


def _rule(
    one: _Array, block: str, role: str | tuple[str, ...], axes: Iterable[str], **options: Any
) -> Rule:
    path = re.sub("[/.]", "/", one.path.removeprefix(block).lstrip("/."))
    within = rf"^{numbered(block)}$"
    return Rule(path, role, " ".join(axes), within=within, exclude=CROSS_ATTENTION, **options)


def _attention(one: _Array) -> Rule | None:
    block, _, kind = names.found(one.path)
    heads = {"h", "g", "q"} & set(one.axes)
    if "k" not in one.axes or not (heads or kind in ("key", "value")):
        return None
    end = "" if "d" in one.axes else "_bias"
    axes = one.axes
    if "three" in axes:
        return _rule(one, block, tuple(f"{role}{end}" for role in QKV), axes)
    if kind in ("key", "value"):
        axes = tuple("g" if axis == "h" else axis for axis in axes)
    elif kind not in ("query", "out"):
        return None
    elif "g" not in axes:  # all queries are of one group
        axes = tuple("h" if axis == "q" else axis for axis in axes)
    return _rule(one, block, f"{kind}{end}", axes)


def _mlp(one: _Array, block: str, role: str, gated: Collection[str]) -> Rule | None:
    if "f" in one.axes and "d" in one.axes:
        return _rule(one, block, role, one.axes, read_only=block in gated)
    return None if block in gated else _rule(one, block, f"{role}_bias", one.axes)


def _layer_of_mlp(one: _Array) -> tuple[str, str] | None:
    """The block and the role of a kernel or a bias of an MLP."""
    for part in re.finditer(r"[^/.]+", one.path):
        for role, expression in _MLP.items():
            bias = {"f"} if role != "mlp_out" else {"d"}
            if re.fullmatch(expression, part[0]) and (
                one.of_layer == {"d", "f"} or (one.of_layer == bias and "bias" in one.path)
            ):
                return one.path[: max(part.start() - 1, 0)], role
    return None


def _other(one: _Array, present: Collection[str]) -> Rule | None:
    """The rule of a table of positions or tokens, a bias of the output, a gain or a scale."""
    if one.of_layer == {"n", "d"}:
        return Rule(numbered(one.path), "position", " ".join(one.axes))
    if one.of_layer == {"t", "d"}:
        role = "unembedding" if re.search("head|decode", one.path) else "embedding"
        return Rule(numbered(one.path), role, " ".join(one.axes))
    if one.of_layer != {"d"}:
        return None
    block, _, kind = names.found(one.path)
    if kind == "out" and "bias" in one.path:
        return _rule(one, block, "out_bias", one.axes)
    described = find_rule(one.path, _NORMS, present)
    if described is None or not described[0].roles:
        return None
    rule, block = described
    return _rule(one, block, rule.role, one.axes, plus_one=rule.plus_one)
