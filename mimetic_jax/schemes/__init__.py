"""Schemes: a method of initialization and its constants, as plain frozen data.

A scheme is a pure function (block key, block, context) → new arrays for some of the block's
roles. A *block* is the leaves with one parent in the parameter tree: an attention layer, an MLP,
the root with its position table. Its arrays are *canonical*, whatever their storage:
`mimetic_jax.rules.rule.ROLES` has the axes of each.

`rewrite` finds the blocks of a tree and applies a scheme, or a tuple of schemes from left to
right, each to the result of the one before.
"""

from mimetic_jax.schemes.base import Interpolated, PerLayer, Scheme, as_tuple
from mimetic_jax.schemes.baselines import TFixup, Zero, ZeroOut
from mimetic_jax.schemes.block import Block, Context
from mimetic_jax.schemes.conv import ConvFilters, ConvMimetic
from mimetic_jax.schemes.first_layer import Bigram, Cooccurrence, Unigram, Whitened
from mimetic_jax.schemes.impulse import Impulse, ImpulseBias, ImpulseMixing
from mimetic_jax.schemes.mimetic import Mimetic, mimetic_language
from mimetic_jax.schemes.mlp import ConstantBias, CorrelatedMLP, MeanShift
from mimetic_jax.schemes.position import SinCos
from mimetic_jax.schemes.positional import PositionalHeads
from mimetic_jax.schemes.stored import from_dict, load, save, to_dict
from mimetic_jax.schemes.wrappers import Layers, NormMatched, Permuted

__all__ = [
    "Bigram",
    "Block",
    "ConstantBias",
    "Context",
    "ConvFilters",
    "ConvMimetic",
    "Cooccurrence",
    "CorrelatedMLP",
    "Impulse",
    "ImpulseBias",
    "ImpulseMixing",
    "Interpolated",
    "Layers",
    "MeanShift",
    "Mimetic",
    "NormMatched",
    "PerLayer",
    "Permuted",
    "PositionalHeads",
    "Scheme",
    "SinCos",
    "TFixup",
    "Unigram",
    "Whitened",
    "Zero",
    "ZeroOut",
    "as_tuple",
    "from_dict",
    "load",
    "mimetic_language",
    "save",
    "to_dict",
]
