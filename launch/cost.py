"""What a row's training costs: FLOPs counted once, hours at the speed of the device at hand."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Iterable

from launch.registry import Entry, Spec

COSTS = pathlib.Path(__file__).with_name("costs.json")
"""FLOPs of one run by comparison and arm, as XLA counts forward and backward passes."""


class Costs:
    """The counted FLOPs of runs."""

    def __init__(self) -> None:
        self._flops: dict[str, dict[str, float]] = (
            json.loads(COSTS.read_text()) if COSTS.exists() else {}
        )

    def seed(self, spec: Spec, arms: Iterable[str]) -> float | None:
        """FLOPs of one run of each of these arms; None if none was counted."""
        counted = self._flops.get(spec.key, {})
        return sum(counted[arm] for arm in arms if arm in counted) or None

    def count(self, entries: Iterable[Entry], say: Callable[[str], None] = print) -> None:
        """Count what isn't, and write it down, row by row; not populations, of any size."""
        from mimetic_jax.analysis.plan import flops_per_step
        from mimetic_jax.train.comparison import Comparison
        from mimetic_jax.train.store.places import Place

        for entry in entries:
            if entry.row.needs or set(entry.init) <= self._flops.get(entry.spec.key, {}).keys():
                continue
            config = entry.spec.load(entry.init)
            if config.members:
                continue
            arms = Comparison(config, lambda line: None).arms
            counted = {id(arm.program): arm.program for arm in arms.values()}
            of_step = {mark: flops_per_step(program) for mark, program in counted.items()}
            flops = {
                name: float(f"{arm.program.steps * of_step[id(arm.program)]:.3g}")
                for name, arm in arms.items()
            }
            self._flops.setdefault(entry.spec.key, {}).update(flops)
            text = json.dumps(dict(sorted(self._flops.items())), indent=1, sort_keys=True)
            (Place(COSTS.parent) / COSTS.name).write(text + "\n")
            say(f"{entry.table} row {entry.number}: {sum(flops.values()):.3g} FLOPs a seed")
