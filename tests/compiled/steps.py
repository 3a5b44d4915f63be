"""Take a training step as users compile it, and again without XLA's fusions of sums on CPUs.

    python -m tests.compiled.steps NAME …

Sizes are such that these fusions occur: members × batch × width ≥ 32,768. Prints JSON: of each
case, the largest difference of a leaf's change, and of the gradient's norm, relative to the right
one.
"""

import json
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from configs.default import default
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.step import make_train_step
from tests.models.values import of_shapes

WITHOUT_FUSIONS = {"xla_cpu_experimental_ynn_fusion_type": ""}

IMAGES = {"batch": 512, "model.width": 64, "model.patch": 2, "data.name": "digits"}
ONE = {**IMAGES, "model.depth": 1}
VIT = {**ONE, "model.heads": 2}
GRID = {**VIT, "model.pool": "mean"}
SWIN = {"model.depths": (1, 1), "model.downscaling": (2, 2), "model.head_dim": 32}
TOKENS = {"batch": 32, "data.length": 32, "data.valid": 32, "model.width": 64, "model.depth": 1}

CASES: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "vit": ("images", "vit", 1, VIT),
    "vit of four members": ("images", "vit", 4, {**VIT, "batch": 128}),
    "vit of a scan": ("images", "vit", 1, {**VIT, "model.scan": True, "model.remat": True}),
    "vit, mean pooling": ("images", "vit", 1, GRID),
    "vit in bfloat16": ("images", "vit", 1, {**VIT, "model.dtype": "bfloat16"}),
    **{
        f"vit, {form}": ("images", "vit", 1, {**GRID, "model.attention": form})
        for form in ("gpsa", "conv_logits", "conv_added", "conv_softmax")
    },
    "swin": ("images", "swin", 1, {**IMAGES, **SWIN, "model.window": 2}),
    "mixer": ("images", "mixer", 1, ONE),
    "convmixer": ("images", "convmixer", 1, {**ONE, "model.filter_size": 3}),
    "convnext": ("images", "convnext", 1, {**ONE, "model.filter_size": 3}),
    "text": ("text", "gpt", 1, {**TOKENS, "data.name": "python_docs", "model.heads": 2}),
}


def configured(task: str, model: str, fields: dict[str, Any]) -> ConfigDict:
    """A configuration whose step moves each parameter by its gradient."""
    config = default(task)
    config.model = ConfigDict({"name": model})
    config.steps, config.optimizer.schedule = 2, "constant"
    config.optimizer.update(name="sgd", learning_rate=1.0, weight_decay=0.0, clip=0.0, warmup=0)
    with config.unlocked():  # fields of the model
        config.update_from_flattened_dict(fields)
    return config


def differences(task: str, model: str, members: int, fields: dict[str, Any]) -> dict[str, float]:
    """The case's differences, by leaf."""
    program = Comparison(configured(task, model, fields), lambda line: None).arms["run"].program
    random = np.random.default_rng(0)

    def drawn(shape: jax.ShapeDtypeStruct) -> np.ndarray:
        if jnp.issubdtype(shape.dtype, jnp.integer):
            return random.integers(0, 8, shape.shape).astype(shape.dtype)
        return random.uniform(size=shape.shape).astype(shape.dtype)

    batch, key = jax.tree.map(drawn, program.task.batch_shapes()), jax.random.key(1)
    variables = jax.eval_shape(program.task.init, key)
    state = program.state_of({name: of_shapes(tree, 0.1) for name, tree in variables.items()})
    step = make_train_step(program.task.loss, program.optimizer)
    if members > 1:
        state = jax.tree.map(lambda leaf: np.stack([leaf] * members), jax.device_get(state))
        step = jax.vmap(step, in_axes=(0, None, None))
    lowered = jax.jit(step).lower(state, batch, key)
    (found, metrics), (right, expected) = (
        jax.device_get(lowered.compile(options)(state, batch, key))
        for options in ({}, WITHOUT_FUSIONS)
    )
    changes = [
        jax.tree.map(lambda new, old: np.asarray(new, np.float64) - old, each.params, state.params)
        for each in (found, right)
    ]
    tree = jax.tree.map(_difference, *changes)
    leaves = {jax.tree_util.keystr(path): d for path, d in jax.tree.leaves_with_path(tree)}
    return leaves | {"grad_norm": _difference(metrics["grad_norm"], expected["grad_norm"])}


def _difference(found: np.ndarray, right: np.ndarray) -> float:
    return float(np.linalg.norm(found - right) / max(np.linalg.norm(right), 1e-6))


if __name__ == "__main__":
    print(json.dumps({name: differences(*CASES[name]) for name in sys.argv[1:]}))
