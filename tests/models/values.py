"""Parameters of any values, for tests to which the initialization doesn't matter."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import numpy as np
from flax import traverse_util


def drawn(model: nn.Module, inputs: Any, std: float = 0.3) -> dict[str, Any]:
    """Normal draws, those of norms around 1: no bias is zero, and no `init` is compiled."""
    shapes = jax.eval_shape(model.init, jax.random.key(0), inputs)["params"]
    random = np.random.default_rng(0)
    flat = {
        path: np.float32((path[-1] == "scale") + random.normal(0, std, leaf.shape))
        for path, leaf in traverse_util.flatten_dict(shapes).items()
    }
    return traverse_util.unflatten_dict(flat)
