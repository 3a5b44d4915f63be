"""A small comparison, and networks whose variables are drawn without compiling anything."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from configs.default import default
from mimetic_jax.models import Model


def small(**changes: Any) -> ConfigDict:
    """A ViT on the digits; where the model is the same, tests of analyses share its program."""
    config = default()
    config.batch, config.steps, config.log_every, config.eval.batch = 32, 4, 1, 72
    config.model.update({"width": 48, "depth": 2, "heads": 2, "patch": 2} | changes)
    return config


def drawn(
    name: str, inputs: Any, scale: float = 0.6, *, plain: bool = False, **fields: Any
) -> tuple[Model, Any]:
    """A model, and variables that are large enough for maps that aren't even.

    Plain ones have no biases, and norms that change nothing.
    """
    model = Model.of(name, fields, num_classes=3, vocab=7)
    shapes, _ = jax.eval_shape(model.init, jax.random.key(0), inputs)
    draws = np.random.default_rng(0)

    def leaf(path: Any, shape: Any) -> jax.Array:
        name, values = path[-1].key, draws.normal(scale=scale, size=shape.shape)
        if plain and name in ("bias", "mean", "scale", "var"):
            values = np.full(shape.shape, float(name in ("scale", "var")))
        return jnp.asarray(np.abs(values) if name == "var" else values, jnp.float32)

    return model, jax.tree_util.tree_map_with_path(leaf, shapes)
