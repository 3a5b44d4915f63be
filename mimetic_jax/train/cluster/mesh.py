"""The device mesh, and the sharding of a tree's leaves over it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import flax.linen as nn
import jax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.models.traits import Placement
from mimetic_jax.rules import paths

BATCH = P(("data", "fsdp"))
"""A batch is sharded over both axes: every device computes, whichever holds the parameters."""


def make_mesh(
    data: int = -1,
    fsdp: int = 1,
    tensor: int = 1,
    *,
    devices: Sequence[jax.Device] | None = None,
) -> Mesh:
    """Return a mesh of three axes.

    "data" holds replicas, "fsdp" shards parameters that are gathered where they are used, "tensor"
    shards heads and hidden units, each of which is computed on one device. A size of −1 of "data"
    is what the others leave.

    >>> dict(make_mesh(devices=jax.devices()[:1]).shape)
    {'data': 1, 'fsdp': 1, 'tensor': 1}
    """
    devices = jax.devices() if devices is None else devices
    count, fixed = len(devices), fsdp * tensor
    rows = count // fixed if data == -1 else data
    if rows * fixed != count:
        sizes = f"data {data} x fsdp {fsdp} x tensor {tensor}"
        raise InputError(f"a mesh of {sizes} doesn't fit {count} devices")
    axes = {"data": rows, "fsdp": fsdp, "tensor": tensor}
    # Auto axes: GSPMD propagates from the few shardings we state.
    return jax.make_mesh(
        tuple(axes.values()),
        tuple(axes),
        axis_types=(AxisType.Auto,) * len(axes),
        devices=devices,
    )


def shardings(tree: Any, mesh: Mesh, rules: Sequence[tuple[str, Placement]]) -> Any:
    """Make a NamedSharding for each leaf, by the first rule that matches its path, or replicate.

    A rule's placement is "replicate"; "fsdp", which shards the largest dimension that the axis
    divides and replicates the leaf if there is none; or a tuple with an axis name or None for
    each of the last dimensions, those before being replicated. "fsdp?" shards if that axis
    divides.
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
        raise InputError(
            f"sharding of {path} must be replicate, fsdp or a tuple; got {placement!r}"
        )
    if len(placement) > len(shape):
        raise InputError(f"sharding {placement} doesn't fit {path} of shape {shape}")
    named = [name.removesuffix("?") for name in placement if name]
    for name in named:
        if name not in mesh.shape:
            raise unknown(f"axis in the sharding {placement} of {path}", name, mesh.shape)
        if named.count(name) > 1:
            raise InputError(f"sharding {placement} of {path} has axis {name} more than once")
    spec: list[str | None] = [None] * (len(shape) - len(placement))
    for wanted, length in zip(placement, shape[len(spec) :], strict=True):
        axis = wanted.removesuffix("?") if wanted else None
        if axis is not None and length % mesh.shape[axis]:
            if wanted == axis:
                raise InputError(
                    f"sharding {placement} doesn't fit {path} of shape {shape}: {axis} "
                    f"{mesh.shape[axis]} does not divide {length}"
                )
            axis = None
        spec.append(axis)
    return P(*spec)


@contextlib.contextmanager
def sharded_activations(mesh: Mesh) -> Iterator[None]:
    """While this lasts, models that are traced shard activations over the batch, as `BATCH` does.

    Our models name the axes of their activations (`models.layers.by_example`); here "batch" gets
    its meaning.
    """
    if mesh.size == 1:
        yield
        return
    batch = (("batch", ("data", "fsdp")),)
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh), nn.logical_axis_rules(batch):
        yield
