"""Hours of a whole training, on the devices at hand and on others: on paper."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

import jax
import jax.numpy as jnp

from mimetic_jax.analysis import scaling
from mimetic_jax.analysis.compile.target import Target
from mimetic_jax.train.arm import Arm

_SECONDS = 0.2  # of measuring


def product_speed() -> tuple[str, float]:
    """The device's kind, and FLOP/s of a product of two square matrices, on all devices.

    In bfloat16 on accelerators, in float32 on CPUs, as training is there.
    """
    device = jax.devices()[0]
    dtype, size = (jnp.float32, 1024) if device.platform == "cpu" else (jnp.bfloat16, 4096)
    matrix = jnp.ones((size, size), dtype)
    product = jax.jit(lambda a: a @ a)
    product(matrix).block_until_ready()
    began, times = time.perf_counter(), 0
    while time.perf_counter() - began < _SECONDS:
        product(matrix).block_until_ready()
        times += 1
    seconds = (time.perf_counter() - began) / times
    return device.device_kind, 2 * size**3 / seconds * jax.device_count()


def lines(arms: Iterable[tuple[Arm, float]], target: str) -> list[str]:
    """What the runs of all arms take together, for a plan.

    Args:
        arms: each with the FLOPs of its step.
        target: a name of `Target`, or "" for the devices at hand alone.
    """
    arms = list(arms)
    total = sum(_runs(arm) * arm.program.steps * flops for arm, flops in arms)
    kind, speed = product_speed()
    share = scaling.UTILIZATION
    found = [
        "",
        f"all {sum(_runs(arm) for arm, _ in arms):,} runs, {total:.3g} FLOPs, one after the other "
        "and without reading, testing and compiling:",
        f"  {duration(total / (share * speed))} on {jax.device_count()} {kind}, if a step reaches "
        f"{share:.0%} of a large product's {speed:.3g} FLOP/s, measured now",
    ]
    if target:
        chosen = Target.of(target)
        seconds = sum(_runs(arm) * arm.program.steps * _step(arm, f, chosen) for arm, f in arms)
        found.append(
            f"  {duration(seconds)} on {chosen.count} {chosen.chip.name}, if a step reaches "
            f"{share:.0%} of the peak: see docs/scaling.md"
        )
    return [
        *found,
        f"  The {share:.0%} are an assumption. Steps that wait for memory, for input or to be "
        "started take longer; --mode=compile counts what moves through memory.",
    ]


def _runs(arm: Arm) -> int:
    return arm.config.members or len(arm.config.seeds)


def _step(arm: Arm, flops: float, target: Target) -> float:
    """Seconds of a step: its products, or what it sends if that takes longer, and its update."""
    mesh = scaling.mesh_on(arm.config, target.count)
    if mesh is None or arm.config.members or scaling.transformer_sizes(arm.program) is None:
        half = jnp.dtype(arm.program.task.model.module.dtype).itemsize < 4
        peak = target.chip.flops if half else target.chip.flops32
        devices = target.count if arm.config.members or mesh is None else math.prod(mesh)
        return flops / (scaling.UTILIZATION * peak * devices)
    work = scaling.work(arm.program, arm.config, mesh, flops, flash=target.chip.flash)
    step = scaling.estimate(work, target.chip)
    return max(step.compute, step.communication) + step.update


def duration(seconds: float) -> str:
    """A duration in a unit that fits.

    >>> duration(90), duration(5400), duration(9e6)
    ('2 min', '1.5 h', '104 days')
    """
    if seconds < 3600:
        return f"{max(1, round(seconds / 60))} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:,.0f} days"
