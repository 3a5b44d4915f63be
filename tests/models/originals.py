"""Our models with the weights of the golden arrays of `tests.golden.convolutions`."""

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
