"""The attention kernels of pretrained files alone: ViTs and GPT-2, to look at."""

from __future__ import annotations

import os
import re
from typing import Any

import numpy as np
from flax import traverse_util

from mimetic_jax.base.errors import InputError
from mimetic_jax.models.pretrained import PretrainedFile
from mimetic_jax.models.tensor_files import check_floating, read_file

HEAD_DIM = 64
"""Of every published ViT and GPT-2; most files don't hold their number of heads."""

_GPT2 = re.compile(r"(?:transformer\.)?h\.(\d+)\.attn\.(c_attn|c_proj)\.weight")
_ROLES = ("query", "key", "value")


def pretrained_attention(path: str | os.PathLike[str], head_dim: int = HEAD_DIM) -> dict[str, Any]:
    """The attention kernels of a pretrained file, as our models name and store them.

    Args:
        path: `.npz` or `.safetensors`: a ViT of vit_jax, timm or Hugging Face, or Hugging Face's
            GPT-2.
        head_dim: K; the number of heads is D / K.

    Returns:
        A tree of block_0/attention/{query, key, value, out}/kernel …, [D, H, K] and for out
        [H, K, D], float32.

    Raises:
        InputError: for a file of another kind, or whose width K doesn't divide.

    Reference: Mimetic Initialization of Self-Attention Layers, figures 1 and 7.
    """
    stored = read_file(path)
    if any(_GPT2.fullmatch(name) for name in stored):
        flat = _gpt2(stored)
    else:
        tensors = PretrainedFile.read(path, lambda line: None).tensors
        chosen = r"block_\d+/attention/(query|key|value|out)/kernel"
        flat = {n: tensor.array for n, tensor in tensors.items() if re.fullmatch(chosen, n)}
    return traverse_util.unflatten_dict(
        {name: _split_heads(path, name, array, head_dim) for name, array in flat.items()}, sep="/"
    )


def _gpt2(stored: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Hugging Face's Conv1D stores inputs first, and query, key and value side by side."""
    found = {}
    for name, array in stored.items():
        if match := _GPT2.fullmatch(name):
            check_floating(name, array, (2,))
            layer, kind = f"block_{match[1]}/attention", match[2]
            if kind == "c_proj":
                found[f"{layer}/out/kernel"] = array
            else:
                for role, part in zip(_ROLES, np.array_split(array, 3, axis=-1), strict=True):
                    found[f"{layer}/{role}/kernel"] = part
    return found


def _split_heads(
    path: str | os.PathLike[str], name: str, array: np.ndarray, head_dim: int
) -> np.ndarray:
    out = name.endswith("out/kernel")
    width = array.shape[-1] if out else array.shape[0]
    if width % head_dim:
        raise InputError(f"{os.fspath(path)}: heads of width {head_dim} don't divide dim {width}")
    if array.size != width**2:
        raise InputError(f"{os.fspath(path)}: {name} has shape {array.shape}, not {width}x{width}")
    heads = width // head_dim
    shape = (heads, head_dim, width) if out else (width, heads, head_dim)
    return np.asarray(array, np.float32).reshape(shape)
