"""Mimetic initialization of self-attention."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, NamedTuple, Self

import jax
import jax.numpy as jnp

from mimetic_jax import weights
from mimetic_jax.base.errors import InputError
from mimetic_jax.schemes.base import PerLayer, Scheme, attention_kernels, both_or_none
from mimetic_jax.schemes.block import Block, Context
from mimetic_jax.weights.attention import Noise, Orientation
from mimetic_jax.weights.checks import ANY_SIGN, NOT_NEGATIVE

Alpha = Annotated[PerLayer, NOT_NEGATIVE]
Beta = Annotated[PerLayer, ANY_SIGN]


@dataclasses.dataclass(frozen=True)
class Mimetic(Scheme):
    """Mimetic initialization of self-attention: W_Q W_Kᵀ ≈ αZ + βI, W_V W_out ≈ αZ + βI, β_vo < 0.

    Z [D, D] has independent entries of variance 1/D, D the width of the model. W_Q W_Kᵀ of a head
    is the best approximation of its rank K. New attention layers then attend to similar tokens, and
    subtract part of a token from itself. The defaults are the paper's constants for vision, with
    normal noise as in its text and biases set to zero (the paper does not mention biases).

    Every α and β is a number, a sequence with one number per layer, or a function of relative
    depth in [0, 1]. A pair whose α and β are None stays unchanged.

    Attributes:
        alpha_qk: α ≥ 0 of the query/key product, its noise.
        beta_qk: β of the query/key product, its identity.
        alpha_vo: α ≥ 0 of the value/out product.
        beta_vo: β of the value/out product.
        noise: distribution of Z, "normal" or "uniform" of the same variance.
        orientation: "paper", or "port" for values stored transposed, as in released code.
        zero_bias: whether the biases of the written kernels become zero.

    Raises:
        InputError: if a field is out of its range, or if only one of α and β of a pair is None.

    Example:
        >>> only_query_key = Mimetic(alpha_vo=None, beta_vo=None)
        >>> sorted(only_query_key.writes(frozenset({"query", "key", "value", "out"})))
        ['key', 'query']

    Reference: Mimetic Initialization of Self-Attention Layers, eqs. 2 and 5-7.
    """

    joint_roles = (frozenset({"query", "key"}), frozenset({"value", "out"}))
    alpha_qk: Alpha | None = 0.7
    beta_qk: Beta | None = 0.7
    alpha_vo: Alpha | None = 0.4
    beta_vo: Beta | None = -0.4
    noise: Noise = "normal"
    zero_bias: bool = True
    orientation: Orientation = "paper"

    @classmethod
    def port(cls) -> Self:
        """Return the port in the structured paper's released code, for its mimetic rows.

        The paper's constants with uniform noise, value and out stored transposed, and the model's
        own biases. The self-attention paper itself released no code.

        >>> Mimetic.port().orientation
        'port'
        """
        return cls(noise="uniform", zero_bias=False, orientation="port")

    def validate(self) -> None:
        for pair in ("qk", "vo"):
            alpha, beta = getattr(self, f"alpha_{pair}"), getattr(self, f"beta_{pair}")
            if (alpha is None) != (beta is None):
                raise InputError(
                    f"alpha_{pair}={alpha} and beta_{pair}={beta}: set both to None to leave the "
                    "pair unchanged"
                )

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        return pair_roles(
            roles, self.alpha_qk is not None, self.alpha_vo is not None, self.zero_bias
        )

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        # For one layer, α and β are numbers.
        scheme: Any = self.at(context.layer, context.num_layers)
        key_qk, key_vo = jax.random.split(key)
        written = self.writes(frozenset(block))
        new = zero_biases(block, written)
        if "query" in written:
            new["query"], new["key"] = weights.query_key(
                key_qk,
                **pair_sizes(block, "query", "key")._asdict(),
                alpha=scheme.alpha_qk,
                beta=scheme.beta_qk,
                noise=self.noise,
            )
        if "value" in written:
            new["value"], new["out"] = weights.value_out(
                key_vo,
                **pair_sizes(block, "out", "value")._asdict(),
                alpha=scheme.alpha_vo,
                beta=scheme.beta_vo,
                orientation=self.orientation,
                noise=self.noise,
            )
        return new


def mimetic_language(**constants: Any) -> Mimetic:
    """Return the paper's setting for language models: W_Q W_Kᵀ = ½ I on K coordinates, small W_V
    W_out.

    With added positions `beta_vo=-0.4` was better on both corpora (docs/results.md).

    Args:
        **constants: fields of `Mimetic` that replace those of the paper.

    Returns:
        A `Mimetic` scheme.

    >>> mimetic_language().alpha_qk, mimetic_language().beta_vo
    (0.0, -0.2)

    Reference: Mimetic Initialization of Self-Attention Layers, section on language.
    """
    return Mimetic(
        **{"alpha_qk": 0.0, "beta_qk": 0.5, "alpha_vo": 0.2, "beta_vo": -0.2, **constants}
    )


def zero_biases(block: Block, roles: frozenset[str]) -> dict[str, jax.Array]:
    """Zeros for the biases among roles, in one order: a set's differs between processes."""
    return {role: jnp.zeros(block.shapes[role]) for role in sorted(roles) if role.endswith("_bias")}


def pair_roles(
    roles: frozenset[str], query_key: bool, value_out: bool, zero_bias: bool
) -> frozenset[str]:
    """Return the roles of the pairs to write, and of their biases if these become zero."""
    written: set[str] = set()
    kernels = attention_kernels(roles)
    for pair, wanted in ((("query", "key"), query_key), (("value", "out"), value_out)):
        present = both_or_none(kernels, *pair) if wanted else frozenset()
        written |= present
        if zero_bias:
            written |= roles & {f"{role}_bias" for role in present}
    return frozenset(written)


class Sizes(NamedTuple):
    """D, H, K and G of a pair of kernels, as arguments of `weights.query_key` and `value_out`."""

    dim: int
    num_heads: int
    head_dim: int
    num_kv_heads: int

    @property
    def repeats(self) -> int:
        """The heads of query or out that share a head of key or value."""
        return self.num_heads // self.num_kv_heads


def pair_sizes(block: Block, role: str, partner: str) -> Sizes:
    """Return the sizes of a block's query and key, or of its out and value."""
    wide, narrow = block.shapes[role], block.shapes[partner]
    if role == "out":
        wide = (*wide[2:], *wide[:2])
    if len(wide) != 3 or len(narrow) != 3 or wide[::2] != narrow[::2]:
        raise InputError(
            f"{role} and {partner} must have the same width and head width; got {wide} and "
            f"{narrow} (width, heads, head width)"
        )
    if not narrow[1] or wide[1] % narrow[1]:
        raise InputError(f"{wide[1]} heads of {role} can't share {narrow[1]} heads of {partner}")
    return Sizes(*wide, narrow[1])
