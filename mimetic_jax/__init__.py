"""Initialization schemes for transformers, as pure functions for JAX.

    params = mimetic_jax.rewrite(key, params, mimetic_jax.schemes.Mimetic())

`weights` holds the mathematics, `schemes` names methods and their constants, `rewrite` applies
them to a parameter tree, `plan` lists what they would write and `blocks` reads a tree the same way;
`check` says whether a tree has the structure, `fit` reads the constants of a scheme off trained
weights; `zoo` has rules for well-known trees, `initializers` plain Flax initializers; `linen`,
`nnx` and `torch` are for modules of these libraries.
"""

import importlib
from typing import Any

from mimetic_jax import schemes, weights, zoo
from mimetic_jax.base.errors import InputError
from mimetic_jax.base.extras import need
from mimetic_jax.base.version import __version__
from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import attention_rules, embedding_rules, llama_rules, mlp_rules
from mimetic_jax.trained.check import Check, check
from mimetic_jax.trained.fit import Fit, fit
from mimetic_jax.tree.rewrite import Plan, block_key, blocks, plan, rewrite

__all__ = [
    "Check",
    "Fit",
    "InputError",
    "Plan",
    "Rule",
    "__version__",
    "attention_rules",
    "block_key",
    "blocks",
    "check",
    "embedding_rules",
    "fit",
    "llama_rules",
    "mlp_rules",
    "plan",
    "rewrite",
    "schemes",
    "weights",
    "zoo",
]

_LAZY = ("initializers", "linen", "nnx", "torch")
"""Modules that are imported when they are named: Flax takes a second that a tree needn't pay."""


def __getattr__(name: str) -> Any:
    if name in ("linen", "nnx"):
        need(f"mimetic_jax.{name}", "flax")
    if name in _LAZY:
        return importlib.import_module(f"mimetic_jax.{name}")
    raise AttributeError(f"module 'mimetic_jax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_LAZY})
