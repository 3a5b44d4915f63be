"""Blocks of ones, to call schemes with."""

import jax.numpy as jnp

from mimetic_jax.schemes import Block

Shapes = dict[str, tuple[int, ...]]


def kernels(dim: int, heads: int, groups: int, head_dim: int) -> Shapes:
    """The shapes of an attention layer's kernels."""
    return {
        "query": (dim, heads, head_dim),
        "key": (dim, groups, head_dim),
        "value": (dim, groups, head_dim),
        "out": (heads, head_dim, dim),
    }


def biases(dim: int, heads: int, groups: int, head_dim: int) -> Shapes:
    """The shapes of its biases."""
    return {
        "query_bias": (heads, head_dim),
        "key_bias": (groups, head_dim),
        "value_bias": (groups, head_dim),
        "out_bias": (dim,),
    }


def ones(shapes: Shapes) -> Block:
    return Block.of({role: jnp.ones(shape) for role, shape in shapes.items()})
