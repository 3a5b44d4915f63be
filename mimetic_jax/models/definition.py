"""What defines a model: a class of Linen or NNX modules, by name, import path or as an object."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import sys
from collections.abc import Mapping
from typing import Any

import flax.linen as nn

from mimetic_jax.base.errors import InputError, error_text, unknown
from mimetic_jax.models.bridge import from_nnx
from mimetic_jax.models.traits import Traits

REQUIRED = inspect.Parameter.empty
"""The default of a field that has none."""

_NO_FIELDS = ("self", "name", "parent", "rngs")


@dataclasses.dataclass(frozen=True)
class Definition:
    """A class of Linen or NNX modules."""

    module_class: Any

    @property
    def path(self) -> str:
        """Its import path, "package.module:Class"."""
        return f"{self.module_class.__module__}:{self.module_class.__qualname__}"

    @property
    def traits(self) -> Traits:
        """Those of the class, or none."""
        return getattr(self.module_class, "traits", Traits())

    @property
    def fields(self) -> dict[str, Any]:
        """Its arguments with their defaults, `REQUIRED` without one."""
        several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        return {
            name: argument.default
            for name, argument in inspect.signature(self.module_class.__init__).parameters.items()
            if name not in _NO_FIELDS and argument.kind not in several
        }

    def module(self, values: Mapping[str, Any]) -> nn.Module:
        """Return the Linen module with these values of its fields."""
        if issubclass(self.module_class, nn.Module):
            return self.module_class(**values)
        return from_nnx(self.module_class, values)


def is_module_class(target: Any) -> bool:
    """Tell whether it is a class of Linen or NNX modules."""
    return inspect.isclass(target) and issubclass(target, (nn.Module, *_nnx("Module")))


def imported(path: str) -> Definition:
    """Import the class at an import path.

    Raises:
        InputError: if the module can't be imported, or has no such class.
    """
    module_name, _, name = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a user's module may raise anything while it is imported
        raise InputError(
            f"model {path}: {module_name} can't be imported ({error_text(error)})"
        ) from error
    if not hasattr(module, name):
        known = [key for key, value in vars(module).items() if is_module_class(value)]
        raise unknown(f"class of {module_name}", name, known)
    if not is_module_class(getattr(module, name)):
        raise InputError(f"model {path} is not a flax.linen.Module or an nnx.Module")
    return Definition(getattr(module, name))


def resolve_model(model: Any) -> tuple[Definition, dict[str, Any]]:
    """Split a model that is passed as an object into its definition and values of its fields.

    The object is a Linen module; or a class of modules, or `functools.partial` of one.
    """
    if isinstance(model, nnx_bridge()):
        model = functools.partial(model.nnx_class, *model.args, **model.kwargs)
    if isinstance(model, functools.partial) and is_module_class(model.func):
        found = Definition(model.func)
        return found, {**dict(zip(found.fields, model.args, strict=False)), **model.keywords}
    if is_module_class(model):
        return Definition(model), {}
    if isinstance(model, nn.Module):
        found = Definition(type(model))
        return found, {field: getattr(model, field) for field in found.fields}
    name = type(model).__name__
    if isinstance(model, _nnx("Module")):
        raise InputError(
            f"an NNX module doesn't keep its arguments; pass the class {name}, or "
            f"functools.partial({name}, …)"
        )
    raise InputError(f"a model of type {name} is not a Linen module or a class of modules")


def nnx_bridge() -> Any:
    """Return the class of NNX modules as Linen modules, if NNX is imported: for `isinstance`."""
    return _nnx("bridge", "ToLinen")


def _nnx(*names: str) -> Any:
    """A class of `flax.nnx`; none if nobody has imported it, since that takes a second."""
    found = sys.modules.get("flax.nnx")
    return (functools.reduce(getattr, names, found),) if found else ()
