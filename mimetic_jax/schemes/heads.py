"""Closed forms of attention that were proposed for today's transformers, head by head."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import jax
import jax.numpy as jnp

from mimetic_jax.schemes.base import Block, Context, Scheme
from mimetic_jax.schemes.kernels import semi_orthogonal
from mimetic_jax.schemes.mimetic import pair_roles, pair_sizes, zero_biases
from mimetic_jax.weights.checks import ANY_SIGN, NOT_NEGATIVE, POSITIVE


@dataclasses.dataclass(frozen=True)
class OrthogonalValueOut(Scheme):
    """W_V = v P and W_out = o L^−δ Pᵀ with one random orthogonal P per layer, a slice per head.

    If G·K = D, W_V W_out = v o L^−δ I exactly, with factors whose singular values are all equal.
    With fewer columns the product is that of a projection; with more, it is the same identity.
    Biases become zero.

    | initialization                                       | scheme                                |
    |------------------------------------------------------|---------------------------------------|
    | transformers without skips: c² I, c = 3              | `OrthogonalValueOut()`                |
    | "copying", .1/√L where it ends | `OrthogonalValueOut(1, 0.1, 0.5)`     |

    Attributes:
        value: v.
        out: o, signed.
        depth: δ, of 1/L, L the number of layers.

    Reference: Cutting the Skip: Training Residual-Free Transformers (Ji et al., arXiv 2510.00345),
    from secondary sources; the second form is that of a submission to OpenAI's parameter-golf.
    """

    value: Annotated[float, POSITIVE] = 3.0
    out: Annotated[float, ANY_SIGN] = 3.0
    depth: Annotated[float, NOT_NEGATIVE] = 0.0

    @property
    def by_depth(self) -> bool:  # type: ignore[override]
        """Whether the number of layers counts."""
        return bool(self.depth)

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        return pair_roles(roles, query_key=False, value_out=True, zero_bias=True)

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        sizes = pair_sizes(block, "out", "value")
        written = self.writes(frozenset(block))
        new = zero_biases(block, written)
        basis = semi_orthogonal(key, sizes.dim, sizes.num_kv_heads * sizes.head_dim)
        basis_DxGxK = basis.reshape(block.shapes["value"])
        out = self.out * context.num_layers**-self.depth / sizes.repeats
        new["value"] = self.value * basis_DxGxK
        new["out"] = out * jnp.repeat(basis_DxGxK.transpose(1, 2, 0), sizes.repeats, axis=0)
        return new
