"""Pretrained vision transformers: checkpoints of vit_jax, timm and Hugging Face as our parameters.

The three store the same function under other names and in other orientations. Tables of names say
what each tensor is; shapes must then fit exactly, and nothing is left out silently.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from mimetic_jax.base.errors import InputError
from mimetic_jax.models.position import resample
from mimetic_jax.models.tensor_files import check_floating, read_file
from mimetic_jax.weights.position import square_grid

Names = tuple[tuple[str, str | None], ...]

_BLOCK = r"Transformer/encoderblock_(\d+)/"
_SCALE = r"(block_\d+/)scale([12])"
_LAST = {"1": "attention/out", "2": "mlp/fc2"}
_VIT_JAX: Names = (
    (r"embedding/(\w+)", r"patch_embed/\1"),
    (r"cls", "cls_token"),
    (r"Transformer/posembed_input/pos_embedding", "pos_embed"),
    # Files from before Linen number the submodules of a block together: 0, 1, 2, 3.
    (_BLOCK + r"LayerNorm_0/(\w+)", r"block_\1/norm1/\2"),
    (_BLOCK + r"LayerNorm_[12]/(\w+)", r"block_\1/norm2/\2"),
    (_BLOCK + r"MultiHeadDotProductAttention_[01]/(\w+/\w+)", r"block_\1/attention/\2"),
    (_BLOCK + r"MlpBlock_[03]/Dense_0/(\w+)", r"block_\1/mlp/fc1/\2"),
    (_BLOCK + r"MlpBlock_[03]/Dense_1/(\w+)", r"block_\1/mlp/fc2/\2"),
    (r"Transformer/encoder_norm/(\w+)", r"norm/\1"),
    (r"head/(\w+)", r"head/\1"),
)
_TIMM: Names = (
    (r"patch_embed\.proj\.(\w+)", r"patch_embed/\1"),
    (r"(cls_token|pos_embed)", r"\1"),
    (r"blocks\.(\d+)\.(norm[12])\.(\w+)", r"block_\1/\2/\3"),
    (r"blocks\.(\d+)\.ls([12])\.gamma", r"block_\1/scale\2"),
    (r"blocks\.(\d+)\.attn\.qkv\.(\w+)", r"block_\1/attention/qkv/\2"),
    (r"blocks\.(\d+)\.attn\.proj\.(\w+)", r"block_\1/attention/out/\2"),
    (r"blocks\.(\d+)\.mlp\.(fc[12])\.(\w+)", r"block_\1/mlp/\2/\3"),
    (r"(norm|head)\.(\w+)", r"\1/\2"),
)
_VIT = r"(?:vit\.|dinov2\.)?"
_LAYER = _VIT + r"encoder\.layer\.(\d+)\."
_HUGGING_FACE: Names = (
    (_VIT + r"embeddings\.patch_embeddings\.projection\.(\w+)", r"patch_embed/\1"),
    (_VIT + r"embeddings\.cls_token", "cls_token"),
    (_VIT + r"embeddings\.position_embeddings", "pos_embed"),
    (_LAYER + r"layernorm_before\.(\w+)", r"block_\1/norm1/\2"),
    (_LAYER + r"attention\.attention\.(query|key|value)\.(\w+)", r"block_\1/attention/\2/\3"),
    (_LAYER + r"attention\.output\.dense\.(\w+)", r"block_\1/attention/out/\2"),
    (_LAYER + r"layernorm_after\.(\w+)", r"block_\1/norm2/\2"),
    (_LAYER + r"intermediate\.dense\.(\w+)", r"block_\1/mlp/fc1/\2"),
    (_LAYER + r"output\.dense\.(\w+)", r"block_\1/mlp/fc2/\2"),
    (_VIT + r"layernorm\.(\w+)", r"norm/\1"),
    # DINOv2's names of the same.
    (_LAYER + r"(norm[12])\.(\w+)", r"block_\1/\2/\3"),
    (_LAYER + r"mlp\.(fc[12])\.(\w+)", r"block_\1/mlp/\2/\3"),
    (_LAYER + r"layer_scale([12])\.lambda1", r"block_\1/scale\2"),
    (_VIT + r"embeddings\.mask_token", None),
    # The bare encoder's file holds a layer that no classifier uses.
    (_VIT + r"pooler\.dense\.\w+", None),
    (r"classifier\.(\w+)", r"head/\1"),
)
# A file is of the kind whose patch embedding it holds.
_KINDS = {names[0][0]: names for names in (_VIT_JAX, _TIMM, _HUGGING_FACE)}
PARTS = {
    "attention": r"(^|/)attention/(query|key|value|out)/kernel$",
    "position": r"(^|/)pos_embed$",
    "layers": r"(^|/)(blocks|block_\d+)/",
}
"""Parts of a model that can be taken alone, as regular expressions over paths: the kernels of
attention (biases stay), the position table, and all layers, without patches, positions and head."""


class _Tensor(NamedTuple):
    """A tensor in our orientation, with its name and shape in the file."""

    array: np.ndarray
    name: str
    shape: tuple[int, ...]


def load_pretrained(
    path: str | os.PathLike[str],
    params: Any,
    *,
    grid: tuple[int, int] | None = None,
    say: Callable[[str], None] = print,
) -> Any:
    """The parameters of our ViT from a pretrained checkpoint.

    Read are `.npz` of vit_jax and AugReg, and `.safetensors` of timm, DeiT and Hugging Face's
    ViT and DINOv2, which differ in the names of their tensors. LayerScale is multiplied into the
    last layer of its branch. The position table is resampled to the model's
    grid. The head stays the model's own where the number of classes differs. A model that pools the
    mean drops the class token and its position. Each of these is reported through `say`.

    The files of timm and Hugging Face don't hold the number of heads: the model's must be right.
    Pixels must be normalized as in the pretraining: to [−1, 1] for vit_jax and AugReg, by
    ImageNet's means and standard deviations for DeiT.

    Args:
        path: the file.
        params: the tree of `ViT.init`, `scan` or not, or the same tree of `jax.ShapeDtypeStruct`.
        grid: (h, w) of the model's patches, where the position table is not square.
        say: prints a line.

    Returns:
        A tree like `params`, with its dtypes and shardings.

    Raises:
        InputError: for a file of another kind, and for any tensor that is missing, left over or
            of another shape, with both shapes.

    Example:
        ::

            model = ViT(num_classes=1000, patch=16, **VARIANTS["Ti"])
            shapes = jax.eval_shape(model.init, key, jnp.zeros((1, 224, 224, 3)))["params"]
            params = load_pretrained("deit_tiny.safetensors", shapes)

    Reference: vit_jax/checkpoint.py; timm, models/vision_transformer.py; transformers,
    models/vit/modeling_vit.py.
    """
    return PretrainedFile.read(path, say).whole(params, grid, say)


@dataclasses.dataclass(frozen=True)
class PretrainedFile:
    """The tensors of a pretrained file by our names of unrolled layers, read once.

    Attributes:
        path: of the file, for errors.
        tensors: by name.
    """

    path: str
    tensors: Mapping[str, _Tensor]

    @classmethod
    def read(cls, path: str | os.PathLike[str], say: Callable[[str], None]) -> PretrainedFile:
        """Read a file of one of the three kinds."""
        return cls(os.fspath(path), _ours(path, read_file(path), say))

    def whole(
        self, params: Any, grid: tuple[int, int] | None, say: Callable[[str], None]
    ) -> dict[str, Any]:
        """All parameters of a model of the file's sizes, see `load_pretrained`."""
        tensors = dict(self.tensors)
        leaves = traverse_util.flatten_dict(params, sep="/")
        kept = _own_head(tensors, leaves, say)
        dropped = "cls_token" in tensors and "cls_token" not in leaves
        if dropped:
            say("cls_token and its position are left out: the model pools the mean")
            del tensors["cls_token"]
        sources = {name: _sources(name, leaf) for name, leaf in leaves.items() if name not in kept}
        _check_names(self.path, tensors, leaves, sources)
        table = tensors["pos_embed"]
        if dropped:
            table = table._replace(array=table.array[:, 1:])
        prefix = int("cls_token" in leaves)
        tensors["pos_embed"] = _on_grid(table, leaves["pos_embed"].shape[1], prefix, grid, say)
        new = dict(leaves)
        for name, names in sources.items():
            leaf = leaves[name]
            shape = leaf.shape if names == [name] else leaf.shape[1:]
            arrays = [_fit(tensors[source], source, shape) for source in names]
            new[name] = _as_leaf(arrays[0] if names == [name] else np.stack(arrays), leaf)
        return traverse_util.unflatten_dict(new, sep="/")

    def fits(self, params: Any) -> bool:
        """Whether each parameter outside the head has one of its size here, on any grid."""
        leaves = traverse_util.flatten_dict(params, sep="/")
        found = self._by_path(leaves)
        return all(
            name in found and (name == "pos_embed" or found[name].shape == leaf.shape)
            for name, leaf in leaves.items()
            if not name.startswith("head/")
        )

    def by_path(self, params: Any, say: Callable[[str], None]) -> dict[str, np.ndarray]:
        """The tensors in their own sizes, by the paths of a model's parameters.

        For `weights.select`, which takes a smaller model from them, and for parts of them. As many
        layers as the model stacks are stacked; heads have the width of the model's; the position
        table is resampled to the model's grid, without the class token's row if the model has none.

        Args:
            params: the tree of `ViT.init`, or of its shapes.
            say: prints a line.

        Returns:
            Arrays by path, for those paths of the model that the file has.

        Raises:
            InputError: if the heads aren't as wide as the model's.
        """
        leaves = traverse_util.flatten_dict(params, sep="/")
        found = self._by_path(leaves)
        if "pos_embed" in found:
            prefix = int("cls_token" in leaves)
            table = self.tensors["pos_embed"]
            if "cls_token" in self.tensors and not prefix:
                table = table._replace(array=table.array[:, 1:])
            rows = leaves["pos_embed"].shape[1]
            found["pos_embed"] = _on_grid(table, rows, prefix, None, say).array
        return found

    def _by_path(self, leaves: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """As `by_path`, the position table as it is stored."""
        widths = [leaf.shape[-1] for name, leaf in leaves.items() if name.endswith("query/kernel")]
        if not widths or "pos_embed" not in leaves:
            raise InputError(f"{self.path} holds a ViT, and the model is none")
        head_width = widths[0]
        found = {}
        for name, leaf in leaves.items():
            names = _sources(name, leaf)
            if all(source in self.tensors for source in names):
                arrays = [
                    _with_head_axis(self.tensors[source], source, head_width) for source in names
                ]
                found[name] = arrays[0] if names == [name] else np.stack(arrays)
        return found


def _ours(
    path: str | os.PathLike[str], stored: Mapping[str, np.ndarray], say: Callable[[str], None]
) -> dict[str, _Tensor]:
    """The tensors of a file by our names of unrolled layers."""
    kinds = [
        names for mark, names in _KINDS.items() if any(re.fullmatch(mark, name) for name in stored)
    ]
    if not kinds:
        seen = ", ".join(sorted(stored)[:6])
        raise InputError(
            f"{path} is not a ViT of vit_jax, timm or Hugging Face: it holds {seen}, …"
        )
    found = {}
    for name, array in stored.items():
        ours = _rename(kinds[0], name, array.shape)
        if ours is None:
            say(f"{name} is left out: no classifier uses it")
            continue
        check_floating(name, array, (3,) if ours == "pos_embed" else (1, 2, 3, 4))
        for part, turned in _parts(ours, array):
            found[part] = _Tensor(turned, name, array.shape)
    return _without_scales(found)


def _without_scales(tensors: Mapping[str, _Tensor]) -> dict[str, _Tensor]:
    """LayerScale multiplied into the last layer of its branch, which is the same function."""
    found = {name: one for name, one in tensors.items() if not re.fullmatch(_SCALE, name)}
    for name, scale in tensors.items():
        if match := re.fullmatch(_SCALE, name):
            last = _LAST[match[2]]
            for path in (f"{match[1]}{last}/kernel", f"{match[1]}{last}/bias"):
                if path in found:
                    one = found[path]
                    found[path] = one._replace(array=one.array * scale.array)
    return found


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


def _own_head(
    tensors: dict[str, _Tensor], leaves: Mapping[str, Any], say: Callable[[str], None]
) -> frozenset[str]:
    """The leaves of the head if the model keeps its own; the file's is then removed."""
    here = leaves["head/kernel"].shape[-1]
    there = tensors["head/kernel"].array.shape[-1] if "head/kernel" in tensors else 0
    if here == there:
        return frozenset()
    names = frozenset({"head/kernel", "head/bias"})
    if any(isinstance(leaves[name], jax.ShapeDtypeStruct) for name in names):
        raise InputError(
            f"the head has {there} classes in the file and {here} in the model, whose parameters "
            "have no values to keep"
        )
    say(f"the head stays the model's: {there} classes in the file, {here} in the model")
    for name in names:
        tensors.pop(name, None)
    return names


def _sources(name: str, leaf: Any) -> list[str]:
    """Names of the unrolled layers' tensors that make up a leaf."""
    stack, _, rest = name.partition("/")
    if stack != "blocks":
        return [name]
    return [f"block_{layer}/{rest}" for layer in range(leaf.shape[0])]


def _check_names(
    path: str | os.PathLike[str],
    tensors: Mapping[str, _Tensor],
    leaves: Mapping[str, Any],
    sources: Mapping[str, list[str]],
) -> None:
    wanted = {source: name for name, names in sources.items() for source in names}
    depths = [
        len({name.split("/")[0] for name in names if name.startswith("block_")})
        for names in (tensors, wanted)
    ]
    if depths[0] != depths[1]:
        raise InputError(f"{path} holds {depths[0]} blocks and the model {depths[1]}")
    for source, name in wanted.items():
        if source not in tensors:
            raise InputError(f"{path} lacks {source}, of shape {leaves[name].shape} here")
    for ours, tensor in tensors.items():
        if ours not in wanted:
            raise InputError(f"{tensor.name} of shape {tensor.shape} has no place in the model")


def _on_grid(
    table: _Tensor,
    rows: int,
    prefix: int,
    grid: tuple[int, int] | None,
    say: Callable[[str], None],
) -> _Tensor:
    """The position table for the model's rows."""
    count, stored = rows - prefix, table.array.shape[1] - prefix
    if grid is not None and grid[0] * grid[1] != count:
        raise InputError(f"a grid of {grid[0]}x{grid[1]} doesn't fit the model's {count} patches")
    there, here = square_grid(stored), grid or square_grid(count)
    if there == here or (stored == count and there is None):
        return table
    if there is None or here is None:
        raise InputError(
            f"{table.name} has shape {table.shape} in the file and {rows} rows here, and "
            f"{count if here is None else stored} patches are not a square grid"
        )
    say(f"{table.name} is resampled from {there[0]}x{there[1]} to {here[0]}x{here[1]} patches")
    return table._replace(array=np.asarray(resample(table.array, there, here, prefix)))


def _fit(tensor: _Tensor, path: str, shape: tuple[int, ...]) -> np.ndarray:
    """The array in the leaf's shape: the same, or with its heads unflattened."""
    if tensor.array.shape not in (shape, _flattened(path, shape)):
        turned = "" if tensor.array.shape == tensor.shape else f" ({tensor.array.shape} turned)"
        raise InputError(
            f"{tensor.name} has shape {tensor.shape}{turned} in the file; {path} has {shape} here"
        )
    return tensor.array.reshape(shape)


def _with_head_axis(tensor: _Tensor, path: str, head_width: int) -> np.ndarray:
    """The array with the heads of an attention leaf on an axis of their own."""
    array = tensor.array
    if path.endswith("attention/out/kernel") and array.ndim == 2:
        split, shape = array.shape[0], (-1, head_width, array.shape[1])
    elif re.search(r"attention/(query|key|value)/\w+$", path) and array.ndim < 3:
        if path.endswith("bias") and array.ndim == 2:
            return array
        split, shape = array.shape[-1], (*array.shape[:-1], -1, head_width)
    else:
        return array
    if split % head_width:
        raise InputError(
            f"{tensor.name} has {split} columns, not a multiple of head width {head_width}"
        )
    return array.reshape(shape)


def _flattened(path: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of an attention leaf whose heads are flattened."""
    if path.endswith("attention/out/kernel"):
        return shape[0] * shape[1], shape[2]
    if re.search(r"attention/(query|key|value)/\w+$", path):
        return *shape[:-2], shape[-2] * shape[-1]
    return shape


def _as_leaf(array: np.ndarray, leaf: Any) -> jax.Array:
    """The array with the leaf's dtype and sharding."""
    array = array.astype(leaf.dtype)
    sharding = getattr(leaf, "sharding", None)
    if sharding is None or not getattr(leaf, "committed", True):
        return jnp.asarray(array)
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])
