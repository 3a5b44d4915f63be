"""The mathematics: a key and sizes in, float32 arrays out. JAX, NumPy and SciPy only.

Shape letters of docstrings and of names such as `query_DxHxK`, throughout the package:

| letter | meaning                              | letter | meaning                          |
|--------|--------------------------------------|--------|----------------------------------|
| B      | batch (of images, blocks or targets) | L      | layers                           |
| D      | model width (`dim`)                  | F      | hidden width of an MLP           |
| H      | query heads (`num_heads`)            | N      | tokens or positions              |
| G      | key/value heads (`num_kv_heads`)     | C      | image channels or classes        |
| K      | head width (`head_dim`)              | R      | rank                             |

Kernels have Flax's orientation, for row vectors: `y = x @ kernel`.
"""

from mimetic_jax.weights.attention import head_coordinates, query_key, value_out
from mimetic_jax.weights.baselines import (
    norm_matched,
    shuffled,
    tfixup,
    uniform_noise,
    zero_init,
)
from mimetic_jax.weights.bases import dct, polar, semi_orthogonal, sinusoidal
from mimetic_jax.weights.conv import (
    conv_covariance_2022,
    conv_filters,
    sample_filters,
)
from mimetic_jax.weights.embedding import bigram_counts, bigram_embedding
from mimetic_jax.weights.factor import factorize
from mimetic_jax.weights.impulse import (
    impulse_matrices,
    impulse_query_key,
    mixer_token_mixing,
    swin_bias,
    swin_shared_bias,
)
from mimetic_jax.weights.mlp import (
    anti_correlated,
    correlated_mlp,
    mean_shift,
    mean_shift_per_input,
)
from mimetic_jax.weights.position import sincos_1d, sincos_2d
from mimetic_jax.weights.rotary import (
    pairs_of,
    positional_biases,
    positional_logits,
    rates_in_use,
    rotary_rates,
)
from mimetic_jax.weights.selection import select, select_indices
from mimetic_jax.weights.ssm import correlated, identity_filters, log_decay, step_bias

__all__ = [
    "anti_correlated",
    "bigram_counts",
    "bigram_embedding",
    "conv_covariance_2022",
    "conv_filters",
    "correlated",
    "correlated_mlp",
    "dct",
    "factorize",
    "head_coordinates",
    "identity_filters",
    "impulse_matrices",
    "impulse_query_key",
    "log_decay",
    "mean_shift",
    "mean_shift_per_input",
    "mixer_token_mixing",
    "norm_matched",
    "pairs_of",
    "polar",
    "positional_biases",
    "positional_logits",
    "query_key",
    "rates_in_use",
    "rotary_rates",
    "sample_filters",
    "select",
    "select_indices",
    "semi_orthogonal",
    "shuffled",
    "sincos_1d",
    "sincos_2d",
    "sinusoidal",
    "step_bias",
    "swin_bias",
    "swin_shared_bias",
    "tfixup",
    "uniform_noise",
    "value_out",
    "zero_init",
]
