"""A small comparison, and networks whose variables are drawn without compiling anything."""

from typing import Any

import jax
from ml_collections import ConfigDict

from configs.default import default
from mimetic_jax.models import Model
from tests.models.values import of_shapes


def small(**changes: Any) -> ConfigDict:
    """A ViT on the digits; where the model is the same, tests of analyses share its program."""
    config = default()
    config.batch, config.steps, config.log_every, config.eval.batch = 32, 4, 1, 72
    config.model.update({"width": 48, "depth": 2, "heads": 2, "patch": 2} | changes)
    return config


def drawn(name: str, inputs: Any, **fields: Any) -> tuple[Model, Any]:
    """A model, and variables that are large enough for maps that aren't even."""
    model = Model.of(name, fields, num_classes=3, vocab=7)
    shapes, _ = jax.eval_shape(model.init, jax.random.key(0), inputs)
    return model, of_shapes(shapes, std=0.6)
