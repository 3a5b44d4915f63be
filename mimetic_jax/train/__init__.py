"""Training: from a configuration to a table of results, sharded, exact and resumable."""

from mimetic_jax.extras import need

need("training", "train")

from mimetic_jax.train.compare import Comparison

__all__ = ["Comparison"]
