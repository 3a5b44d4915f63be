"""Our models with the weights of the golden arrays of `tests.golden.convolutions`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from tests.golden import convolutions


def variables_of(model: nn.Module) -> dict[str, dict[str, np.ndarray]]:
    """Parameters and statistics of an unrolled model, by its own paths and shapes."""
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.asarray(convolutions.images()))
    flat = {
        name: {
            path: convolutions.weights(path, leaf.shape)
            for path, leaf in traverse_util.flatten_dict(tree, sep="/").items()
        }
        for name, tree in shapes.items()
    }
    return {name: traverse_util.unflatten_dict(tree, sep="/") for name, tree in flat.items()}


def stacked(variables: dict[str, dict[str, np.ndarray]], depth: int) -> dict[str, dict]:
    """The variables of the scanned model, from those of the unrolled one."""
    found = {}
    for name, tree in variables.items():
        layers = [tree[f"block_{layer}"] for layer in range(depth)]
        rest = {key: leaf for key, leaf in tree.items() if not key.startswith("block_")}
        blocks = jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers)
        found[name] = rest | {"blocks": blocks}
    return found


def bfloat16_is_close(form: Callable[..., nn.Module], fields: dict[str, Any]) -> None:
    """A model computes nearly the same in bfloat16, from the same weights."""
    variables = variables_of(form(**fields))
    exact, rough = (
        jax.jit(form(**fields, dtype=dtype).apply)(variables, convolutions.images())
        for dtype in (jnp.float32, jnp.bfloat16)
    )
    assert rough.dtype == jnp.float32
    np.testing.assert_allclose(exact, rough, atol=0.1)
    assert not np.array_equal(exact, rough)


def number_of_parameters(model: nn.Module, side: int = 32) -> int:
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, side, side, 3)))
    return sum(leaf.size for leaf in jax.tree.leaves(shapes["params"]))
