"""How a leaf is stored: the names of its axes, and their sizes."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Mapping, Sequence

from mimetic_jax.base.errors import InputError

FUSED = {2: "two", 3: "three"}
"""The axis along which a leaf holds so many kernels of one size."""
QUERY_HEADS = "q"
"""The axis of the query heads of a group, if groups have an axis of their own: h is g q."""
GROUPED = "(h+2g)"
"""H query heads, G key heads and G value heads along one axis."""
_JOINED = re.compile(r"\((\d*[a-z](?:\+\d*[a-z])+)\)")
_GIVEN = {"h": "num_heads", "g": "num_kv_heads"}
"""Sizes that the caller gives."""
_AXIS = r"(?:1|[a-z]+|\([a-z]+(?: [a-z]+)*\))"
_LAYOUT = re.compile(rf"{_AXIS}(?: {_AXIS})*")


@dataclasses.dataclass(frozen=True)
class Layout:
    """The axes of a stored array.

    Attributes:
        text: the layout as a rule has it.
        axes: the names that each stored axis flattens into one; none for an axis of size 1.
        parts: a letter for each part of an axis with parts of different sizes, which is also that
            axis's name: "hgg" of (h+2g); "" if there is no such axis.

    >>> Layout.parse("l d (h+2g) (two k) 1").axes
    (('l',), ('d',), ('hgg',), ('two', 'k'), ())
    """

    text: str
    axes: tuple[tuple[str, ...], ...]
    parts: str

    @classmethod
    @functools.cache
    def parse(cls, text: str) -> Layout:
        """Read a layout."""
        joined = _JOINED.search(text)
        terms = re.findall(r"(\d*)([a-z])", joined[1]) if joined else ()
        parts = "".join(letter * int(count or 1) for count, letter in terms)
        named = text.replace(joined[0], parts) if joined else text
        if not _LAYOUT.fullmatch(named):
            raise InputError(
                f"layout {text!r} is not a list of axes such as 'd h k' or 'l d (three h k)'"
            )
        axes = re.findall(r"\([^)]*\)|\S+", named)
        return cls(text, tuple(tuple(re.findall("[a-z]+", axis)) for axis in axes), parts)

    @property
    def names(self) -> list[str]:
        """All names, in their order."""
        return [name for axis in self.axes for name in axis]

    @property
    def sum(self) -> str:
        """The parts of different sizes as the layout has them: "h+2g"."""
        joined = _JOINED.search(self.text)
        return joined[1] if joined else ""

    @property
    def einops(self) -> str:
        """The layout as einops reads it."""
        return self.text.replace(f"({self.sum})", self.parts) if self.parts else self.text

    @property
    def stacked(self) -> bool:
        """Whether the array stacks all layers."""
        return "l" in self.names

    def flattens(self, axis: str) -> bool:
        """Whether the array stores this axis with others as one."""
        return any(axis in names for names in self.axes if len(names) > 1)

    def sizes(
        self,
        path: str,
        shape: tuple[int, ...],
        heads: Mapping[str, int | None],
        beside: Mapping[str, int],
    ) -> dict[str, int]:
        """The size of each axis of a stored shape, by the numbers of heads "h" and "g" or None, and
        for parts of different sizes by those of other leaves of the block."""
        problem = f"{path} has shape {shape}, which doesn't fit layout {self.text!r}"
        if 0 in shape:
            raise InputError(
                f"{path} has shape {shape}, which is empty: gather it if other devices hold it, as "
                "by deepspeed.zero.GatheredParameters"
            )
        if len(self.axes) != len(shape):
            raise InputError(f"{problem}: {self._advice(shape)}")
        known = {name: number for number, name in FUSED.items()}
        known |= {name: count for name, count in heads.items() if count is not None}
        if "h" in known and "g" in known:
            known["q"] = known["h"] // known["g"]
        sizes: dict[str, int] = {}
        if self.parts:
            sizes = self._part_sizes(path, shape, {**beside, **heads})
            known[self.parts] = sum(sizes[letter] for letter in self.parts)
        for at, (names, size) in enumerate(zip(self.axes, shape, strict=True)):
            if not names and size != 1:
                raise InputError(f"{problem}: axis 1 has size {size}")
            if len(names) > 1 or names == (self.parts,):
                sizes |= {name: known[name] for name in names if name in known}
            left = [name for name in names if name not in sizes]
            if sorted(left) == ["c", "u", "v"]:
                sizes |= _square(size)
                left = []
            if len(left) > 1:
                raise InputError(f"{path} stores its heads flattened: pass num_heads")
            product = math.prod(sizes[name] for name in names if name in sizes)
            if size % product or (not left and size != product):
                advice = f"; {grouped_advice()}" if "three" in names else ""
                if "g" in names and heads["g"] == heads["h"]:
                    advice = "; if key and value have fewer heads than query, pass num_kv_heads"
                misfit = self._misfit(names, heads, sizes)
                raise InputError(f"{misfit} axis {at} of {path}, which has size {size}{advice}")
            if "three" in names and heads["g"] not in (None, heads["h"]):
                raise InputError(
                    f"num_kv_heads {heads['g']}, but {path} has as many heads of key "
                    f"as of query by its layout {self.text!r}; {grouped_advice()}"
                )
            sizes |= dict.fromkeys(left, size // product)
        if QUERY_HEADS in sizes:
            sizes["h"] = sizes["g"] * sizes[QUERY_HEADS]
        return sizes

    def _advice(self, shape: Sequence[int]) -> str:
        """What to do about a leaf with another number of axes."""
        if len(shape) == len(self.axes) - 1 and ("g",) in self.axes:
            without = " ".join(axis for axis in self.text.split() if axis != "g")
            return f"a key or value of one head without an axis for it has layout {without!r}"
        once = {"u", "n"} & {axis for axes in self.axes for axis in axes}  # of a patch, a position
        if once or len(shape) <= len(self.axes) + (not self.stacked):
            return own_rules()
        second = self.axes[1:2] == (("l",),)
        call = ", rules=attention_rules(stacked=True, axis=1)" if second else ""
        axes = ", (0, 1), 1" if second else ""
        return (
            "if layers are stacked along several axes, draw the part that is so under jax.vmap "
            f"over {'axis 1' if second else 'the first of them'}: "
            f"jax.vmap(lambda key, params: rewrite(key, params, scheme{call}){axes})("
            f"jax.random.split(key, {shape[second]}), params)"
        )

    def _misfit(
        self, names: Sequence[str], heads: Mapping[str, int | None], sizes: Mapping[str, int]
    ) -> str:
        """The numbers that are wrong for an axis."""
        if self.parts in names:
            parts = (f"{_GIVEN.get(x, x)} {sizes[x]}" for x in dict.fromkeys(self.parts))
            return f"{' and '.join(parts)} do not fit"
        grouped = "g" in names and heads["g"] != heads["h"]
        letter = "g" if grouped else "h"
        return f"{_GIVEN[letter]} {heads[letter]} does not divide"

    def _part_sizes(
        self, path: str, shape: tuple[int, ...], known: Mapping[str, int | None]
    ) -> dict[str, int]:
        """The size of each part of an axis; one that isn't known is what the others leave."""
        sizes = {x: size for x in self.parts if (size := known.get(x)) is not None}
        missing = [x for x in dict.fromkeys(self.parts) if x not in sizes]
        if any(x in _GIVEN for x in missing):
            raise InputError(
                f"{path} stores the heads of query, key and value along one axis: pass "
                f"{' and '.join(_GIVEN.values())}"
            )
        if len(missing) > 1:
            raise InputError(
                f"{path} stores {self.sum} along one axis, and no leaf beside it shows "
                f"{' or '.join(missing)}"
            )
        for x in missing:
            size, times = shape[self.axes.index((self.parts,))], self.parts.count(x)
            rest = size - sum(sizes.get(other, 0) for other in self.parts)
            if rest < times or rest % times:
                others = " and ".join(f"{name} {number}" for name, number in sizes.items())
                raise InputError(f"{path} has an axis of {size}, which is not {self.sum}: {others}")
            sizes[x] = rest // times
        return sizes


def grouped_advice() -> str:
    """What to give for one kernel of query, key and value, with fewer heads of the last two."""
    return (
        "with fewer heads of key and value than of query pass "
        "num_kv_heads and, if all of query come before all of key and of value, "
        "attention_rules(…, grouped=True); no layout describes others"
    )


def own_rules() -> str:
    """What to give for a leaf that no table of rules describes."""
    return "pass rules=(Rule(path, role, layout), …) for this tree"


def _square(size: int) -> dict[str, int]:
    """The rows, columns and channels of square patches with so many numbers: of 3 channels if they
    can be, else of as few as they can have."""
    for channels in (3, *range(1, size + 1)):
        if size % channels == 0 and (side := math.isqrt(size // channels)) ** 2 * channels == size:
            break
    return {"u": side, "v": side, "c": channels}
