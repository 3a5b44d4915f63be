"""The mathematics: a key and sizes in, float32 arrays out. JAX, NumPy and SciPy only.

Shape letters of docstrings and of names such as `query_DxHxK`, throughout the package:

======  ===================================  ======  ===========================
letter  meaning                              letter  meaning
======  ===================================  ======  ===========================
B       batch (of images, blocks, targets)   L       layers
D       model width (`dim`)                  F       hidden width of an MLP
H       query heads (`num_heads`)            N       tokens or positions
G       key/value heads (`num_kv_heads`)     C       image channels or classes
K       head width (`head_dim`)              R       rank
======  ===================================  ======  ===========================

Kernels have Flax's orientation, for row vectors: `y = x @ kernel`.
"""

from mimetic_jax.weights.attention import query_key, value_out
from mimetic_jax.weights.baselines import norm_matched
from mimetic_jax.weights.counts import (
    cooccurrence,
    following,
    from_counts,
    log_frequency,
    next_token,
)
from mimetic_jax.weights.factor import factorize
from mimetic_jax.weights.impulse import impulse_query_key
from mimetic_jax.weights.mlp import mean_shift, mean_shift_per_input
from mimetic_jax.weights.patches import natural_covariance, patch_covariance, whitened
from mimetic_jax.weights.position import sincos_1d, sincos_2d
from mimetic_jax.weights.rotary import Rotary, rotary_rates

__all__ = [
    "Rotary",
    "cooccurrence",
    "factorize",
    "following",
    "from_counts",
    "impulse_query_key",
    "log_frequency",
    "mean_shift",
    "mean_shift_per_input",
    "natural_covariance",
    "next_token",
    "norm_matched",
    "patch_covariance",
    "query_key",
    "rotary_rates",
    "sincos_1d",
    "sincos_2d",
    "value_out",
    "whitened",
]
