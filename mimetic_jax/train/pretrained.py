"""Pretrained vision transformers: checkpoints of vit_jax, timm and Hugging Face by our paths.

The three store the same function under other names, which the zoo has, and in other orientations.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.tensor_files import read_file
from mimetic_jax.models.position import resample
from mimetic_jax.weights.position import square_grid
from mimetic_jax.zoo.vit_files import KINDS, Names

_SCALE = r"(block_\d+/)scale([12])"
_LAST = {"1": "attention/out", "2": "mlp/fc2"}


def by_path(
    path: str | os.PathLike[str], params: Any, say: Callable[[str], None]
) -> dict[str, np.ndarray]:
    """The tensors of a pretrained file in their own sizes, by the paths of a ViT's parameters.

    Read are `.npz` of vit_jax and AugReg, and `.safetensors` of timm, DeiT and Hugging Face's ViT
    and DINOv2. As many layers as the model stacks are stacked; heads have the width of the model's,
    which most files don't hold; the position table is resampled to the model's grid, without the
    class token's row if the model has none. LayerScale is multiplied into the last layer of its
    branch.

    Pixels must be normalized as in the pretraining: to [−1, 1] for vit_jax and AugReg, by
    ImageNet's means and standard deviations for DeiT.
    """
    leaves = traverse_util.flatten_dict(params, sep="/")
    widths = [leaf.shape[-1] for name, leaf in leaves.items() if name.endswith("query/kernel")]
    if not widths or "pos_embed" not in leaves:
        raise InputError(f"{path} contains ViT weights, but config.model is not a ViT")
    tensors = _in_our_names(path, read_file(path))
    taken = {}
    for name, leaf in leaves.items():
        names, (stack, _, rest) = [name], name.partition("/")
        if stack == "blocks":
            names = [f"block_{layer}/{rest}" for layer in range(leaf.shape[0])]
        if all(source in tensors for source in names):
            arrays = [_with_head_axis(tensors[source], source, widths[0]) for source in names]
            taken[name] = arrays[0] if names == [name] else np.stack(arrays)
    if "pos_embed" in taken:
        prefix = int("cls_token" in leaves)
        table = taken["pos_embed"]
        if "cls_token" in tensors and not prefix:
            table = table[:, 1:]
        taken["pos_embed"] = _on_grid(table, leaves["pos_embed"].shape[1], prefix, say)
    return taken


def _in_our_names(
    path: str | os.PathLike[str], stored: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The tensors of a file by our names of unrolled layers, inputs first."""
    kinds = [
        names for mark, names in KINDS.items() if any(re.fullmatch(mark, name) for name in stored)
    ]
    if not kinds:
        seen = ", ".join(sorted(stored)[:6])
        raise InputError(
            f"{path} is not a ViT of vit_jax, timm or Hugging Face: it holds {seen}, …"
        )
    tensors: dict[str, np.ndarray] = {}
    for name, array in stored.items():
        ours = _rename(kinds[0], name, array.shape)
        if ours is None:
            continue
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise InputError(f"{name} is {array.dtype} {array.shape}, not floating point")
        tensors |= dict(_parts(ours, array))
    return _without_scales(tensors)


def _without_scales(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """LayerScale multiplied into the last layer of its branch, which is the same function."""
    unscaled = {name: tensor for name, tensor in tensors.items() if not re.fullmatch(_SCALE, name)}
    for name, scale in tensors.items():
        if match := re.fullmatch(_SCALE, name):
            last = _LAST[match[2]]
            for path in (f"{match[1]}{last}/kernel", f"{match[1]}{last}/bias"):
                if path in unscaled:
                    unscaled[path] = unscaled[path] * scale
    return unscaled


def _rename(names: Names, name: str, shape: tuple[int, ...]) -> str | None:
    for pattern, ours in names:
        if match := re.fullmatch(pattern, name):
            return None if ours is None else match.expand(ours)
    raise InputError(f"{name} of shape {shape} has no place in our ViT")


def _parts(ours: str, array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Our name(s) of a tensor, and the tensor with its inputs first."""
    if ours.endswith("/weight"):  # PyTorch's: outputs first
        ours = ours.removesuffix("weight") + ("scale" if array.ndim == 1 else "kernel")
        array = array.transpose(2, 3, 1, 0) if array.ndim == 4 else array.T
    if ours == "patch_embed/kernel":
        array = array.reshape(-1, array.shape[-1])
    if "/qkv/" not in ours:
        yield ours, array
    else:
        for name, part in zip(("query", "key", "value"), np.array_split(array, 3, -1), strict=True):
            yield ours.replace("qkv", name), part


def _on_grid(table: np.ndarray, rows: int, prefix: int, say: Callable[[str], None]) -> np.ndarray:
    """The position table for the model's rows."""
    count, stored = rows - prefix, table.shape[1] - prefix
    if stored == count:
        return table
    there, here = square_grid(stored), square_grid(count)
    if there is None or here is None:
        raise InputError(
            f"the file has positions of {stored} patches and the model {count}: only square grids "
            "are resampled"
        )
    say(f"positions are resampled from {there[0]}x{there[1]} to {here[0]}x{here[1]} patches")
    return np.asarray(resample(table, there, here, prefix))


def _with_head_axis(array: np.ndarray, path: str, head_width: int) -> np.ndarray:
    """The array with the heads of an attention leaf on an axis of their own."""
    if path.endswith("attention/out/kernel") and array.ndim == 2:
        split, shape = array.shape[0], (-1, head_width, array.shape[1])
    elif re.search(r"attention/(query|key|value)/\w+$", path) and array.ndim < 3:
        if path.endswith("bias") and array.ndim == 2:
            return array
        split, shape = array.shape[-1], (*array.shape[:-1], -1, head_width)
    else:
        return array
    if split % head_width:
        raise InputError(f"{path} has {split} columns, not a multiple of head width {head_width}")
    return array.reshape(shape)
