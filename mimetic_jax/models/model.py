"""The interface to models: one of ours by name, or a user's Flax module by its import path."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Self

import flax.linen as nn
import jax
import jax.numpy as jnp

from mimetic_jax.errors import InputError, said_by, unknown
from mimetic_jax.models.convmixer import ConvMixer
from mimetic_jax.models.convnext import ConvNeXt
from mimetic_jax.models.gpt import GPT
from mimetic_jax.models.mamba import Mamba
from mimetic_jax.models.mamba1 import Mamba1
from mimetic_jax.models.mixer import Mixer
from mimetic_jax.models.swin import Swin
from mimetic_jax.models.token_vit import TokenViT
from mimetic_jax.models.traits import Traits
from mimetic_jax.models.vit import ViT

MODELS: dict[str, type[nn.Module]] = {
    "convmixer": ConvMixer,
    "convnext": ConvNeXt,
    "gpt": GPT,
    "mamba": Mamba,
    "mamba1": Mamba1,
    "mixer": Mixer,
    "swin": Swin,
    "token_vit": TokenViT,
    "vit": ViT,
}
"""Our models by the name that a configuration gives them."""

_FLAX_FIELDS = ("name", "parent")
_FILLED = ("num_classes", "vocab")
_DTYPES = ("float32", "bfloat16", "float16")


def find_model(name: str) -> type[nn.Module]:
    """The class of a model: a key of `MODELS`, or "package.module:Class".

    Raises:
        InputError: for an unknown name, a module that can't be imported, or a class that is missing
            or not a `flax.linen.Module`.

    Example:
        >>> find_model("vit").__name__, find_model("flax.linen:Dense").__name__
        ('ViT', 'Dense')
    """
    if ":" not in name:
        if name not in MODELS:
            raise unknown("model", name, [*MODELS, "package.module:Class"])
        return MODELS[name]
    module_name, _, class_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a user's module may raise anything while it is imported
        raise InputError(
            f"model {name}: {module_name} can't be imported ({said_by(error)})"
        ) from error
    if not hasattr(module, class_name):
        modules = [key for key, value in vars(module).items() if _is_module(value)]
        raise unknown(f"class of {module_name}", class_name, modules)
    found = getattr(module, class_name)
    if not _is_module(found):
        raise InputError(f"model {name} is {found!r}, not a flax.linen.Module"[:200])
    return found


def model_fields(name: str) -> dict[str, Any]:
    """The fields of a model that a configuration may set, with the defaults of its class.

    These are the fields of the module's dataclass whose values are plain data; a dtype is given by
    its name. A field without a default is None, and the configuration must set it. Fields that the
    data decides are left out: `num_classes`, `vocab`.

    Args:
        name: as for `find_model`.

    Raises:
        InputError: as `find_model`.

    Example:
        >>> model_fields("vit")["depth"], model_fields("vit")["dtype"]
        (12, 'float32')
    """
    found = {}
    for field in _dataclass_fields(find_model(name)):
        if field.name in _FILLED:
            continue
        default = None if field.default is dataclasses.MISSING else field.default
        if default is not None and field.name.endswith("dtype"):
            default = jnp.dtype(default).name
        if default is None or isinstance(default, bool | int | float | str | tuple):
            found[field.name] = default
    return found


def fields_of(module: nn.Module) -> dict[str, Any]:
    """The fields of a module as a configuration writes them, with the import path of its class.

    Args:
        module: an instance; what the data decides (`num_classes`, `vocab`) is left out.

    Raises:
        InputError: if the class can't be imported by its name, or a field isn't plain data.

    Example:
        >>> fields_of(ViT(num_classes=10, width=48))["width"]
        48
    """
    of = type(module)
    name = next((key for key, known in MODELS.items() if known is of), "")
    name = name or f"{of.__module__}:{of.__qualname__}"
    if "<locals>" in name or find_model(name) is not of:
        raise InputError(f"{name} can't be imported: define the class at the top of a module")
    plain = model_fields(name)
    found = {"name": name}
    for field in _dataclass_fields(of):
        value = getattr(module, field.name)
        if field.name in plain:
            is_dtype = value is not None and field.name.endswith("dtype")
            found[field.name] = jnp.dtype(value).name if is_dtype else value
        elif field.name not in _FILLED and value is not field.default:
            raise InputError(f"{name}.{field.name} is {value!r}, which no configuration can store")
    return found


def left_out(name: str, fields: Iterable[str]) -> list[str]:
    """Fields written for another model of `MODELS`, which this one doesn't have.

    `--config.model.name=…` replaces the model of a configuration; what both have stays.

    Raises:
        InputError: for a field that no model has, with the nearest name.

    Example:
        >>> left_out("vit", ["width", "positions"])
        ['positions']
    """
    known = [field.name for field in _dataclass_fields(find_model(name))]
    others = {field for other in MODELS if other != name for field in model_fields(other)}
    strays = [field for field in fields if field not in known]
    for field in strays:
        if field not in others:
            raise unknown(f"field of model {name}", field, known)
    return strays


@dataclasses.dataclass(frozen=True)
class Model:
    """A module with its traits, called in one way whatever its signature.

    Attributes:
        name: as for `find_model`.
        module: a Linen module: images [B, h, w, C] → logits [B, classes], or tokens [B, N] → logits
            [B, N, V]. Calls with `train` get the keyword `train` if the module has it.
        traits: of its class.
    """

    name: str
    module: nn.Module
    traits: Traits

    @classmethod
    def of(cls, name: str, fields: Mapping[str, Any], **filled: Any) -> Self:
        """The model of a configuration.

        Args:
            name: as for `find_model`.
            fields: of the module; see `left_out` for those that it doesn't have.
            filled: fields that the data decides, such as `num_classes`: set where the module has
                them.

        Raises:
            InputError: as `find_model` and `left_out`; for a field without a value; or a dtype that
                isn't one of floating point.
        """
        module_class, strays = find_model(name), left_out(name, fields)
        known = {field.name: field for field in _dataclass_fields(module_class)}
        values = {field: value for field, value in fields.items() if field not in strays}
        values |= {field: value for field, value in filled.items() if field in known}
        for field, value in values.items():
            if field.endswith("dtype") and value is not None:
                if value not in _DTYPES:
                    raise unknown(f"model.{field}", value, _DTYPES)
                values[field] = jnp.dtype(value)
        for field, declared in known.items():
            required = declared.default is declared.default_factory is dataclasses.MISSING
            if required and values.get(field) is None:
                raise InputError(f"model {name} needs a value: set config.model.{field}")
        module = module_class(**values)
        return cls(name, module, getattr(module_class, "traits", Traits()))

    def init(self, key: jax.Array, inputs: jax.Array) -> tuple[dict[str, Any], Any]:
        """(variables, output): "params" and other collections, such as "batch_stats", if any."""
        try:
            hash(self.module)
        except TypeError:  # a user's, with a dict or an array among its fields
            return _draw(self.module, key, inputs)
        return _traced_once(self.module, key, inputs)

    def __call__(
        self, variables: Mapping[str, Any], inputs: jax.Array, key: jax.Array | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """The module's output and its collections other than "params" after the call.

        Args:
            variables: as `init` returns them.
            inputs: a batch.
            key: for dropout, in training; None in evaluation, which changes no collection.
        """
        options: dict[str, Any] = {} if key is None else {"rngs": {"dropout": key}}
        if "train" in inspect.signature(type(self.module).__call__).parameters:
            options["train"] = key is not None
        state = {name: tree for name, tree in variables.items() if name != "params"}
        if key is None or not state:
            return self.module.apply(variables, inputs, **options), state
        output, changed = self.module.apply(variables, inputs, mutable=list(state), **options)
        return output, dict(changed)

    def unrolled(self) -> Model:
        """The same arithmetic without a loop over layers, for counting it."""
        if not getattr(self.module, "scan", False):
            return self
        return dataclasses.replace(self, module=self.module.clone(scan=False))

    def grid(self, image: tuple[int, ...]) -> tuple[int, int] | None:
        """(rows, columns) of the patches of an image [h, w, C], where the model has a grid."""
        return self.traits.grid(self.module, image) if self.traits.grid else None


def _draw(module: nn.Module, key: jax.Array, inputs: jax.Array) -> tuple[dict[str, Any], Any]:
    output, variables = module.init_with_output(key, inputs)
    return dict(variables), output


# Of twelve layers the trace takes half a second: all programs of a model share it.
_traced_once = jax.jit(_draw, static_argnums=0)


def _is_module(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, nn.Module)


def _dataclass_fields(module: type[nn.Module]) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(module) if field.name not in _FLAX_FIELDS]
