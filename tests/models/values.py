"""Parameters of any values, for tests to which the initialization doesn't matter."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from flax import traverse_util


def drawn(model: nn.Module, inputs: Any, std: float = 0.3) -> dict[str, Any]:
    """The parameters of a model: no bias is zero, and no `init` is compiled."""
    return of_shapes(jax.eval_shape(model.init, jax.random.key(0), inputs)["params"], std)


def filled(model: nn.Module, inputs: Any, rule: Callable[..., np.ndarray]) -> dict[str, Any]:
    """Its variables by a rule of path, without the collection, and shape, as of golden arrays."""
    shapes = jax.eval_shape(model.init, jax.random.key(0), inputs)
    flat = traverse_util.flatten_dict(shapes, sep="/")
    values = {path: rule(path.partition("/")[2], leaf.shape) for path, leaf in flat.items()}
    return traverse_util.unflatten_dict(values, sep="/")


def of_shapes(shapes: Any, std: float = 0.3) -> dict[str, Any]:
    """Normal draws, those of scales and variances around 1."""
    random = np.random.default_rng(0)
    flat = {
        path: np.float32((path[-1] in ("scale", "var")) + random.normal(0, std, leaf.shape))
        for path, leaf in traverse_util.flatten_dict(shapes).items()
    }
    flat = {path: abs(leaf) if path[-1] == "var" else leaf for path, leaf in flat.items()}
    return traverse_util.unflatten_dict(flat)


def stacked(tree: Any) -> Any:
    """The variables of the scanned model, from those of the unrolled one."""
    if not isinstance(tree, dict):
        return tree
    new = {name: stacked(leaf) for name, leaf in tree.items() if not name.startswith("block_")}
    if len(new) < len(tree):
        blocks = [tree[f"block_{layer}"] for layer in range(len(tree) - len(new))]
        new["blocks"] = jax.tree.map(lambda *leaves: np.stack(leaves), *blocks)
    return new
