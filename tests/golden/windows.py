"""Logits of PyTorch's Swin transformers, with weights that a rule gives by their names in ours.

Needs torch 2.13.0, einops 0.8.2 and SciPy, and in the folder that the environment variable
MIMETIC_ORIGINALS names two clones: `vision-transformers-cifar10` of kentaroy47 at commit 5bb83d3,
and `Swin-Transformer` of microsoft at commit f82860b.
"""

import sys
import types
import zlib
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

from tests.golden.originals import Arrays, cloned

CASES: dict[str, dict[str, Any]] = {
    # The published grids. One window covers the last, where the second block still shifts it.
    "cifar": {
        "image": (32, 32),
        "fields": {
            "form": "cifar",
            "width": 8,
            "depths": (2, 0, 0, 2),
            "downscaling": (2, 2, 2, 1),
            "head_dim": 4,
            "window": 4,
        },
    },
    # Grids of 12x6 and 6x3 tokens: the second stage has windows as wide as the grid, not shifted.
    "microsoft": {
        "image": (24, 12),
        "fields": {
            "form": "microsoft",
            "width": 8,
            "depths": (3, 2),
            "downscaling": (2, 2),
            "head_dim": 4,
            "window": 3,
        },
    },
}
CLASSES = 5


def weight(path: str, shape: tuple[int, ...]) -> np.ndarray:
    """A parameter of our Swin by its path: normal, of scale 1 for tables of position biases."""
    drawn = np.random.default_rng(zlib.crc32(path.encode())).normal(size=shape)
    if not path.endswith(("relative_bias", "shared_bias")):
        drawn = 0.3 * drawn + path.endswith("scale")
    return drawn.astype(np.float32)


def images(case: str) -> np.ndarray:
    """Two images [2, h, w, 3] of white noise."""
    return np.random.default_rng(0).normal(size=(2, *CASES[case]["image"], 3)).astype(np.float32)


def windows() -> Arrays:
    """Logits of the originals, by case."""
    import torch

    makers: dict[str, Callable[..., Any]] = {"cifar": _cifar, "microsoft": _microsoft}
    arrays = {}
    for case, make in makers.items():
        model, tensors = make(CASES[case]["image"], **CASES[case]["fields"])
        state = {name: torch.from_numpy(np.ascontiguousarray(t)) for name, t in tensors.items()}
        missing, unexpected = model.load_state_dict(state, strict=False)
        computed = ("mask", "relative_position_index")  # by the original itself
        assert not unexpected, unexpected
        assert all(name.endswith(computed) for name in missing), missing
        with torch.no_grad():
            pixels = torch.from_numpy(images(case)).permute(0, 3, 1, 2)
            arrays[case] = model.eval()(pixels).numpy()
    return arrays


