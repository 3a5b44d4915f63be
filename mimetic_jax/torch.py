"""PyTorch: schemes on live modules. PyTorch is not a dependency: whoever has a module has it."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax import zoo
from mimetic_jax.base.errors import InputError, blaming, error_text
from mimetic_jax.rules.layout import QUERY_HEADS
from mimetic_jax.rules.rule import Rule, find_rule
from mimetic_jax.schemes import PositionalHeads, Scheme, as_tuple
from mimetic_jax.schemes.base import attention_kernels, inside
from mimetic_jax.tree.rewrite import Plan, rewrite_in_place
from mimetic_jax.weights.checks import check_key
from mimetic_jax.zoo.family import Family
from mimetic_jax.zoo.model_config import ModelConfig

if TYPE_CHECKING:
    import torch

_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "nhead", "heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "kv_heads")


def initialize(
    module: torch.nn.Module, key: jax.Array, scheme: Scheme | Sequence[Scheme], **options: Any
) -> Plan:
    """Rewrite a module's parameters in place.

    The numbers are those of `rewrite` on a dictionary of the parameters: the same on every device
    and in every process. Parameters keep their device and dtype, and remain the same objects, so
    that an optimizer may exist already, unless it holds a copy of them.

    Args:
        module: any `torch.nn.Module`; rules match the names of its parameters.
        key: a `jax.random` key.
        scheme: a scheme, or a tuple or list of schemes.
        **options: those of `rewrite`. PyTorch stores heads flattened: `num_heads` and
            `num_kv_heads` are read from the module of each attention, or from a config of it or
            above it, and needed if these don't say them. Without `rules` the table of `zoo`
            that fits is taken: names of torch.nn, timm, torchvision and Hugging Face.

    Returns:
        What was written; print it.

    Raises:
        InputError: as `plan`, before anything is written; or for
            parameters that aren't here: uninitialized, on the device "meta", or sharded.

    Example:
        import torch
        layer = torch.nn.TransformerEncoderLayer(192, 3)
        print(initialize(layer, jax.random.key(0), Mimetic()))
    """
    with blaming("initialize(module, key, scheme)"):
        check_key(key)
        tensors = _parameters(module)
        given = {name: value for name, value in options.items() if value is not None}
        modules = dict(module.named_modules())
        config = next(filter(None, map(_config, modules.values())), None)
        for part in inside(as_tuple(scheme)):
            if config and "rules" not in given and isinstance(part, PositionalHeads):
                part.check_config(config)
        options = _stated(modules, config, tensors, given) | given
    arrays = _arrays(tensors)
    planned = rewrite_in_place(
        key, arrays, scheme, check=lambda planned: _check_apart(tensors, planned), **options
    )
    for path in {write.path for write in planned}:
        tensor = tensors[path]
        if tensor.device.type != "cpu" or not tensor.is_contiguous():
            tensor.detach().copy_(_tensor(arrays[path]))
    return planned


def arrays_of(module: torch.nn.Module) -> dict[str, np.ndarray]:
    """Read the parameters of a module as arrays by name, for `plan`, `check`, `fit` and `blocks`.

    Args:
        module: any `torch.nn.Module`.

    Returns:
        NumPy arrays by parameter name; they share memory with parameters on the CPU.

    Raises:
        InputError: for parameters on the device "meta", sharded, sparse or quantized.
    """
    return _arrays(_parameters(module))


def _check_apart(tensors: Mapping[str, torch.Tensor], planned: Plan) -> None:
    """Raise InputError if a tensor to write shares memory with another one.

    Two names of one tensor would get the draws of the one that is written last, or a draw that only
    one of them is for. An embedding of tokens is the output layer of a tied model, too.
    """
    written = {write.path for write in planned}
    others = {write.path for write in planned if write.role != "embedding"}
    spans = []
    for name, tensor in tensors.items():
        if tensor.numel():
            start = tensor.data_ptr()
            last = sum(
                (n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True)
            )
            end = start + (last + 1) * tensor.element_size()
            spans.append((str(tensor.device), start, end, name))
    before = ("", 0, 0, "")
    for span in sorted(spans):
        device, start, stop, name = span
        pair = {before[3], name}
        tied = span[:3] == before[:3] and not pair & others
        if device == before[0] and start < before[2] and pair & written and not tied:
            raise InputError(
                f"{before[3]} and {name} share their memory, so that one draw would overwrite the "
                "other; pass each weights of its own by tensor.clone()"
            )
        if device != before[0] or stop > before[2]:
            before = span


def _parameters(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    if not hasattr(module, "named_parameters"):
        raise InputError(
            f"{type(module).__name__} has no named_parameters, as a torch.nn.Module has"
        )
    return dict(module.named_parameters())


def _stated(
    modules: Mapping[str, Any],
    config: ModelConfig | None,
    tensors: Mapping[str, torch.Tensor],
    given: dict[str, Any],
) -> dict[str, Any]:
    """The rules of the module's type and its numbers of heads, as options beside those given.

    If the numbers differ, as between the stages of a Swin, they are put in rules for each layer,
    which replace those given.
    """
    rules = given.get("rules", ())
    if not isinstance(rules, Family | Sequence) or not all(isinstance(x, Rule) for x in rules):
        return {}  # `rewrite` refuses them
    try:
        shapes = {
            name: jax.ShapeDtypeStruct(tuple(tensor.shape), np.float32)
            for name, tensor in tensors.items()
        }
    except RuntimeError:  # of a parameter without values, which is refused later
        return {}
    options: dict[str, Any] = {}
    if config and "rules" not in given:
        options["rules"] = zoo.rules_of_config(shapes, config)
    elif config and not isinstance(given["rules"], Family):
        given["rules"] = zoo.with_config(given["rules"], config)
    if "num_heads" in given:
        return options
    family = given.get("rules") or options.get("rules") or zoo.family_of(shapes)
    rules = family.rules if isinstance(family, Family) else family
    blocks: dict[str, list[tuple[str, Rule]]] = defaultdict(list)
    for path in shapes:
        if described := find_rule(path, rules, shapes.keys()):
            blocks[described[1]].append((path, described[0]))
    found = {}
    for block, leaves in blocks.items():
        flat = [path for path, rule in leaves if rule.flat and not rule.heads]
        if flat and attention_kernels(frozenset(x for _, rule in leaves for x in rule.roles)):
            found[block] = _numbers(modules, flat)
    said = {block: numbers for block, numbers in found.items() if numbers}
    if len(set(found.values())) == 1 and said:
        numbers = next(iter(said.values()))
        return options | dict(zip(("num_heads", "num_kv_heads"), numbers, strict=True))
    if not said:
        return options
    each = []
    for block, (heads, stated) in said.items():
        groups = given.get("num_kv_heads") or stated or heads
        for rule in dict.fromkeys(x for _, x in blocks[block] if x.flat and not x.heads):
            # A rule has one number, which says nothing of a leaf with heads of both kinds.
            kinds = {"h", "g", QUERY_HEADS, "three"}.intersection(rule.stored.names)
            if heads == groups or kinds in ({"h"}, {"g"}):
                number = heads if "h" in kinds else groups
                within = f"^{re.escape(block)}$"
                each.append(dataclasses.replace(rule, heads=number, within=within))
    given.pop("rules", None)
    every = (*each, *rules)
    known = isinstance(family, Family)
    return {"rules": dataclasses.replace(family, rules=every) if known else every}


def _config(module: Any) -> ModelConfig | None:
    """The configuration of a module of Hugging Face."""
    config = getattr(module, "config", None)
    is_theirs = hasattr(config, "to_dict") and getattr(config, "model_type", None)
    return ModelConfig.of(config) if is_theirs else None


def _numbers(modules: Mapping[str, Any], paths: Sequence[str]) -> tuple[int, int | None] | None:
    """The numbers of heads of query and of key and value that modules say of one attention, whose
    flattened leaves have these paths; the second is None if they don't say it.

    A module above may say the number of another part, its configuration that of all.
    """
    layers = list(dict.fromkeys(tuple(path.split(".")[:-1]) for path in paths))
    common = itertools.takewhile(lambda parts: len({*parts}) == 1, zip(*layers, strict=False))
    shared = layers[0][: len(list(common)) if len(layers) > 1 else -1]
    places = [layer[:end] for layer in layers for end in range(len(layer), len(shared) - 1, -1)]
    inside = [modules.get(".".join(place)) for place in places]
    above = [modules.get(".".join(shared[:end])) for end in reversed(range(len(shared)))]
    configs = (
        config
        for module in (*inside, *above)
        for config in (_config(module), getattr(module, "config", None))
    )
    for holder in (*inside, *configs):
        numbers = (getattr(holder, name, None) for name in _HEADS)
        if heads := next((number for number in numbers if type(number) is int), None):
            groups = (getattr(holder, name, None) for name in _KV_HEADS)
            return heads, next((number for number in groups if type(number) is int), None)
    return None


def _arrays(tensors: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    return {name: _array(name, tensor) for name, tensor in tensors.items()}


def _array(name: str, tensor: torch.Tensor) -> np.ndarray:
    """The values; the tensor's own memory, if that is on the CPU and contiguous."""
    if tensor.device.type == "meta" or hasattr(tensor, "full_tensor"):
        raise InputError(
            f"{name} is on the meta device or sharded. Materialize it first, and initialize before "
            "sharding."
        )
    try:
        values = tensor.detach().cpu().contiguous()
        if other := _others_dtype(values.dtype):
            import torch

            # The same bits, seen as integers on the way.
            return values.view(getattr(torch, f"int{8 * other.itemsize}")).numpy().view(other)
        return values.numpy()
    except (RuntimeError, TypeError, ValueError) as error:  # sparse, quantized, uninitialized
        raise InputError(f"{name} can't be read as an array ({error_text(error)})") from error


def _tensor(array: np.ndarray) -> torch.Tensor:
    import torch

    if other := _others_dtype(array.dtype):
        bits = torch.from_numpy(array.view(f"int{8 * other.itemsize}"))
        return bits.view(getattr(torch, other.name))
    return torch.from_numpy(array)


def _others_dtype(dtype: Any) -> np.dtype | None:
    """The dtype for arrays, if it is one that NumPy doesn't have itself; None if it does."""
    name = str(dtype).removeprefix("torch.")
    return np.dtype(getattr(jnp, name)) if name.startswith(("bfloat16", "float8_")) else None
