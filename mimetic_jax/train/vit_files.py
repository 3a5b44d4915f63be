"""Pretrained vision transformers: files of AugReg and of timm, by the paths of our ViT.

Both store the same function under other names and in other orientations.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.tensor_files import read_file
from mimetic_jax.models.position import resample
from mimetic_jax.weights.position import square_grid

SUFFIXES = (".npz", ".safetensors")

_BLOCK = r"Transformer/encoderblock_(\d+)/"
_AUGREG = (
    (r"embedding/(\w+)", r"patch_embed/\1"),
    (r"cls", "cls_token"),
    (r"Transformer/posembed_input/pos_embedding", "pos_embed"),
    (_BLOCK + r"LayerNorm_0/(\w+)", r"block_\1/norm1/\2"),
    (_BLOCK + r"LayerNorm_2/(\w+)", r"block_\1/norm2/\2"),
    (_BLOCK + r"MultiHeadDotProductAttention_1/(\w+/\w+)", r"block_\1/attention/\2"),
    (_BLOCK + r"MlpBlock_3/Dense_0/(\w+)", r"block_\1/mlp/fc1/\2"),
    (_BLOCK + r"MlpBlock_3/Dense_1/(\w+)", r"block_\1/mlp/fc2/\2"),
    (r"Transformer/encoder_norm/(\w+)", r"norm/\1"),
    (r"head/(\w+)", r"head/\1"),
)
_TIMM = (
    (r"patch_embed\.proj\.(\w+)", r"patch_embed/\1"),
    (r"(cls_token|pos_embed)", r"\1"),
    (r"blocks\.(\d+)\.(norm[12])\.(\w+)", r"block_\1/\2/\3"),
    (r"blocks\.(\d+)\.attn\.qkv\.(\w+)", r"block_\1/attention/qkv/\2"),
    (r"blocks\.(\d+)\.attn\.proj\.(\w+)", r"block_\1/attention/out/\2"),
    (r"blocks\.(\d+)\.mlp\.(fc[12])\.(\w+)", r"block_\1/mlp/\2/\3"),
    (r"(norm|head)\.(\w+)", r"\1/\2"),
)
_KINDS = (_AUGREG, _TIMM)
"""Names of tensors, and our paths of unrolled layers; the first is that of the patch embedding.

Read from: vit_jax/checkpoint.py; timm, models/vision_transformer.py.
"""


def read_vit(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Read the tensors of a file in their own sizes, inputs first, by our paths of unrolled layers.

    Raises:
        InputError: if the file is not a ViT of AugReg or timm, or has a tensor that our ViT lacks.
    """
    stored = read_file(path)
    kinds = [names for names in _KINDS if any(re.fullmatch(names[0][0], name) for name in stored)]
    if not kinds:
        seen = ", ".join(sorted(stored)[:6])
        raise InputError(
            f"{path} must be a ViT of AugReg (.npz) or timm (.safetensors); it has {seen}, …"
        )
    tensors: dict[str, np.ndarray] = {}
    for name, array in stored.items():
        ours = _rename(kinds[0], name, array.shape)
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise InputError(f"{name} is {array.dtype} {array.shape}, not floating point")
        tensors |= dict(_parts(ours, array))
    return tensors


def fit_vit(
    tensors: Mapping[str, np.ndarray], params: Any, say: Callable[[str], None]
) -> dict[str, np.ndarray]:
    """Arrange the tensors of `read_vit` as a model has them, by the paths of its parameters.

    As many layers as the model stacks are stacked; heads have the width of the model's, which most
    files don't hold; the position table is resampled to the model's grid, without the class token's
    row if the model has none.

    Pixels must be normalized as in the pretraining: to [−1, 1] for AugReg, by ImageNet's means and
    standard deviations for DeiT.
    """
    leaves = traverse_util.flatten_dict(params, sep="/")
    widths = [leaf.shape[-1] for name, leaf in leaves.items() if name.endswith("query/kernel")]
    if not widths or "pos_embed" not in leaves:
        raise InputError("init_from contains ViT weights, but config.model is not a ViT")
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


def _rename(names: Sequence[tuple[str, str]], name: str, shape: tuple[int, ...]) -> str:
    for pattern, ours in names:
        if match := re.fullmatch(pattern, name):
            return match.expand(ours)
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
