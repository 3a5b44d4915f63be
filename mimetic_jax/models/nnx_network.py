"""NNX modules as networks: their variables in dictionaries, as Linen's are."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx, traverse_util

from mimetic_jax.errors import InputError
from mimetic_jax.models.networks import Variables, accepted, state_of


@dataclasses.dataclass(frozen=True)
class NNX:
    """An NNX module as a `Network`.

    `nnx.Param` variables are the collection "params", `nnx.BatchStat` "batch_stats"; other
    variables and arrays are "state". Streams of random numbers aren't stored: each call in training
    sets them from its key, every stream to another one. `train()` or `eval()` comes before a call;
    arguments `train` and `rngs` are passed where the call has them.

    Attributes:
        module_class: called with the values, and with `rngs` if it has that argument.
        values: of its arguments.
    """

    module_class: type[nnx.Module]
    values: tuple[tuple[str, Any], ...] = ()

    @property
    def module(self) -> nnx.Module:
        """The module with shapes in place of arrays."""
        return nnx.merge(*_described(self))

    def init(self, key: jax.Array, inputs: jax.Array) -> tuple[Variables, Any]:
        module = self.made(key)
        drawn = dict(nnx.to_flat_state(nnx.state(module)))
        variables = _by_collection(drawn)
        output = _called(module, inputs, None)
        for path, _ in nnx.to_flat_state(nnx.state(module, nnx.Param)):
            if path not in drawn:
                raise InputError(
                    f"its first call makes a parameter, {'/'.join(map(str, path))}, which would "
                    "not be trained: make it in __init__"
                )
        return variables, output

    def apply(
        self, variables: Mapping[str, Any], inputs: jax.Array, key: jax.Array | None
    ) -> tuple[Any, Variables]:
        graph, shapes = _described(self)
        known = dict(nnx.to_flat_state(shapes))
        module = nnx.merge(graph, _filled(known, variables, key))
        output = _called(module, inputs, key)
        if key is None:
            return output, state_of(variables)
        # Without what the call added, as by `sow`.
        after = {path: v for path, v in nnx.to_flat_state(nnx.state(module)) if path in known}
        return output, state_of(_by_collection(after))

    def made(self, key: jax.Array) -> nnx.Module:
        """A new module, drawn by `nnx.Rngs(key)`."""
        # Flax takes arrays among a module's attributes for data, but not when they are traced.
        nnx.register_data_type(type(jnp.zeros(())))
        rngs = accepted(self.module_class.__init__, rngs=nnx.Rngs(key))
        with nnx.use_eager_sharding(False):  # shardings are those of the trainer's rules
            return self.module_class(**dict(self.values), **rngs)


@functools.lru_cache(maxsize=16)
def _described(network: NNX) -> tuple[Any, Any]:
    """The graph of a module, and shapes of its state."""
    return jax.eval_shape(lambda key: nnx.split(network.made(key)), jax.random.key(0))


def _called(module: nnx.Module, inputs: jax.Array, key: jax.Array | None) -> Any:
    (module.eval if key is None else module.train)()
    rngs = None if key is None else nnx.Rngs(jax.random.fold_in(key, 2**32 - 1))
    options = accepted(type(module).__call__, train=key is not None, rngs=rngs)
    return module(inputs, **options)


def _by_collection(state: Mapping[Any, Any]) -> Variables:
    """Variables, as nested dictionaries of arrays, from a flat state."""
    return traverse_util.unflatten_dict(
        {
            _place(path, leaf): leaf.get_value() if isinstance(leaf, nnx.Variable) else leaf
            for path, leaf in state.items()
            if not isinstance(leaf, nnx.RngState)
        }
    )


def _place(path: tuple[Any, ...], leaf: Any) -> tuple[str, ...]:
    collection = {nnx.Param: "params", nnx.BatchStat: "batch_stats"}
    found = (name for kind, name in collection.items() if isinstance(leaf, kind))
    return next(found, "state"), *map(str, path)


def _filled(
    shapes: Mapping[Any, Any], variables: Mapping[str, Any], key: jax.Array | None
) -> nnx.State:
    """The state of a module with these variables, its streams begun from the key."""
    arrays, filled = traverse_util.flatten_dict(dict(variables)), {}
    key = jax.random.key(0) if key is None else key  # in evaluation nothing is drawn
    for index, (path, leaf) in enumerate(shapes.items()):
        if isinstance(leaf, nnx.RngKey):
            value = jax.random.split(jax.random.fold_in(key, index), leaf.shape)
        elif isinstance(leaf, nnx.RngCount):
            value = jnp.zeros(leaf.shape, leaf.dtype)
        else:
            value = arrays[_place(path, leaf)]
        filled[path] = leaf.replace(value) if isinstance(leaf, nnx.Variable) else value
    return nnx.from_flat_state(filled)
