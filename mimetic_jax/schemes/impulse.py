"""Impulse initialization of vision transformers."""

from __future__ import annotations

import dataclasses
import math
from typing import Self

import jax
import jax.numpy as jnp

from mimetic_jax.errors import InputError
from mimetic_jax.schemes.base import Block, Context, PerLayer, Scheme
from mimetic_jax.schemes.mimetic import Mimetic, pair_sizes
from mimetic_jax.weights.attention import Noise
from mimetic_jax.weights.impulse import Order, impulse_query_key


@dataclasses.dataclass(frozen=True)
class Impulse(Scheme):
    """Structured initialization: attention maps that start as convolutions with an impulse.

    Query and key are solved for the tree's position table, which must be random (sin-cos tables
    have too low a rank), with fresh noise in every layer. All rows of the table are multiplied by
    `position_scale`. Value and out are mimetic.

    The defaults are the constants of the released code in this library's conventions: normal noise
    for value and out, and zero biases. With one block key value and out then equal those of
    `Mimetic()`, so that arms of the two differ in query and key alone. `Impulse.released()` is
    the released code to the letter, `Impulse.paper()` the paper's text.

    Not idempotent: each application scales the table again.

    Attributes:
        amplitude, noise: logits at the impulse and standard deviation of the others; only
            their ratio matters.
        norm: Frobenius norm of each head's query and of its key.
        position_scale: factor on the position table; 1 leaves it unchanged.
        kernel_size: side of the filters, odd.
        order: of the offsets over heads: "released" (the same in every layer) or "random".
        rank: of query·keyᵀ; the head width unless given. Lower it where the position table's
            numerical rank is lower.
        alpha_vo, beta_vo: noise and (signed) identity of the value/out product, as in `Mimetic`;
            both None leave value and out unchanged.
        noise_vo: distribution of that noise, "normal" or "uniform".
        zero_bias: whether the biases of the written kernels become zero.

    Example:
        >>> Impulse.paper().writes(frozenset({"query", "key", "value", "out"})) == {"query", "key"}
        True

    Reference: Structured Initialization for Vision Transformers, eqs. 9-14.
    """

    amplitude: float = 1000.0
    noise: float = 1.8
    norm: float = 7.0
    position_scale: float = 18.0
    kernel_size: int = 3
    order: Order = "released"
    rank: int | None = None
    alpha_vo: PerLayer | None = 0.4
    beta_vo: PerLayer | None = -0.4
    noise_vo: Noise = "normal"
    zero_bias: bool = True

    @classmethod
    def released(cls) -> Self:
        """The authors' released code (osiriszjq/structured_initialization, `impulse`).

        The defaults, but uniform noise in value and out, and the model's own biases: PyTorch's
        U(±1/√D) there.

        >>> Impulse.released().zero_bias
        False
        """
        return cls(noise_vo="uniform", zero_bias=False)

    @classmethod
    def paper(cls) -> Self:
        """The paper's text as far as it is known: no scaled table, value and out unchanged.

        Appendix A of the paper leaves value and out unchanged. The ratio 40:1 and the norm 2 are
        from a secondary source, because the text available to us lacks its numbers, and reading
        the 1 as a standard deviation is our interpretation. At initialization the impulse is each
        row's largest weight, but only just: it gets 1 % of the attention in a ViT-Tiny.

        >>> Impulse.paper().norm
        2.0
        """
        return cls(
            amplitude=40.0, noise=1.0, norm=2.0, position_scale=1.0, alpha_vo=None, beta_vo=None
        )

    def __post_init__(self) -> None:
        # Mimetic checks the pair and turns lists into tuples.
        mimetic = self._mimetic()
        object.__setattr__(self, "alpha_vo", mimetic.alpha_vo)
        object.__setattr__(self, "beta_vo", mimetic.beta_vo)
        if not (math.isfinite(self.position_scale) and self.position_scale > 0):
            raise InputError(f"position_scale {self.position_scale} is not a positive number")

    def _mimetic(self) -> Mimetic:
        """A `Mimetic` that writes the same attention kernels, with this value and out."""
        return Mimetic(
            alpha_vo=self.alpha_vo,
            beta_vo=self.beta_vo,
            noise=self.noise_vo,
            zero_bias=self.zero_bias,
        )

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        table = frozenset() if self.position_scale == 1 else roles & {"position"}
        return table | self._mimetic().writes(roles)

    def __call__(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        written = self.writes(frozenset(block))
        new = {role: jnp.zeros(block.shapes[role]) for role in written if role.endswith("_bias")}
        if "value" in written:
            # The same block key gives Mimetic's value and out, so that arms of the two schemes
            # differ in query and key alone.
            only_value_out = dataclasses.replace(self._mimetic(), alpha_qk=None, beta_qk=None)
            new |= only_value_out(key, block, context)
        if "query" in written:
            key_qk, _ = jax.random.split(key)
            new["query"], new["key"] = self._query_key(key_qk, block, context)
        if "position" in written:
            # All rows, including the class token's, as in the released code.
            new["position"] = block["position"] * self.position_scale
        return new

    def _query_key(
        self, key: jax.Array, block: Block, context: Context
    ) -> tuple[jax.Array, jax.Array]:
        if context.position is None or context.grid is None:
            raise InputError(
                "Impulse needs one position table on a known grid: the tree has no table or "
                "several, or its patch grid isn't square (then give grid=(h, w))"
            )
        sizes = pair_sizes(block, "query", "key")
        if context.position.shape[1] != sizes.pop("dim"):
            raise InputError(
                f"query {block.shapes['query']} (width, heads, head width) and positions "
                f"{context.position.shape} must have the same width"
            )
        return impulse_query_key(
            key,
            context.position * self.position_scale,  # the table as this scheme leaves it
            context.grid,
            **sizes,
            kernel_size=self.kernel_size,
            order=self.order,
            amplitude=self.amplitude,
            noise=self.noise,
            norm=self.norm,
            rank=self.rank,
        )
