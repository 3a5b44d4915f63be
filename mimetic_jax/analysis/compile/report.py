"""What `--mode=compile` prints."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence

from mimetic_jax.analysis.compile.kernels import MODULES, Kernel
from mimetic_jax.analysis.compile.remedy import remedy
from mimetic_jax.analysis.compile.roofline import Part, parts, roofline, sending
from mimetic_jax.analysis.compile.steps import (
    Compiled,
    OutOfMemoryError,
    members_at_once,
    test_step,
    train_step,
)
from mimetic_jax.analysis.compile.target import Target
from mimetic_jax.train.arm import Arm
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.program import Program

_KINDS, _LARGEST = 8, 5
"""Kinds of kernels and temporaries that are listed."""

_GATHERED = 1e5
"""Slices in a step from which gathers are reported: a TPU takes them one by one."""


def describe(comparison: Comparison, target: Target) -> Iterator[str]:
    """Compile each program of a comparison, and describe it as soon as it is compiled.

    Args:
        comparison: on the target's devices.
        target: that it is compiled for.
    """
    described: list[Program] = []
    for arm in comparison.arms.values():
        if arm.program not in described:
            described.append(arm.program)
            yield "\n".join(_lines(arm, target))


def _lines(arm: Arm, target: Target) -> Iterator[str]:
    program, config = arm.program, arm.config
    members = members_at_once(config, program)
    axes = ", ".join(f"{name} {size}" for name, size in program.mesh.shape.items())
    several = f", {members} members at once" if config.members else ""
    yield (
        f"{config.name}, arm {arm.name}, for {target.count} {target.chip.name} ({axes}){several}: "
        f"{target.compiler}"
    )
    for training, compiling in ((True, train_step), (False, test_step)):
        try:
            compiled = compiling(program, members)
        except OutOfMemoryError as error:
            yield remedy(arm, target, error.bytes, members, training=training)
            continue
        examples = program.task.per_step * members if training else 0
        name = "training step" if training else "evaluation of a batch"
        yield from _step(program, target, name, compiled, examples)
        if compiled.bytes > target.chip.memory:
            yield remedy(arm, target, compiled.bytes, members, training=training)


def _step(
    program: Program, target: Target, name: str, compiled: Compiled, examples: int
) -> Iterator[str]:
    chip, kernels = target.chip, compiled.kernels
    found = roofline(kernels, chip, target.count)
    rate = f" = {examples / found.seconds:,.0f} {program.task.unit}/s" if examples else ""
    yield (
        f"  {name}: at best {1e3 * found.seconds:.3g} ms{rate}, bound by {found.bound}; compiled "
        f"in {compiled.seconds:.0f} s"
    )
    yield (
        f"    memory per device: {compiled.bytes / 1e9:.3g} of "
        f"{chip.memory / 1e9:.0f} GB, state and data {compiled.held / 1e9:.3g}, temporaries "
        f"{compiled.temporary / 1e9:.3g}"
    )
    moved = sum(k.times * k.bytes for k in kernels)
    multiplied = sum(k.times * k.flops.total for k in kernels)
    yield (
        f"    moves {moved / 2**30:.3g} GiB: {1e3 * found.memory:.3g} ms; multiplies "
        f"{multiplied / 1e12:.3g} TFLOP: {1e3 * found.arithmetic:.3g} ms; sends for "
        f"{1e3 * found.links:.3g} ms"
    )
    yield from _collectives(kernels, target)
    gathered = sum(k.times * k.gathered for k in kernels)
    if gathered >= _GATHERED:
        yield f"    gathers {gathered:,.0f} slices"
    by_module = {part.name: part for part in parts(kernels, chip, lambda k: k.module)}
    yield from _table("module", [by_module[m] for m in MODULES if m in by_module])
    by_kind = parts(kernels, chip, lambda k: k.kind)
    yield from _table("kind of kernel", by_kind[:_KINDS])
    yield "    largest temporaries:"
    yield from _largest(kernels)


def _collectives(kernels: Sequence[Kernel], target: Target) -> Iterator[str]:
    groups = collections.defaultdict(list)
    for kernel in kernels:
        if kernel.sent and kernel.sent.size > 1:
            groups[kernel.sent.kind, kernel.sent.size].append(kernel)
    for (kind, size), group in groups.items():
        count = sum(k.times for k in group)
        payload = sum(k.times * k.sent.bytes for k in group if k.sent)
        seconds = sum(k.times * sending(k.sent, target.chip, target.count) for k in group if k.sent)
        yield (
            f"    {count} {kind} of {payload / 2**20:,.1f} MiB among {size}: {1e3 * seconds:.3g} ms"
        )


def _table(title: str, rows: Sequence[Part]) -> Iterator[str]:
    yield f"    {title:<34} {'GiB':>8} {'GFLOP':>10} {'ms':>8}"
    for row in rows:
        yield (
            f"      {row.name[:32]:<32} {row.bytes / 2**30:8.3f} {row.flops / 1e9:10.1f} "
            f"{1e3 * row.seconds:8.3f}"
        )


def _largest(kernels: Sequence[Kernel]) -> Iterator[str]:
    made: dict[tuple[float, str], list[Kernel]] = {}
    for kernel in kernels:
        for array in kernel.made:
            made.setdefault((array.bytes, str(array)), []).append(kernel)
    for (size, shape), group in sorted(made.items(), key=lambda item: -item[0][0])[:_LARGEST]:
        where = group[0].scope.removeprefix("jit(_run_steps)/while/body/") or group[0].kind
        more = f" and {len(group) - 1} more" if len(group) > 1 else ""
        yield f"      {size / 2**20:9,.1f} MiB {shape} {where}{more}"
