"""Parameters of any values, for tests to which the initialization doesn't matter."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util


def drawn(model: nn.Module, inputs: Any, std: float = 0.3) -> dict[str, Any]:
    """The parameters of a model: no bias is zero, and no `init` is compiled."""
    return of_shapes(jax.eval_shape(model.init, jax.random.key(0), inputs)["params"], std)


def initial(model: nn.Module, inputs: Any, seed: int = 0) -> dict[str, Any]:
    """Parameters of the sizes that `init` draws, which would be compiled.

    Kernels have variance 1 / inputs, embeddings 1 / width, positions .02²; biases are 0, scales 1.
    """
    random = np.random.default_rng(seed)

    def leaf(path: Any, shape: jax.ShapeDtypeStruct) -> jax.Array:
        layer, name = [None, *(key.key for key in path)][-2:]
        if len(shape.shape) < 2 or name == "bias":
            return jnp.full(shape.shape, float(name == "scale"))
        inputs = shape.shape[:1] if layer in ("query", "key", "value") else shape.shape[:-1]
        of = shape.shape[-1:] if "embedding" in name else inputs
        std = 0.02 if name == "pos_embed" else np.prod(of) ** -0.5
        return jnp.asarray(random.normal(0, std, shape.shape), jnp.float32)

    shapes = jax.eval_shape(model.init, jax.random.key(0), inputs)["params"]
    return jax.tree_util.tree_map_with_path(leaf, shapes)


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
