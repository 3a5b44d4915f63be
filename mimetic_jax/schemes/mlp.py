"""Schemes for the layers of an MLP."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from mimetic_jax.base.errors import InputError
from mimetic_jax.schemes.base import PerLayer, Scheme, both_or_none
from mimetic_jax.schemes.block import Block, Context, check_not_zero
from mimetic_jax.weights.checks import ANY_SIGN, CORRELATION, NOT_NEGATIVE, number
from mimetic_jax.weights.mlp import mean_shift, mean_shift_per_input


@dataclasses.dataclass(frozen=True)
class MeanShift(Scheme):
    """Mimetic initialization of MLPs: the first kernel gets a nonzero mean.

    The mean is added to the existing kernel, so applying the scheme twice adds it twice. After a
    LayerNorm of scale 1 and bias 0 the default form doesn't change the forward pass at
    initialization: see `weights.mlp.mean_shift`.

    Attributes:
        b: the mean, or with `per_input` the standard deviation of the means, in standard
            deviations of the kernel.
        per_input: draw one mean per input, the same for all hidden units (eq. 1), instead of
            one number for the whole kernel (eq. 2, the paper's results).

    Raises:
        InputError: if a field is out of its range, b < 0 with `per_input` among them, or if the
            kernel is constant.

    Example:
        >>> kernel = jax.random.normal(jax.random.key(0), (8, 32))
        >>> block = Block.of({"mlp_in": kernel})
        >>> new = MeanShift(0.5)(jax.random.key(1), block, Context())["mlp_in"]
        >>> print(f"{(new - kernel).mean() / kernel.std():.2f}")
        0.50

    Reference: Mimetic Initialization of MLPs, eqs. 1 and 2.
    """

    b: Annotated[float, ANY_SIGN] = 0.5
    per_input: bool = False

    def validate(self) -> None:
        if self.per_input:
            number("b (with per_input=True, a standard deviation)", self.b, NOT_NEGATIVE)

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        return roles & {"mlp_in"}

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        kernel = block["mlp_in"]
        check_not_zero(
            kernel.std(),
            "mlp_in is constant (all zeros?), so MeanShift has no standard deviation to shift it "
            "by. Initialize it first.",
        )
        if self.per_input:
            return {"mlp_in": mean_shift_per_input(key, kernel, self.b)}
        return {"mlp_in": mean_shift(kernel, self.b)}


@dataclasses.dataclass(frozen=True)
class CorrelatedMLP(Scheme):
    """The second kernel of an MLP becomes √(1 − ρ²) W₂ + ρ (s₂/s₁) W₁ᵀ: W₁ W₂ leans to ρ I.

    s₁ and s₂ are the standard deviations of the entries, so that of independent kernels the norm of
    W₂ stays and the control is the default; another is the same with −ρ. It starts from the
    existing kernels, so applying it twice correlates twice.

    Attributes:
        rho: ρ in [−1, 1]; a number, a sequence with one number per layer, or a function of relative
            depth. DINOv2's ViT-S goes from −0.4 to −0.7 in its first layers to +0.3: see
            docs/trained.md.

    Raises:
        InputError: if a field is out of its range, if a kernel is constant, or if shapes are not
            [D, F] and [F, D].

    Example:
        >>> first = jax.random.normal(jax.random.key(0), (8, 32))
        >>> block = Block.of({"mlp_in": first, "mlp_out": first.T})
        >>> new = CorrelatedMLP(-1)(jax.random.key(1), block, Context())["mlp_out"]
        >>> bool((jnp.diag(first @ new) < 0).all())
        True
    """

    rho: Annotated[PerLayer, CORRELATION] = -0.5

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        return both_or_none(roles, "mlp_in", "mlp_out") & {"mlp_out"}

    def undone_by(self, written: frozenset[str], later: frozenset[str]) -> frozenset[str]:
        """By another W₂ for the same W₁, whose means don't belong to the correlation."""
        return frozenset() if "mlp_in" in later else later & written

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        scheme: Any = self.at(context.layer, context.num_layers)
        first, second = _pair(block)
        spreads = {"mlp_in": first.std(), "mlp_out": second.std()}
        for name, spread in spreads.items():
            check_not_zero(
                spread,
                f"{name} is constant (all zeros?), so CorrelatedMLP has nothing to correlate. "
                "Apply it before ZeroOut(mlp=True).",
            )
        kept, added = (
            math.sqrt(1 - scheme.rho**2),
            scheme.rho * spreads["mlp_out"] / spreads["mlp_in"],
        )
        return {"mlp_out": kept * second + added * first.T}


@dataclasses.dataclass(frozen=True)
class ConstantBias(Scheme):
    """The control for `MeanShift`: a constant bias of the first layer; its kernel is unchanged.

    Attributes:
        value: the constant, which the paper doesn't state; absolute, not in standard deviations.

    Raises:
        InputError: if a field is out of its range.

    Example:
        >>> block = Block.of({"mlp_in_bias": jnp.zeros(3)})
        >>> print(ConstantBias(0.5)(jax.random.key(0), block, Context())["mlp_in_bias"])
        [0.5 0.5 0.5]

    Reference: Mimetic Initialization of MLPs, section 3, "Is it really the init?".
    """

    value: Annotated[float, ANY_SIGN]

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        return roles & {"mlp_in_bias"}

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        return {"mlp_in_bias": jnp.full(block.shapes["mlp_in_bias"], self.value, jnp.float32)}


def _pair(block: Block) -> tuple[jax.Array, jax.Array]:
    """W₁ [D, F] and W₂ [F, D]."""
    shapes = block.shapes.get("mlp_in", ()), block.shapes.get("mlp_out", ())
    if len(shapes[0]) != 2 or shapes[1] != shapes[0][::-1]:
        raise InputError(f"mlp_in {shapes[0]} and mlp_out {shapes[1]} are not [D, F] and [F, D]")
    return block["mlp_in"], block["mlp_out"]
