"""Where arrays are: new leaves are placed like old ones, whatever mesh the caller has set."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from mimetic_jax.base.errors import InputError
from mimetic_jax.weights.checks import check_key


def placed_like(array: Any, leaf: Any) -> Any:
    """The array with the dtype, kind (NumPy or JAX) and sharding of the leaf that it replaces."""
    if isinstance(array, np.ndarray):
        # Rearranged axes are views in another order, which some file formats store as they are.
        array = array.astype(leaf.dtype, order="C")
    else:
        array = array.astype(leaf.dtype)
    if isinstance(array, jax.core.Tracer):
        sharding = jax.typeof(leaf).sharding
        return jax.sharding.reshard(array, sharding) if sharding.mesh.explicit_axes else array
    if not isinstance(leaf, jax.Array) or isinstance(leaf, jax.core.Tracer):
        return array if isinstance(leaf, np.ndarray) else jnp.asarray(array)
    if not leaf.committed:
        (device,) = leaf.devices()  # that of `jax.default_device` where the tree was made
        with jax.default_device(device):
            return jnp.asarray(np.asarray(array))
    # Each process and device takes its own shards of the same host array.
    return jax.make_array_from_callback(array.shape, leaf.sharding, lambda index: array[index])


def is_shared(leaf: Any) -> bool:
    """Whether the array spans several processes."""
    return isinstance(leaf, jax.Array) and not leaf.is_fully_addressable


def constrained(array: jax.Array, sharding: Any) -> jax.Array:
    """The array with a sharding, or a PartitionSpec over the mesh that is set, in any program."""
    mesh = getattr(sharding, "mesh", None) or jax.sharding.get_abstract_mesh()
    if mesh.explicit_axes:  # for these a constraint is only an assertion
        return jax.sharding.reshard(array, sharding)
    return jax.lax.with_sharding_constraint(array, sharding)


def one_key(key: Any) -> jax.Array:
    """The key, or the next one for parameters of `flax.nnx.Rngs`, after a check."""
    nnx = sys.modules.get("flax.nnx")  # who has an Rngs has imported it
    if nnx and isinstance(key, nnx.Rngs):
        try:
            key = key.params()
        except AttributeError:
            raise InputError(
                "the nnx.Rngs has no stream of parameters: pass nnx.Rngs(seed) or "
                "nnx.Rngs(params=seed)"
            ) from None
    check_key(key)
    return key


def local_key(key: jax.Array) -> jax.Array:
    """The key on this process's default device; with a key on a mesh, draws would run there."""
    typed = jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key)
    data = jax.random.key_data(key) if typed else jnp.copy(key)
    if isinstance(data, jax.core.Tracer):  # also for a concrete key inside a caller's jit
        return key
    # Raw keys are of the caller's default implementation, which other threads don't know.
    local = jnp.asarray(np.asarray(data))
    return jax.random.wrap_key_data(local, impl=jax.random.key_impl(key))


@contextlib.contextmanager
def without_mesh() -> Iterator[None]:
    """Outside of any mesh of `jax.set_mesh`, over whose devices all new arrays would be spread.

    Programs for several devices round differently.
    """
    with contextlib.ExitStack() as stack:
        if not jax.sharding.get_abstract_mesh().empty:
            # Inside a caller's jit the mesh is part of the program.
            with contextlib.suppress(ValueError):
                nowhere = jax.sharding.Mesh(np.empty((), object), ())
                stack.enter_context(jax.set_mesh(nowhere))
        yield


def check_agreement(checksum: int) -> None:
    """Raise InputError unless all processes drew the same: each keeps only its own shards."""
    everyone = multihost_utils.process_allgather(np.uint32(checksum))
    differing = np.flatnonzero(everyone != everyone[0])
    if differing.size:
        raise InputError(
            f"process {', '.join(map(str, differing))} drew other weights than process 0, among "
            f"{len(everyone)} processes: they need the same key, packages and kind of CPU"
        )


def check_whole(value: Any, key: jax.Array, path: str) -> None:
    """Raise InputError for a leaf that may be the shard of a device inside `shard_map`."""
    if not isinstance(value, jax.core.Tracer):
        return
    mesh = jax.typeof(value).sharding.mesh
    # Over a `pmap` without a name nothing can be summed: each device has a whole model.
    bound = {
        axis
        for axis in mesh.manual_axes
        if mesh.shape[axis] > 1 and not str(axis).startswith(("<axis ", "_internal_pmap"))
    }
    if any(_varying(jax.lax.axis_index(axis)) for axis in bound):  # JAX keeps track
        bound &= _varying(value) - _varying(key)
    if bound:
        raise InputError(
            f"{path} may be a shard over the mesh axis {', '.join(sorted(map(str, bound)))}, which "
            "every device would draw from the same key as if it were whole. Call rewrite outside "
            "of shard_map and pmap, or pass each device a model and a key of its own under "
            "shard_map(..., check_vma=True)"
        )


def _varying(value: Any) -> frozenset[Any]:
    """The manual mesh axes over which a value differs, as far as JAX keeps track."""
    aval: Any = jax.typeof(value)
    if hasattr(aval, "vma"):  # before JAX 0.10
        return frozenset(aval.vma)
    return frozenset(aval.manual_axis_type.varying)
