"""Logical axes of activations, for whoever shards a model."""

from __future__ import annotations

import flax.linen as nn
import jax


def by_example(x: jax.Array) -> jax.Array:
    """Activations [B, N, D], sharded as the logical axes "batch", "length" and "embed" are.

    Those of images, [B, h, w, D], have "height" and "width" in place of "length".

    Without `nn.logical_axis_rules` and a mesh it returns x. With them the constraint is needed: in
    a loop over layers GSPMD otherwise takes the sharding of the parameters for that of the
    activations, gathers no kernel, and every device computes the attention of all of "fsdp".
    """
    length = ("length",) if x.ndim == 3 else ("height", "width")
    return nn.with_logical_constraint(x, ("batch", *length, "embed"))
