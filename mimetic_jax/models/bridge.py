"""NNX classes as Linen modules, and flags that mean training."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
from flax.core import FrozenDict

from mimetic_jax.base.errors import InputError

MODES = {
    **dict.fromkeys(("train", "training", "is_training"), True),
    **dict.fromkeys(("deterministic", "inference", "use_running_average"), False),
}
"""Flags by which models are told that they train, with their values in training."""


def from_nnx(module_class: Any, values: Mapping[str, Any]) -> nn.Module:
    """Return an NNX class as a Linen module, by Flax's own bridge; call it with `nnx_options`."""
    from flax import nnx

    skip = "rngs" not in inspect.signature(module_class.__init__).parameters
    return nnx.bridge.ToLinen(
        module_class, kwargs=FrozenDict(values), skip_rng=skip, metadata_fn=None
    )


def nnx_options(train: bool) -> dict[str, Any]:
    """Return what a module of `from_nnx` is called with besides its inputs."""
    return {"nnx_method": functools.partial(_called, train=train)}


def _called(module: Any, inputs: jax.Array, *, train: bool) -> Any:
    from flax import nnx

    (module.train if train else module.eval)()
    before = {path for path, _ in nnx.to_flat_state(nnx.state(module, nnx.Param))}
    output = module(inputs, **in_mode(type(module).__call__, train))
    for path, _ in nnx.to_flat_state(nnx.state(module, nnx.Param)):
        if path not in before:
            raise InputError(
                f"its first call makes a parameter, {'/'.join(map(str, path))}, which would not be "
                "trained: make it in __init__"
            )
    return output


def accepted(call: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a function has arguments for.

    >>> accepted(lambda images, width: images, {"width": 3, "key": None})
    {'width': 3}
    """
    known = inspect.signature(call).parameters
    return {name: value for name, value in options.items() if name in known}


def in_mode(call: Callable[..., Any], train: bool) -> dict[str, bool]:
    """Return the flags of training or evaluation that a function has arguments for.

    >>> in_mode(lambda images, deterministic: images, train=True)
    {'deterministic': False}
    """
    return accepted(call, {name: value == train for name, value in MODES.items()})
