"""Training: from a configuration to a table of results, sharded, exact and resumable."""

from mimetic_jax.train.compare import Comparison

__all__ = ["Comparison"]
