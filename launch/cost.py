"""What a row's training costs: FLOPs counted once, hours at the speed of the device at hand."""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Callable, Iterable

from launch.registry import Entry, Spec

COSTS = pathlib.Path(__file__).with_name("costs.json")
"""FLOPs of one run by comparison and arm, as XLA counts forward and backward passes."""

SHARE = 0.4
"""Of a matrix product's speed, which training is assumed to reach: an assumption."""


class Costs:
    """The counted FLOPs of runs."""

    def __init__(self, path: pathlib.Path = COSTS) -> None:
        self._path = path
        self._flops: dict[str, dict[str, float]] = (
            json.loads(path.read_text()) if path.exists() else {}
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
            (Place(self._path.parent) / self._path.name).write(text + "\n")
            say(f"{entry.table} row {entry.number}: {sum(flops.values()):.3g} FLOPs a seed")


def product_speed() -> tuple[str, float]:
    """The device's kind, and FLOP/s of a product of two square matrices, on all devices.

    In bfloat16 on accelerators, in float32 on CPUs, as training is there.
    """
    import jax
    import jax.numpy as jnp

    device = jax.devices()[0]
    dtype, size = (jnp.float32, 1024) if device.platform == "cpu" else (jnp.bfloat16, 4096)
    matrix = jnp.ones((size, size), dtype)
    product = jax.jit(lambda a: a @ a)
    product(matrix).block_until_ready()
    began, times = time.perf_counter(), 0
    while time.perf_counter() - began < 0.2:
        product(matrix).block_until_ready()
        times += 1
    seconds = (time.perf_counter() - began) / times
    return device.device_kind, 2 * size**3 / seconds * jax.device_count()
