"""What defines a model: a class of Linen or NNX modules, or two functions."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn

from mimetic_jax.base.errors import InputError, error_text, unknown
from mimetic_jax.models.networks import MODES, Functions, from_nnx
from mimetic_jax.models.traits import Traits

REQUIRED = inspect.Parameter.empty
"""The default of a field that has none."""


@dataclasses.dataclass(frozen=True)
class Definition:
    """A class of modules, or a pair of functions."""

    parts: tuple[Any, ...]

    @property
    def path(self) -> str:
        """Its import path, "package.module:Class" or "package.module:init+apply"."""
        names = "+".join(part.__qualname__ for part in self.parts)
        return f"{self.parts[0].__module__}:{names}"

    @property
    def traits(self) -> Traits:
        """Of the class, or of the second function."""
        return getattr(self.parts[-1], "traits", Traits())

    @property
    def fields(self) -> dict[str, Any]:
        """Its arguments with their defaults, `REQUIRED` without one."""
        if len(self.parts) == 1:
            return _arguments(self.parts[0].__init__, "self", "name", "parent", "rngs")
        found: dict[str, Any] = {}
        for part in reversed(self.parts):  # if both have a default, that of the first one counts
            found |= _arguments(part, *list(_arguments(part))[:2], "key", *MODES)
        return found

    def module(self, values: Mapping[str, Any]) -> nn.Module:
        """The Linen module with these values of its fields."""
        if len(self.parts) == 2:
            return Functions(*self.parts, tuple(values.items()))
        if issubclass(self.parts[0], nn.Module):
            return self.parts[0](**values)
        return from_nnx(self.parts[0], values)


def defined_by(target: Any) -> Definition | None:
    """The definition by a class or a pair of functions; None for anything else."""
    if inspect.isclass(target) and issubclass(target, (nn.Module, *_nnx("Module"))):
        return Definition((target,))
    if isinstance(target, tuple) and len(target) == 2 and all(map(inspect.isfunction, target)):
        return Definition(target)
    return None


def imported(path: str) -> Definition:
    """The definition at an import path."""
    module_name, _, names = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a user's module may raise anything while it is imported
        raise InputError(
            f"model {path}: {module_name} can't be imported ({error_text(error)})"
        ) from error
    pair = "+" in names
    for name in names.split("+"):
        if not hasattr(module, name):
            fits = inspect.isfunction if pair else defined_by
            known = [key for key, value in vars(module).items() if fits(value)]
            raise unknown(f"{'function' if pair else 'class'} of {module_name}", name, known)
    found = tuple(getattr(module, name) for name in names.split("+"))
    definition = defined_by(found if pair else found[0])
    if definition is None:
        raise InputError(
            f"model {path} is not a flax.linen.Module, an nnx.Module or two functions, INIT+APPLY"
        )
    return definition


def given(model: Any) -> tuple[Definition, dict[str, Any]]:
    """The definition of a model that is given as an object, and values of its fields.

    The object is a Linen module; a class of modules, or `functools.partial` of one; or two
    functions.
    """
    if isinstance(model, nnx_bridge()):
        model = functools.partial(model.nnx_class, *model.args, **model.kwargs)
    if isinstance(model, functools.partial) and (found := defined_by(model.func)):
        return found, {**dict(zip(found.fields, model.args, strict=False)), **model.keywords}
    if found := defined_by(model):
        return found, {}
    if isinstance(model, nn.Module):
        found = Definition((type(model),))
        return found, {field: getattr(model, field) for field in found.fields}
    name = type(model).__name__
    if isinstance(model, _nnx("Module")):
        raise InputError(
            f"an NNX module doesn't keep its arguments: give the class {name}, or "
            f"functools.partial({name}, …)"
        )
    raise InputError(
        f"a model of type {name} is not a Linen module, a class of modules or two functions"
    )


def _arguments(call: Callable[..., Any], *skipped: str) -> dict[str, Any]:
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {
        name: argument.default
        for name, argument in inspect.signature(call).parameters.items()
        if name not in skipped and argument.kind not in several
    }


def nnx_bridge() -> Any:
    """The class of NNX modules as Linen modules, if NNX is imported: for `isinstance`."""
    return _nnx("bridge", "ToLinen")


def _nnx(*names: str) -> Any:
    """A class of `flax.nnx`; none if nobody has imported it, since that takes a second."""
    found = sys.modules.get("flax.nnx")
    return (functools.reduce(getattr, names, found),) if found else ()
