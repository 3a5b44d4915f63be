"""Closed forms of attention that were proposed for today's transformers, head by head."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Self

import jax
import jax.numpy as jnp

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import Range
from mimetic_jax.schemes.base import LATER, Block, Context, Scheme, attention_kernels, both_or_none
from mimetic_jax.schemes.kernels import semi_orthogonal
from mimetic_jax.schemes.mimetic import pair_roles, pair_sizes, zero_biases
from mimetic_jax.weights.checks import ANY_SIGN, NOT_NEGATIVE, POSITIVE

_SHARE = Range(0, 1, reason="a share of the columns of a head")


@dataclasses.dataclass(frozen=True)
class HeadIdentity(Scheme):
    """Query and key plus an identity on the head's own coordinates: W + β D^−power E_h.

    E_h [D, K] has ones where K of the D/G coordinates of head h meet its columns, so that W_Q W_Kᵀ
    gets β² D^−2·power on these coordinates. Query heads that share a key head share its
    coordinates. It adds to the existing kernels, so applying it twice adds it twice.

    `HeadIdentity.induction()` is for rotary positions that leave the last columns of a head
    unturned and shift their keys by one token (`GPT.key_shift`): q_n k_m then has β² x_n x_{m−1} on
    these coordinates, so that token n looks at what followed a token like itself. With
    `OrthogonalValueOut` of a positive product it adds that to the residual activations.

    The control is `NormMatched`, which draws query and key anew at these norms.

    Attributes:
        beta: β, signed.
        power: the power of 1 / D.
        share: the share of a head's columns, its last ones, that get the identity.

    Reference: a submission to OpenAI's parameter-golf, of 200 steps with rotary positions and QK
    norm; from a summary of it, one seed. The shift is that of the nanoGPT speed-run
    (modded-nanogpt), whose own start is random; induction heads are those of Olsson et al. 2022.
    """

    beta: Annotated[float, ANY_SIGN] = 0.5
    power: Annotated[float, NOT_NEGATIVE] = dataclasses.field(default=0.5, metadata=LATER)
    share: Annotated[float, _SHARE] = dataclasses.field(default=1.0, metadata=LATER)

    @classmethod
    def induction(cls, beta: float = 1.0, share: float = 0.5) -> Self:
        """The identity of size β in the columns that see the shifted keys.

        >>> HeadIdentity.induction()
        HeadIdentity(beta=1.0, power=0.0, share=0.5)
        """
        return cls(beta, 0.0, share)

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        return both_or_none(attention_kernels(roles), "query", "key")

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        sizes = pair_sizes(block, "query", "key")
        dim, groups, width = sizes.dim, sizes.num_kv_heads, sizes.head_dim
        if groups > dim:
            raise InputError(f"{groups} heads have no coordinates of their own among {dim}")
        own, column = dim // groups, jnp.arange(width)[None, None, :]
        meets = jnp.arange(dim)[:, None, None] == own * jnp.arange(groups)[None, :, None] + column
        meets &= (column < own) & (column >= width - int(self.share * width))
        added = self.beta * dim**-self.power * meets.astype(jnp.float32)
        return {
            "query": block["query"] + jnp.repeat(added, sizes.repeats, axis=1),
            "key": block["key"] + added,
        }


@dataclasses.dataclass(frozen=True)
class SymmetricQueryKey(Scheme):
    """W_Q = W_K: each head's product W_Q W_Kᵀ is symmetric and has no negative eigenvalue.

    Query kernel and bias become those of the key as it is found, so that norms stay those of the
    default, which is the control. Query heads that share a key head become equal.

    Reference: The Underlying Structures of Self-Attention (Saponati et al. 2025), which shows a
    gain for bidirectional models and none for causal ones.
    """

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        written = both_or_none(attention_kernels(roles), "query", "key") & {"query"}
        biases = {"query_bias", "key_bias"}
        return written | ({"query_bias"} if written and biases <= roles else frozenset())

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        repeats = pair_sizes(block, "query", "key").repeats
        new = {"query": jnp.repeat(block["key"], repeats, axis=1)}
        if "query_bias" in self.writes(frozenset(block)):
            new["query_bias"] = jnp.repeat(block["key_bias"], repeats, axis=0)
        return new


@dataclasses.dataclass(frozen=True)
class OrthogonalValueOut(Scheme):
    """W_V = v P and W_out = o L^−δ Pᵀ with one random orthogonal P per layer, a slice per head.

    If G·K = D, W_V W_out = v o L^−δ I exactly, with factors whose singular values are all equal.
    With fewer columns the product is that of a projection; with more, it is the same identity.
    Biases become zero.

    | initialization                                       | scheme                                |
    |------------------------------------------------------|---------------------------------------|
    | transformers without skips: c² I, c = 3              | `OrthogonalValueOut()`                |
    | "copying" beside `HeadIdentity`, .1/√L where it ends | `OrthogonalValueOut(1, 0.1, 0.5)`     |

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
