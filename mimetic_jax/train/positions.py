"""Whether schemes for rotary positions have the constants of the model that is trained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from mimetic_jax.base.errors import InputError
from mimetic_jax.schemes import PositionalHeads, Scheme
from mimetic_jax.train.tasks.task import Task


def check_positions(schemes: Iterable[Scheme], task: Task) -> None:
    """Refuse schemes by which positions turn otherwise than in the task's model, or whose heads
    look further than its context. Models that don't say how their positions turn take any."""
    if (rotary_of := task.model.traits.rotary) is None:
        return
    rotary = rotary_of(task.model.module)
    for scheme in _for_rotary(schemes):
        if rotary is None:
            raise InputError(
                f"{type(scheme).__name__} is for rotary positions, which model {task.model.name} "
                "doesn't have: set those, or use Mimetic, which makes attention local if positions "
                "are added"
            )
        if scheme.rotary != rotary:
            raise InputError(f"the model turns by {rotary}, but the scheme by {scheme.rotary}")
        reach = task.grid() or task.input_shape
        for offset in scheme.every_offset() if isinstance(scheme, PositionalHeads) else ():
            for distance, size in zip(offset, reach, strict=True):
                if abs(distance) >= size:
                    raise InputError(
                        f"offset {distance:g} is beyond the {size} tokens of the context"
                    )


def _for_rotary(schemes: Iterable[Any]) -> Iterator[Any]:
    """The schemes that say how positions turn, also inside of others."""
    for scheme in schemes:
        if hasattr(scheme, "rotary"):
            yield scheme
        elif isinstance(inner := getattr(scheme, "like", None), Scheme):
            yield from _for_rotary([inner])
