"""The base of schemes for models with rotary positions."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from mimetic_jax.base.errors import InputError
from mimetic_jax.schemes.base import Scheme
from mimetic_jax.weights.checks import POSITIVE
from mimetic_jax.weights.rotary import AXES, BASE, SHARE, Pairs, Rotary


@dataclasses.dataclass(frozen=True)
class _Turning(Scheme):
    """Base of schemes that need to know how the columns of a head turn.

    Attributes:
        base: of the model's rotary positions, "rope_theta" of its configuration. Weights don't show
            it, so it has no default.
        turned, pairs, axes: of them, see `Rotary`.
        slowest: where fast pairs of columns end, which tell distances, and slow ones begin, which
            keep content: in radians per token.
    """

    base: Annotated[float, BASE] | None = None
    _: dataclasses.KW_ONLY
    turned: Annotated[float, SHARE] = 1.0
    pairs: Pairs = "halves"
    axes: Annotated[int, AXES] = 1
    slowest: Annotated[float, POSITIVE] = 0.05

    def validate(self) -> None:
        if self.base is None:
            raise InputError(
                "base is missing: give the base of the model's rotary positions, rope_theta in its "
                "configuration, such as 10000; no weight shows it"
            )

    @property
    def rotary(self) -> Rotary:
        """The rotary positions of the model."""
        return Rotary(self.base or 0, self.turned, self.pairs, self.axes)