def _cifar(image: tuple[int, int], **fields: Any) -> tuple[Any, Arrays]:
    module = cloned("vision-transformers-cifar10/models/swin.py")
    width, depths, factors, head = _sizes(fields)
    model = module.SwinTransformer(
        hidden_dim=width,
        layers=depths,
        heads=[width * 2**stage // head for stage in range(len(depths))],
        head_dim=head,
        num_classes=CLASSES,
        window_size=fields["window"],
        downscaling_factors=factors,
    )
    side = 2 * fields["window"] - 1
    tensors: Arrays = {}
    for stage, (depth, factor) in enumerate(zip(depths, factors, strict=True)):
        dim, theirs = width * 2**stage, f"stage{stage + 1}"
        ours, inputs = (f"stage_{stage}/merge", dim // 2) if stage else ("patch_embed", 3)
        merging = weight(f"{ours}/kernel", (factor**2 * inputs, dim))
        # Theirs goes through the pixels of a channel, then to the next.
        tensors[f"{theirs}.patch_partition.linear.weight"] = (
            merging.reshape(factor**2, inputs, dim).swapaxes(0, 1).reshape(merging.shape).T
        )
        tensors[f"{theirs}.patch_partition.linear.bias"] = weight(f"{ours}/bias", (dim,))
        for layer in range(depth):
            block = f"stage_{stage}/block_{layer}"
            pair = f"{theirs}.layers.{layer // 2}.{layer % 2}"
            attention, mlp = f"{pair}.attention_block.fn", f"{pair}.mlp_block.fn"
            names = {
                "norm1": f"{attention}.norm",
                "qkv": f"{attention}.fn.to_qkv",
                "out": f"{attention}.fn.to_out",
                "norm2": f"{mlp}.norm",
                "fc1": f"{mlp}.fn.net.0",
                "fc2": f"{mlp}.fn.net.2",
            }
            tensors |= _block(block, dim, dim // head, names, qkv_bias=False)
            table = weight(f"{block}/attention/shared_bias", (side, side))
            tensors[f"{attention}.fn.pos_embedding"] = table
    return model, tensors | _head("mlp_head.0", "mlp_head.1", dim)


def _microsoft(image: tuple[int, int], **fields: Any) -> tuple[Any, Arrays]:
    import torch

    # What it takes from timm does nothing here: dropped paths in evaluation, and initial values.
    layers: Any = types.ModuleType("layers")
    layers.DropPath = lambda rate: torch.nn.Identity()
    layers.to_2tuple = lambda size: size if isinstance(size, tuple) else (size, size)
    layers.trunc_normal_ = torch.nn.init.trunc_normal_
    with mock.patch.dict(sys.modules, {"timm.models.layers": layers}):
        module = cloned("Swin-Transformer/models/swin_transformer.py")
    width, depths, factors, head = _sizes(fields)
    model = module.SwinTransformer(
        img_size=image,
        patch_size=factors[0],
        num_classes=CLASSES,
        embed_dim=width,
        depths=list(depths),
        num_heads=[width * 2**stage // head for stage in range(len(depths))],
        window_size=fields["window"],
    )
    kernel = weight("patch_embed/kernel", (factors[0] ** 2 * 3, width))
    kernel = kernel.reshape(factors[0], factors[0], 3, width)
    tensors = {
        "patch_embed.proj.weight": kernel.transpose(3, 2, 0, 1),
        "patch_embed.proj.bias": weight("patch_embed/bias", (width,)),
    } | _norm("patch_norm", "patch_embed.norm", width)
    cells = (2 * fields["window"] - 1) ** 2
    for stage, depth in enumerate(depths):
        dim = width * 2**stage
        if stage:
            # Theirs is a layer of the stage before, and takes the four pixels column by column.
            ours, theirs = f"stage_{stage}", f"layers.{stage - 1}.downsample"
            leaves = {
                "norm.weight": weight(f"{ours}/merge_norm/scale", (2 * dim,)),
                "norm.bias": weight(f"{ours}/merge_norm/bias", (2 * dim,)),
                "reduction.weight": weight(f"{ours}/merge/kernel", (2 * dim, dim)),
            }
            for name, array in leaves.items():
                pixels = array.reshape(2, 2, dim // 2, -1).swapaxes(0, 1)
                tensors[f"{theirs}.{name}"] = pixels.reshape(array.shape).T
        for layer in range(depth):
            block, prefix = f"stage_{stage}/block_{layer}", f"layers.{stage}.blocks.{layer}"
            names = {
                "norm1": f"{prefix}.norm1",
                "qkv": f"{prefix}.attn.qkv",
                "out": f"{prefix}.attn.proj",
                "norm2": f"{prefix}.norm2",
                "fc1": f"{prefix}.mlp.fc1",
                "fc2": f"{prefix}.mlp.fc2",
            }
            tensors |= _block(block, dim, dim // head, names, qkv_bias=True)
            table = weight(f"{block}/attention/relative_bias", (cells, dim // head))
            tensors[f"{prefix}.attn.relative_position_bias_table"] = table
    return model, tensors | _head("norm", "head", dim)


def _sizes(fields: dict[str, Any]) -> tuple[int, tuple[int, ...], tuple[int, ...], int]:
    return fields["width"], fields["depths"], fields["downscaling"], fields["head_dim"]


def _block(block: str, dim: int, heads: int, names: dict[str, str], qkv_bias: bool) -> Arrays:
    """The tensors of a block whose layers have the given names, but for its table."""
    projections = [f"{block}/attention/{name}" for name in ("query", "key", "value")]
    by_head, out = (heads, dim // heads), f"{block}/attention/out"
    kernels = [weight(f"{path}/kernel", (dim, *by_head)).reshape(dim, dim) for path in projections]
    tensors = {
        f"{names['qkv']}.weight": np.concatenate(kernels, axis=1).T,
        f"{names['out']}.weight": weight(f"{out}/kernel", (*by_head, dim)).reshape(dim, dim).T,
        f"{names['out']}.bias": weight(f"{out}/bias", (dim,)),
    }
    if qkv_bias:
        biases = [weight(f"{path}/bias", by_head).ravel() for path in projections]
        tensors[f"{names['qkv']}.bias"] = np.concatenate(biases)
    for layer, shape in (("fc1", (dim, 4 * dim)), ("fc2", (4 * dim, dim))):
        tensors |= _linear(f"{block}/mlp/{layer}", names[layer], shape)
    for layer in ("norm1", "norm2"):
        tensors |= _norm(f"{block}/{layer}", names[layer], dim)
    return tensors


def _head(norm: str, head: str, dim: int) -> Arrays:
    return _norm("norm", norm, dim) | _linear("head", head, (dim, CLASSES))


def _linear(ours: str, theirs: str, shape: tuple[int, int]) -> Arrays:
    return {
        f"{theirs}.weight": weight(f"{ours}/kernel", shape).T,
        f"{theirs}.bias": weight(f"{ours}/bias", shape[1:]),
    }


def _norm(ours: str, theirs: str, dim: int) -> Arrays:
    return {
        f"{theirs}.weight": weight(f"{ours}/scale", (dim,)),
        f"{theirs}.bias": weight(f"{ours}/bias", (dim,)),
    }
