"""The device mesh, and where the leaves of a tree live on it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import flax.linen as nn
import jax
from flax.linen.module import InterceptorContext
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from mimetic_jax import paths
from mimetic_jax.errors import InputError

Placement: TypeAlias = str | tuple[str | None, ...]

BATCH = P(("data", "fsdp"))
"""A batch is cut over both axes: every device computes, whatever holds the parameters."""

MODEL_RULES: tuple[tuple[str, Placement], ...] = (
    (r"attention/(query|key|value)/kernel$", ("fsdp?", "tensor", None)),
    (r"attention/(query|key|value)/bias$", ("tensor", None)),
    (r"attention/out/kernel$", ("tensor", None, "fsdp?")),
    (r"mlp/fc1/kernel$", ("fsdp?", "tensor")),
    (r"mlp/fc1/bias$", ("tensor",)),
    (r"mlp/fc2/kernel$", ("tensor", "fsdp?")),
    (r"kernel$|embed", "fsdp"),
)
"""Where the parameters of our models lie: heads and hidden units are cut over "tensor"."""


def make_mesh(
    data: int = -1,
    fsdp: int = 1,
    tensor: int = 1,
    *,
    devices: Sequence[jax.Device] | None = None,
) -> Mesh:
    """A mesh of three axes.

    "data" holds replicas, "fsdp" cuts parameters that are gathered where they are used, "tensor"
    cuts heads and hidden units, each of which is computed on one device.

    Args:
        data: size of the first axis; −1 for what the others leave.
        fsdp: size of the second.
        tensor: size of the third.
        devices: all of JAX's unless given.

    Raises:
        InputError: if the axes don't multiply to the number of devices.

    Example:
        >>> dict(make_mesh(devices=jax.devices()[:1]).shape)
        {'data': 1, 'fsdp': 1, 'tensor': 1}
    """
    devices = jax.devices() if devices is None else devices
    count = len(devices)
    sizes = f"data {data} x fsdp {fsdp} x tensor {tensor}"
    if fsdp < 1 or tensor < 1 or (data < 1 and data != -1):
        raise InputError(f"mesh axes must be positive (data may be -1): {sizes}")
    rows = count // (fsdp * tensor) if data == -1 else data
    if rows * fsdp * tensor != count:
        raise InputError(f"a mesh of {sizes} doesn't fit {count} devices")
    # Auto axes: GSPMD propagates from the few shardings we state.
    return jax.make_mesh(
        (rows, fsdp, tensor),
        ("data", "fsdp", "tensor"),
        axis_types=(AxisType.Auto,) * 3,
        devices=devices,
    )


def shardings(tree: Any, mesh: Mesh, rules: Sequence[tuple[str, Placement]]) -> Any:
    """A NamedSharding for each leaf, by the first rule that matches its path.

    A rule's placement is "replicate"; "fsdp", which cuts the largest dimension that the axis
    divides and replicates what it can't cut; or a tuple with an axis name or None for each of the
    last dimensions, those before being replicated. "fsdp?" cuts where that axis divides.

    Args:
        tree: arrays or shapes.
        mesh: the mesh.
        rules: ordered (regular expression, placement); replicated where none matches.

    Returns:
        A tree of the same structure.

    Raises:
        InputError: for an unknown placement, or one that doesn't fit the leaf's shape.
    """
    named, treedef = paths.flatten(tree)
    placed = []
    for path, leaf in named:
        spec = _spec(path, leaf.shape, mesh, paths.first_match(rules, path, "replicate"))
        placed.append(NamedSharding(mesh, spec))
    return jax.tree.unflatten(treedef, placed)


def _spec(path: str, shape: tuple[int, ...], mesh: Mesh, placement: Placement) -> P:
    if placement == "replicate" or math.prod(shape) == 1:
        return P()
    if placement == "fsdp":
        size = mesh.shape["fsdp"]
        fitting = [axis for axis, length in enumerate(shape) if length % size == 0]
        if size == 1 or not fitting:
            return P()
        widest = max(fitting, key=lambda axis: shape[axis])
        return P(*("fsdp" if axis == widest else None for axis in range(len(shape))))
    if isinstance(placement, str):
        raise InputError(f"sharding {placement!r} of {path} is none of replicate, fsdp, a tuple")
    if len(placement) > len(shape):
        raise InputError(f"sharding {placement} doesn't fit {path} of shape {shape}")
    spec: list[str | None] = [None] * (len(shape) - len(placement))
    for name, length in zip(placement, shape[len(spec) :], strict=True):
        axis = name.removesuffix("?") if name else None
        if axis is not None and length % mesh.shape[axis]:
            if name == axis:
                raise InputError(
                    f"sharding {placement} doesn't fit {path} of shape {shape}: {axis} "
                    f"{mesh.shape[axis]} does not divide {length}"
                )
            axis = None
        spec.append(axis)
    return P(*spec)


def place(array: Any, sharding: NamedSharding) -> jax.Array:
    """A host array that every process holds whole, as one global array."""
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def cut_by_example(
    mesh: Mesh | None, *blocks: type[nn.Module]
) -> contextlib.AbstractContextManager[Any]:
    """While this lasts, the streams [B, N, D] that these blocks return lie as a batch does.

    Said to GSPMD, because in a loop over layers it takes the parameters' cut for the stream's: no
    parameter is gathered then, and every device computes the attention of all of "fsdp".

    Args:
        mesh: over which the batch is cut; None for one device.
        blocks: classes whose calls return the stream first.
    """
    if mesh is None or mesh.size == 1:
        return contextlib.nullcontext()
    where = NamedSharding(mesh, BATCH)

    def constrained(call: Any, args: Any, kwargs: Any, context: InterceptorContext) -> Any:
        found = call(*args, **kwargs)
        if not isinstance(context.module, blocks) or context.method_name != "__call__":
            return found
        stream, *rest = found
        return jax.lax.with_sharding_constraint(stream, where), *rest

    return nn.intercept_methods(constrained)
