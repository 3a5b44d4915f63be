"""A leaf of a tree, read in canonical form and written back as it is stored."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

import einops
import jax
import numpy as np
from jax.sharding import NamedSharding, reshard
from jax.sharding import PartitionSpec as P

from mimetic_jax.base.errors import InputError
from mimetic_jax.rules.rule import ROLES, Rule
from mimetic_jax.weights.checks import is_here


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One role of one leaf of a tree, with its stored shape and its place among the leaves.

    There are no sizes of axes if the shape doesn't fit the rule: `problem` says why, and is an
    error if the leaf is used.
    """

    index: int
    path: str
    role: str
    rule: Rule
    shape: tuple[int, ...]
    sizes: Mapping[str, int]
    problem: str = ""

    @property
    def fits(self) -> bool:
        return not self.problem

    def as_wide_as(self, width: int | None) -> Leaf:
        """The gain of a norm over the columns of a head, which doesn't fit heads of other width."""
        if width is None or not self.fits or self.sizes["k"] == width:
            return self
        problem = (
            f"{self.path} has shape {self.shape}, and heads have {width} columns: it is of a norm "
            "over all heads together"
        )
        return dataclasses.replace(self, problem=problem)

    def check(self) -> None:
        if self.problem:
            raise InputError(self.problem)

    @property
    def layers(self) -> int | None:
        """Number of layers stacked in the leaf, or None."""
        self.check()
        return self.sizes.get("l")

    @property
    def canonical_shape(self) -> tuple[int, ...]:
        """Shape of the role's canonical array in one layer."""
        self.check()
        axes = self.rule.axes(self.role).split()
        return tuple(
            1 if axis == "g" and "g" not in self.sizes else self.sizes[axis] for axis in axes
        )

    @property
    def axes(self) -> dict[str, int]:
        """Sizes of the canonical axes by their names in `ROLES`."""
        return dict(zip(ROLES[self.role].split(), self.canonical_shape, strict=True))

    def unpack(self, stored: Any) -> Any:
        """The role's canonical array, [...] or [L, ...], from the stored leaf."""
        whole = self.whole(stored)
        part = whole if self._part is None else whole[self._part]
        if self.rule.plus_one:
            return part.astype(np.float32) + 1
        # In float32, as √K would round values of fewer digits.
        return part.astype(np.float32) * self.multiplier if self.multiplier != 1 else part

    def pack(self, canonical: Any, stored: Any) -> Any:
        """The stored leaf with the role's canonical array put in."""
        if self.multiplier != 1:
            canonical = canonical / self.multiplier
        if self.rule.plus_one:
            canonical = canonical - 1
        if self._part is not None:
            canonical = _set_part(self.whole(stored), self._part, canonical)
        return self._rearranged(canonical, self._canonical, self.rule.stored.einops)

    def whole(self, stored: Any) -> Any:
        """The stored leaf with its axes in canonical order, and all roles that share it."""
        return self._rearranged(_gathered(stored), self.rule.stored.einops, self._canonical)

    def _rearranged(self, array: Any, before: str, after: str) -> Any:
        names = re.findall("[a-z]+", before)
        named = {name: size for name, size in self.sizes.items() if name in names}
        return einops.rearrange(array, f"{before} -> {after}", **named)

    @property
    def layout(self) -> str:
        """The stored axes, and what the leaf is stored divided by."""
        return self.rule.layout + self._factor[1]

    @property
    def multiplier(self) -> np.float32 | int:
        """What the model multiplies a query or an embedding by, which is stored divided by it."""
        return self._factor[0]

    @property
    def _factor(self) -> tuple[np.float32 | int, str]:
        form = self.rule.form
        if not form or isinstance(form, str):
            return 1, ""
        if self.role in ("query", "query_bias"):
            symbols = " / √K" if form is True else f" / √K / {form:g}"
            return np.float32(math.sqrt(self.sizes["k"]) * form), symbols
        if self.role != "embedding":
            return 1, ""
        if form is True:
            return np.float32(math.sqrt(self.sizes["d"])), " / √D"
        return np.float32(form), f" / {form:g}"

    @property
    def _part(self) -> tuple[slice, ...] | None:
        """Where the role's heads are in the leaf, if it shares the leaf with other roles."""
        rule = self.rule
        if len(rule.parts) == 1:
            return None
        axis, at = rule.part_axis(self.role), rule.parts.index(self.role)
        start = sum(self.sizes[letter] for letter in (rule.stored.parts or axis * at)[:at])
        leading = rule.stored.stacked + rule.axes(self.role).split().index(axis)
        return (*[slice(None)] * leading, slice(start, start + self.sizes[axis]))

    @property
    def _canonical(self) -> str:
        return self.rule.canonical(self.role)


def _gathered(stored: Any) -> Any:
    """The stored leaf without shards, which an explicit mesh lets nobody reshape or slice."""
    if isinstance(stored, jax.core.Tracer):
        mesh = jax.typeof(stored).sharding.mesh
        return reshard(stored, NamedSharding(mesh, P())) if mesh.explicit_axes else stored
    # What other processes hold can't be brought here; there all of them compute the same.
    return np.asarray(stored) if is_here(stored) else stored


def _set_part(whole: Any, part: tuple[slice, ...], array: Any) -> Any:
    if isinstance(whole, jax.Array) or isinstance(array, jax.core.Tracer):
        whole = jax.numpy.asarray(whole)
        return whole.at[part].set(jax.numpy.asarray(array, whole.dtype))
    whole = np.array(whole)
    whole[part] = array
    return whole
