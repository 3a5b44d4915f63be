"""Initialization schemes for transformers, as pure functions for JAX and Flax.

    params = mimetic_jax.rewrite(key, params, mimetic_jax.schemes.Mimetic())

`weights` holds the mathematics, `schemes` names methods and their constants, `rewrite` applies
them to a parameter tree, `plan` lists what it would write and `blocks` reads a tree the same way;
`fit` reads the constants of a scheme off trained weights; `linen` has a drop-in attention layer.
"""

from mimetic_jax import schemes, weights
from mimetic_jax.errors import InputError
from mimetic_jax.fit import Fit, fit
from mimetic_jax.rewrite import Plan, block_key, blocks, plan, rewrite
from mimetic_jax.rules import Rule
from mimetic_jax.version import __version__

__all__ = [
    "Fit",
    "InputError",
    "Plan",
    "Rule",
    "__version__",
    "block_key",
    "blocks",
    "fit",
    "plan",
    "rewrite",
    "schemes",
    "weights",
]
