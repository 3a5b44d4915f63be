"""The interface to models: one of ours by name, or a user's by its import path."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Any, Self

import flax.linen as nn
import jax
import jax.numpy as jnp

from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.models.bridge import MODES, in_mode, nnx_options
from mimetic_jax.models.convmixer import ConvMixer
from mimetic_jax.models.convnext import ConvNeXt
from mimetic_jax.models.definition import (
    REQUIRED,
    Definition,
    imported,
    nnx_bridge,
    resolve_model,
)
from mimetic_jax.models.gpt import GPT
from mimetic_jax.models.mixer import Mixer
from mimetic_jax.models.swin import Swin
from mimetic_jax.models.traits import Traits
from mimetic_jax.models.vit import ViT

MODELS: dict[str, type[nn.Module]] = {
    "convmixer": ConvMixer,
    "convnext": ConvNeXt,
    "gpt": GPT,
    "mixer": Mixer,
    "swin": Swin,
    "vit": ViT,
}
"""Our models by the name that a configuration gives them."""

_FILLED = ("num_classes", "vocab", *MODES)
"""Fields that the data and the trainer decide."""
_DTYPES = ("float32", "bfloat16", "float16")
_PLAIN = (bool, int, float, str, tuple)


def find_model(name: str) -> Definition:
    """Find what defines a model: a key of `MODELS`, or "package.module:Class".

    Raises:
        InputError: for an unknown name, a module that can't be imported, or something that is
            missing there or no model.

    Example:
        >>> find_model("vit").path, find_model("flax.linen:Dense").fields["use_bias"]
        ('mimetic_jax.models.vit:ViT', True)
    """
    if ":" in name:
        return imported(name)
    if name not in MODELS:
        raise unknown("model", name, [*MODELS, "package.module:Class"])
    return Definition(MODELS[name])


def model_fields(name: str) -> dict[str, Any]:
    """Return the fields of a model that a configuration may set, with their defaults.

    These are the fields of a Linen module, or the arguments of an NNX module, whose values are
    plain data; a dtype is given by its name. A field without a default is None, and the
    configuration must set it. Fields that the data or the trainer decide are left out:
    `num_classes`, `vocab`, and flags such as `deterministic`.

    Args:
        name: as for `find_model`.

    Raises:
        InputError: as `find_model`.

    Example:
        >>> model_fields("vit")["depth"], model_fields("vit")["dtype"]
        (12, 'float32')
    """
    found = {}
    for field, default in find_model(name).fields.items():
        value = None if default is REQUIRED else _written(field, default)
        if field not in _FILLED and (value is None or isinstance(value, _PLAIN)):
            found[field] = value
    return found


def fields_of(model: Any) -> dict[str, Any]:
    """Return the fields of a model as a configuration writes them, with its import path.

    Args:
        model: as `definition.resolve_model` takes it; what the data decides (`num_classes`,
            `vocab`) is left out.

    Raises:
        InputError: if it can't be imported by its name, or a field isn't plain data.

    Example:
        >>> fields_of(ViT(num_classes=10, width=48))["width"]
        48
    """
    of, values = resolve_model(model)
    name = next((key for key, known in MODELS.items() if known is of.module_class), of.path)
    if "<" in name or find_model(name) != of:
        raise InputError(f"{name} can't be imported: define it at the top of a module")
    plain = model_fields(name)
    found = {"name": name, **plain}
    for field, value in values.items():
        if field not in of.fields:
            raise unknown(f"field of model {name}", field, of.fields)
        if field in _FILLED or value is of.fields[field]:
            continue
        found[field] = _written(field, value)
        if field not in plain or not isinstance(found[field], (*_PLAIN, type(None))):
            raise InputError(f"{name}.{field} is {value!r}, which no configuration can store")
    return found


def foreign_fields(name: str, fields: Iterable[str]) -> list[str]:
    """Fields written for another model of `MODELS`, which this one doesn't have.

    `--config.model.name=…` replaces the model of a configuration; what both have stays.

    Raises:
        InputError: for a field that no model has, with the nearest name.

    Example:
        >>> foreign_fields("vit", ["width", "positions"])
        ['positions']
    """
    known = find_model(name).fields
    others = {field for other in MODELS if other != name for field in model_fields(other)}
    strays = [field for field in fields if field not in known]
    for field in strays:
        if field not in others:
            raise unknown(f"field of model {name}", field, known)
    return strays


@dataclasses.dataclass(frozen=True)
class Model:
    """A module with its name and its traits.

    Attributes:
        name: as for `find_model`.
        module: images [B, h, w, C] → logits [B, classes], or tokens [B, N] → logits [B, N, V]; in
            Linen, whatever it was written in.
        traits: the traits of its class.
    """

    name: str
    module: nn.Module
    traits: Traits

    @classmethod
    def of(cls, name: str, fields: Mapping[str, Any], **filled: Any) -> Self:
        """Return the model of a configuration, by its name as in `find_model` and its fields.

        `foreign_fields` says which fields it may lack. Those of `filled`, which the data decides,
        such as `num_classes`, are set if the model has them.
        """
        definition, strays = find_model(name), foreign_fields(name, fields)
        known = definition.fields
        values = {field: value for field, value in fields.items() if field not in strays}
        testing = {flag: not value for flag, value in MODES.items()}
        values |= {field: value for field, value in (filled | testing).items() if field in known}
        for field, value in values.items():
            if field.endswith("dtype") and value is not None:
                if value not in _DTYPES:
                    raise unknown(f"model.{field}", value, _DTYPES)
                values[field] = jnp.dtype(value)
        for field, default in known.items():
            if default is REQUIRED and values.get(field) is None:
                raise InputError(f"model {name} needs a value: set config.model.{field}")
        return cls(name, definition.module(values), definition.traits)

    def init(self, key: jax.Array, inputs: jax.Array) -> tuple[dict[str, Any], jax.Array]:
        """Return (variables, output in evaluation).

        Variables are trees of arrays by collection: "params", and others such as "batch_stats".
        """
        try:
            hash(self.module)
        except TypeError:  # a user's, with a dict or an array among its fields
            variables, output = _traced(self.module, key, inputs)
        else:
            variables, output = _traced_once(self.module, key, inputs)
        for collection, tree in variables.items():
            leaves = jax.tree.leaves(tree, is_leaf=lambda leaf: isinstance(leaf, tuple))
            if any(isinstance(leaf, tuple) for leaf in leaves):
                raise InputError(
                    f"model {self.name} sows into {collection}, which training would leave out of "
                    "the loss: drop that, or sow into intermediates, which are ignored"
                )
        return variables, self._array(output)

    def __call__(
        self, variables: Mapping[str, Any], inputs: jax.Array, key: jax.Array | None = None
    ) -> tuple[jax.Array, dict[str, Any]]:
        """(output, collections other than "params" after the call).

        The key is for dropout, in training; None in evaluation, which changes no collection.
        """
        module, options = _in_mode(self.module, key is not None)
        if key is not None:
            options["rngs"] = {"dropout": key}
            if isinstance(module, nnx_bridge()):  # streams of other names
                options["rngs"]["default"] = jax.random.fold_in(key, 1)
        state = {name: tree for name, tree in variables.items() if name != "params"}
        if key is None or not state:
            return self._array(module.apply(variables, inputs, **options)), state
        output, changed = module.apply(variables, inputs, mutable=list(state), **options)
        return self._array(output), dict(changed)

    def with_fields(self, **values: Any) -> Model:
        """Return the model with other values of those fields that its module has."""
        known = {field.name for field in dataclasses.fields(self.module)}
        values = {name: value for name, value in values.items() if name in known}
        return dataclasses.replace(self, module=self.module.clone(**values))

    def grid(self, image: tuple[int, ...]) -> tuple[int, int] | None:
        """Return (rows, columns) of the patches of an image [h, w, C], if the model has a grid."""
        return self.traits.grid(self.module, image) if self.traits.grid else None

    def _array(self, output: Any) -> jax.Array:
        if not isinstance(output, jax.Array):
            raise InputError(
                f"model {self.name} returns a {type(output).__name__}, not an array: return the "
                "logits alone"
            )
        return output


def _in_mode(module: nn.Module, train: bool) -> tuple[nn.Module, dict[str, Any]]:
    """The module, and arguments of its call, in training or evaluation: see `MODES`."""
    if isinstance(module, nnx_bridge()):
        return module, nnx_options(train)
    options = in_mode(type(module).__call__, train)
    fields = {field.name for field in dataclasses.fields(module)} & (MODES.keys() - options.keys())
    if fields:
        mode: dict[str, Any] = {name: MODES[name] == train for name in fields}
        module = module.clone(**mode)
    return module, options


def _traced(module: nn.Module, key: jax.Array, inputs: jax.Array) -> tuple[dict[str, Any], Any]:
    module, options = _in_mode(module, train=False)
    keys = {"params": key}
    if isinstance(module, nnx_bridge()):  # streams that are stored in the module
        keys["default"] = jax.random.fold_in(key, 1)
    output, variables = module.init_with_output(keys, inputs, **options)
    return dict(variables), output


# Of twelve layers the trace takes half a second: all programs of a model share it.
_traced_once = functools.partial(jax.jit, static_argnums=0)(_traced)


def _written(field: str, value: Any) -> Any:
    """A value as a configuration writes it: a dtype by its name."""
    if value is None or isinstance(value, str) or not field.endswith("dtype"):
        return value
    return jnp.dtype(value).name
