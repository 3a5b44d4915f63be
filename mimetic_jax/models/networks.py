"""What training calls: the two functions of a network, whatever it is written in."""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

import flax.linen as nn
import jax

from mimetic_jax.errors import InputError

Variables: TypeAlias = dict[str, Any]
"""Trees of arrays by collection: "params", and others such as "batch_stats", if any."""


class Network(Protocol):
    """A network with all its sizes; hashable where these are."""

    @property
    def module(self) -> Any:
        """An object with the network's fields as attributes, for `Traits`."""

    def init(self, key: jax.Array, inputs: jax.Array) -> tuple[Variables, Any]:
        """(variables, output of the inputs in evaluation)."""

    def apply(
        self, variables: Mapping[str, Any], inputs: jax.Array, key: jax.Array | None
    ) -> tuple[Any, Variables]:
        """(output, collections other than "params" after the call).

        Args:
            variables: as `init` returns them.
            inputs: a batch.
            key: for dropout, in training; None in evaluation, which changes no collection.
        """


@dataclasses.dataclass(frozen=True)
class Linen:
    """A Linen module as a `Network`. A `train` argument is passed where its call has one."""

    module: nn.Module

    def init(self, key: jax.Array, inputs: jax.Array) -> tuple[Variables, Any]:
        output, variables = self.module.init_with_output(key, inputs)
        return dict(variables), output

    def apply(
        self, variables: Mapping[str, Any], inputs: jax.Array, key: jax.Array | None
    ) -> tuple[Any, Variables]:
        options = accepted(type(self.module).__call__, train=key is not None)
        if key is not None:
            options["rngs"] = {"dropout": key}
        state = state_of(variables)
        if key is None or not state:
            return self.module.apply(variables, inputs, **options), state
        output, changed = self.module.apply(variables, inputs, mutable=list(state), **options)
        return output, dict(changed)


@dataclasses.dataclass(frozen=True)
class Functions:
    """A pair of plain functions as a `Network`.

    Attributes:
        initialize: (key, inputs) → variables, a dictionary with "params".
        call: (variables, inputs) → output; → (output, collections) if there are others than
            "params". It gets `key` (None in evaluation) and `train` if it names them.
        values: of further arguments, which each function gets if it names them.
    """

    initialize: Callable[..., Any]
    call: Callable[..., Any]
    values: tuple[tuple[str, Any], ...] = ()

    @property
    def module(self) -> Any:
        return types.SimpleNamespace(**dict(self.values))

    def init(self, key: jax.Array, inputs: jax.Array) -> tuple[Variables, Any]:
        variables = self.initialize(key, inputs, **accepted(self.initialize, **dict(self.values)))
        if not isinstance(variables, Mapping) or "params" not in variables:
            found = list(variables) if isinstance(variables, Mapping) else type(variables).__name__
            raise InputError(
                f"{self.initialize.__name__} returns {found}, not a dictionary with 'params'"
            )
        return dict(variables), self.apply(variables, inputs, None)[0]

    def apply(
        self, variables: Mapping[str, Any], inputs: jax.Array, key: jax.Array | None
    ) -> tuple[Any, Variables]:
        options = {**dict(self.values), "key": key, "train": key is not None}
        found = self.call(variables, inputs, **accepted(self.call, **options))
        state = state_of(variables)
        if not state:
            return found, state
        match found:
            case (output, Mapping() as changed) if changed.keys() == state.keys():
                return output, state if key is None else dict(changed)
        raise InputError(
            f"{self.call.__name__} must return (output, {{{', '.join(state)}}}): "
            f"{self.initialize.__name__} returns these collections beside params"
        )


def accepted(call: Callable[..., Any], **options: Any) -> dict[str, Any]:
    """The options that a function has arguments for.

    >>> accepted(lambda images, train: images, train=True, key=None)
    {'train': True}
    """
    known = inspect.signature(call).parameters
    return {name: value for name, value in options.items() if name in known}


def state_of(variables: Mapping[str, Any]) -> Variables:
    """The collections other than "params"."""
    return {name: tree for name, tree in variables.items() if name != "params"}
