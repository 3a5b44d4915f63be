"""What a comparison would do, from shapes alone: nothing is compiled or computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from mimetic_jax.base.table import paragraph
from mimetic_jax.train.arm import Arm
from mimetic_jax.train.comparison import Comparison


def describe(comparison: Comparison) -> str:
    """What `--mode=plan` prints first: gains that it can show, steps, FLOPs, memory and writes."""
    config = comparison.config
    lines = [
        f"{config.name}: {comparison.info}",
        f"{len(comparison.arms)} arms x {_seeds(config.seeds)} on {jax.device_count()} "
        f"{jax.devices()[0].device_kind} device(s)",
        *filter(None, [comparison.shows()]),
    ]
    for name, arm in comparison.arms.items():
        lines += ["", f"arm {name}", *_lines(arm)]
    return "\n".join(paragraph(line, "      ") for line in lines)


def _seeds(seeds: Sequence[int]) -> str:
    """Says how many seeds there are and which, since `--config.seeds=8` is seed 8 alone.

    >>> _seeds((8,)), _seeds(range(256))
    ('1 seed (8)', '256 seeds (0, 1, 2, 3, ...)')
    """
    named = ", ".join([*map(str, seeds[:4]), *(["..."] if len(seeds) > 4 else [])])
    return f"{len(seeds)} seed{'s' * (len(seeds) > 1)} ({named})"


def _lines(arm: Arm) -> list[str]:
    program, config, flops = arm.program, arm.config, arm.program.flops_per_step
    per_epoch = program.feed.steps_per_epoch
    rates = [float(program.schedule(program.steps * i // 4)) for i in range(5)]
    parameters = sum(leaf.size for leaf in jax.tree.leaves(program.shapes.params))
    state = program.shapes
    memory = (
        f"  per device{' and run' if config.together > 1 else ''} on mesh "
        f"{dict(program.mesh.shape)}: parameters "
        f"{_megabytes(bytes_per_device((state.params, state.model_state, state.ema)))}, optimizer "
        f"{_megabytes(bytes_per_device(state.opt_state))}, data "
        f"{_megabytes(program.feed.data_bytes())}"
    )
    lines = [
        f"  {program.steps:,} steps of {program.batch} ({per_epoch:,} per epoch)",
        f"  {config.optimizer.schedule} learning rate, at quarters of training: "
        + ", ".join(f"{rate:.2e}" for rate in rates),
        f"  {parameters:,} parameters, {flops:.3g} FLOPs per step, "
        f"{program.steps * flops:.3g} in a run",
        memory,
    ]
    if config.scheme:
        lines += [
            "  writes:",
            *(f"  {row}" for row in str(program.plan(config.scheme)).splitlines()),
        ]
    return lines


def bytes_per_device(tree: Any) -> int:
    """Bytes of a tree of sharded shapes on each device."""
    return sum(
        int(np.prod(leaf.sharding.shard_shape(leaf.shape))) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
    )


def _megabytes(count: float) -> str:
    return f"{count / 2**20:,.1f} MiB"
