"""Schemes: a method of initialization and its constants, as plain frozen data.

A scheme is a pure function (block key, block, context) → new arrays for some of the block's
roles. A *block* is the leaves with one parent in the parameter tree: an attention layer, an MLP,
the root with its position table. Its arrays are *canonical*, whatever their storage:
`mimetic_jax.rules.rule.ROLES` has the axes of each.

`rewrite` finds the blocks of a tree and applies a scheme, or a tuple of schemes from left to
right, each to the result of the one before.
"""

from mimetic_jax.schemes.base import Block, ByDepth, Context, PerLayer, Scheme, as_tuple
from mimetic_jax.schemes.baselines import IDInit, TFixup, Zero, ZeroOut
from mimetic_jax.schemes.bases import DCT, Conditioned, Orthogonal, Sinusoidal
from mimetic_jax.schemes.circuits import ContentHeads, InductionCircuit
from mimetic_jax.schemes.conv import ConvFilters, ConvMimetic
from mimetic_jax.schemes.first_layer import Cooccurrence, Unigram
from mimetic_jax.schemes.heads import HeadIdentity, OrthogonalValueOut, SymmetricQueryKey
from mimetic_jax.schemes.impulse import Impulse, ImpulseBias, ImpulseMixing
from mimetic_jax.schemes.independent import CompleteP, Independent
from mimetic_jax.schemes.mimetic import Mimetic, SameNoise, mimetic_language
from mimetic_jax.schemes.mlp import AntiCorrelated, ConstantBias, CorrelatedMLP, MeanShift
from mimetic_jax.schemes.position import SinCos
from mimetic_jax.schemes.positional import PositionalHeads
from mimetic_jax.schemes.ssm import MimeticSSM
from mimetic_jax.schemes.stored import from_dict, load, save, to_dict
from mimetic_jax.schemes.wrappers import Layers, NormMatched, Permuted, Polar, Shuffled

__all__ = [
    "DCT",
    "AntiCorrelated",
    "Block",
    "ByDepth",
    "CompleteP",
    "Conditioned",
    "ConstantBias",
    "ContentHeads",
    "Context",
    "ConvFilters",
    "ConvMimetic",
    "Cooccurrence",
    "CorrelatedMLP",
    "HeadIdentity",
    "IDInit",
    "Impulse",
    "ImpulseBias",
    "ImpulseMixing",
    "Independent",
    "InductionCircuit",
    "Layers",
    "MeanShift",
    "Mimetic",
    "MimeticSSM",
    "NormMatched",
    "Orthogonal",
    "OrthogonalValueOut",
    "PerLayer",
    "Permuted",
    "Polar",
    "PositionalHeads",
    "SameNoise",
    "Scheme",
    "Shuffled",
    "SinCos",
    "Sinusoidal",
    "SymmetricQueryKey",
    "TFixup",
    "Unigram",
    "Zero",
    "ZeroOut",
    "as_tuple",
    "from_dict",
    "load",
    "mimetic_language",
    "save",
    "to_dict",
]
