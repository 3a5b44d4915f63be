"""Logical axes of activations, for whoever shards a model."""

from __future__ import annotations

import flax.linen as nn
import jax

_AXES = {3: ("batch", "length", "embed"), 4: ("batch", "height", "width", "embed")}


def by_example(x: jax.Array) -> jax.Array:
    """Activations [B, N, D] or [B, h, w, D], sharded as their logical axes are.

    The axes are "batch", then "length" or "height" and "width", then "embed".

    Without `nn.logical_axis_rules` and a mesh it returns x. With them the constraint is needed: in
    a loop over layers GSPMD otherwise takes the sharding of the parameters for that of the
    activations, gathers no kernel, and every device computes the attention of all of "fsdp".
    """
    return nn.with_logical_constraint(x, _AXES[x.ndim])
