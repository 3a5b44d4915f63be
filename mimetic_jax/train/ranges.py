"""The range of every number of a configuration, as one table."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ml_collections import ConfigDict

from mimetic_jax.errors import InputError


@dataclasses.dataclass(frozen=True)
class Range:
    """An interval of numbers.

    >>> print(Range(0, 1, above=True), Range(1), Range(0, 1, below=True))
    above 0 and at most 1 at least 1 at least 0 and below 1

    Attributes:
        low, high: its ends.
        above, below: whether the lower and the upper end are left out.
    """

    low: float = 0
    high: float = math.inf
    above: bool = False
    below: bool = False

    def __contains__(self, value: float) -> bool:
        over = value > self.low if self.above else value >= self.low
        return over and (value < self.high if self.below else value <= self.high)

    def __str__(self) -> str:
        low = f"{'above' if self.above else 'at least'} {self.low:,}"
        if self.high == math.inf:
            return low
        return f"{low} and {'below' if self.below else 'at most'} {self.high:,}"


_COUNT, _POSITIVE, _SHARE = Range(1), Range(0, above=True), Range(0, 1)
_PART, _DECAY = Range(0, 1, above=True), Range(0, 1, below=True)
_STEPS = Range(0, 2**31 - 1)  # the counter of steps has 32 bits
_AT_ONCE = Range(1, 1_000_000)  # arrays of that length are on the device

RANGES = {
    "accumulate": _COUNT,
    "batch": _AT_ONCE,
    "checkpoint_every": _STEPS,
    "data.augment.color_jitter": _SHARE,
    "data.augment.erase": _SHARE,
    "data.eval_fraction": _PART,
    "data.length": _AT_ONCE,
    "data.max_pixels": Range(0, 2**30),  # what OpenCV decodes
    "data.mix.prob": _SHARE,
    "data.mix.switch": _SHARE,
    "data.repeats": Range(1, 1000),
    "data.subset": _PART,
    "data.valid": _AT_ONCE,
    "ema": _DECAY,
    "eval.batch": _AT_ONCE,
    "eval.every": _STEPS,
    "keep_checkpoints": Range(2),  # one to fall back on
    "label_smoothing": _DECAY,
    "log_every": _COUNT,
    "max_dispatch": _AT_ONCE,
    "mesh.data": Range(-1),
    "mesh.fsdp": _COUNT,
    "mesh.tensor": _COUNT,
    "model.depth": _COUNT,
    "model.dropout": _DECAY,
    "model.heads": _COUNT,
    "model.mlp_ratio": _POSITIVE,
    "model.patch": _COUNT,
    "model.token_std": Range(),
    "model.width": _COUNT,
    "optimizer.skip_nonfinite": _STEPS,
    "stall_seconds": Range(0, 10**9),  # what a thread can wait
    "steps": _STEPS,
    "together": _COUNT,
}
"""By field; see `allowed` for the others."""


def allowed(name: str) -> Range | None:
    """The range of a field that holds numbers; None for a model's own fields, which it checks.

    >>> print(allowed("optimizer.warmup"), allowed("model.scale_init"))
    at least 0 None
    """
    if name == "optimizer.betas":  # each of them
        return _DECAY
    return RANGES.get(name, None if name.startswith("model.") else Range())


def check_ranges(config: ConfigDict) -> None:
    """Check every number of a configuration, and what is made of several.

    Raises:
        InputError: names the first field that is out of its range, with the range.
    """
    for name, value in numbers(config):
        if (within := allowed(name)) and value not in within:
            raise InputError(f"{name} {value:,} is not {within}")
    if not str(config.name):
        raise InputError("name is empty: the workdir is runs/NAME")
    betas = tuple(config.optimizer.betas)
    if len(betas) != 2 or not all(_is_number(beta) and beta in _DECAY for beta in betas):
        raise InputError(f"optimizer.betas {betas} are not two numbers, {_DECAY}")
    for field, within in (("mean", Range(-math.inf)), ("std", _POSITIVE)):
        values = tuple(config.data.get(field, ()))
        if not all(_is_number(value) and value in within for value in values):
            above = f", {within}" if within is _POSITIVE else ""
            raise InputError(f"data.{field} {values} are not numbers{above}, one per channel")
    for field in ("decay_rules", "rate_rules"):
        for rule in _rules(f"optimizer.{field}", config.optimizer[field], "factor"):
            if not (len(rule) == 2 and _is_number(rule[1]) and rule[1] >= 0):
                raise InputError(
                    f"optimizer.{field}: {rule} is not (regular expression, factor of at least 0)"
                )
    for rule in _rules("mesh.rules", config.mesh.rules, "placement"):
        if len(rule) != 2 or not _is_placement(rule[1]):
            raise InputError(
                f"mesh.rules: {rule} is not (regular expression, placement), a placement being "
                '"replicate", "fsdp", or a tuple of "data", "fsdp", "tensor" and None'
            )
    for rule in _rules("rules", config.rules, "role, layout[, heads]"):
        if len(rule) not in (3, 4):
            raise InputError(f"rule {rule} is none of (path, role, layout[, heads])")


def numbers(config: ConfigDict, prefix: str = "") -> list[tuple[str, float]]:
    """Every number of a configuration with its field's name, without those of arms."""
    found = []
    for name, value in config.items():
        if isinstance(value, ConfigDict) and name != "arms":
            found += numbers(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found.append((prefix + name, value))
    return found


def _rules(field: str, rules: Sequence[object], what: str) -> Iterator[tuple[Any, ...]]:
    """The rules of a field, each of which begins with a regular expression."""
    for rule in rules:
        if not isinstance(rule, Sequence) or isinstance(rule, str) or not rule:
            raise InputError(f"{field}: {rule!r} is not (regular expression, {what})")
        expression, *rest = rule
        if not isinstance(expression, str):
            raise InputError(f"{field}: {rule} does not begin with a regular expression")
        try:
            re.compile(expression)
        except re.error as error:
            raise InputError(
                f"{field}: {expression!r} is not a regular expression: {error}"
            ) from error
        yield expression, *rest


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_placement(value: object) -> bool:
    if isinstance(value, str):
        return value in ("replicate", "fsdp")
    axes = ("data", "fsdp", "tensor")
    named = (*axes, *(f"{axis}?" for axis in axes), None)
    return isinstance(value, Sequence) and all(axis in named for axis in value)
