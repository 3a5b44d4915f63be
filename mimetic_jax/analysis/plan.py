"""What a comparison would do, from shapes alone: nothing is compiled or computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from mimetic_jax.base.chips import CHIPS, Target
from mimetic_jax.base.errors import blaming
from mimetic_jax.base.table import duration, paragraph
from mimetic_jax.train import rates
from mimetic_jax.train.arm import Arm
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.start import check_start
from mimetic_jax.tree.rewrite import Plan


def describe(comparison: Comparison, target: Target | None = None) -> str:
    """Return what `--mode=plan` prints first: gains that it can show, steps, FLOPs, memory and
    writes.

    What all arms have in common is printed once.
    """
    config = comparison.config
    lines = [
        f"{config.name}: {comparison.info}",
        f"{len(comparison.arms)} arms x {_seeds(config.seeds)} on {jax.device_count()} "
        f"{target.chip if target else jax.devices()[0].device_kind} device(s)",
        *filter(None, [comparison.detectable_gain()]),
    ]
    if searching := rates.searching(config):
        trials = rates.describe_trials(rates.ladder(config), len(searching), config.task)
        lines.append(trials + rates.HOW_TO_CHOOSE)
    elif config.rates:  # one for all
        comparison = comparison.alike(rates.at_rates(config, rates.known_rates(config)))
    plans = {
        name: arm.program.plan(arm.config.scheme)
        for name, arm in comparison.arms.items()
        if arm.config.scheme
    }
    lines += _on_the_curve(comparison.arms, plans)
    starts = {name: _start(name, arm) for name, arm in comparison.arms.items()}
    by_arm = {name: _lines(arm) for name, arm in comparison.arms.items()}
    shared = [
        line for line in next(iter(by_arm.values())) if all(line in x for x in by_arm.values())
    ]
    lines += ["", "every arm" if len(by_arm) > 1 else "the run", *shared]
    for name in comparison.arms:
        own = [line for line in by_arm[name] if line not in shared] + starts[name]
        if name in plans:
            own += ["  writes:", *(f"  {row}" for row in str(plans[name]).splitlines())]
        elif not starts[name]:
            own.append("  as the model draws it")
        lines += ["", f"arm {name}", *own]
    return "\n".join(paragraph(line, "      ") for line in lines)


def _seeds(seeds: Sequence[int]) -> str:
    """Says how many seeds there are and which, since `--config.seeds=8` is seed 8 alone.

    >>> _seeds((8,)), _seeds(range(256))
    ('1 seed (8)', '256 seeds (0, 1, 2, 3, ...)')
    """
    named = ", ".join(map(str, seeds[:4])) + (", ..." if len(seeds) > 4 else "")
    return f"{len(seeds)} {'seeds' if len(seeds) > 1 else 'seed'} ({named})"


def _start(name: str, arm: Arm) -> list[str]:
    with blaming(f"arm {name}"):
        return [f"  {line}" for line in check_start(arm)]


def _lines(arm: Arm) -> list[str]:
    program, config, flops = arm.program, arm.config, arm.program.flops_per_step
    per_epoch = program.feed.steps_per_epoch
    rates = [float(program.schedule(arm.peak, program.steps * i // 4)) for i in range(5)]
    parameters = sum(leaf.size for leaf in jax.tree.leaves(program.shapes.params))
    state = program.shapes
    memory = (
        f"  per device{' and run' if config.together > 1 else ''} on mesh "
        f"{dict(program.mesh.shape)}: parameters "
        f"{_megabytes(bytes_per_device((state.params, state.model_state, state.ema)))}, optimizer "
        f"{_megabytes(bytes_per_device(state.opt_state))}, data "
        f"{_megabytes(program.feed.data_bytes())}"
    )
    return [
        f"  {program.steps:,} steps of {program.batch} ({per_epoch:,} per epoch)",
        f"  {config.optimizer.schedule} learning rate, at quarters of training: "
        + ", ".join(f"{rate:.2e}" for rate in rates),
        f"  {parameters:,} parameters, {flops:.3g} FLOPs per step, "
        f"{program.steps * flops:.3g} in a run",
        memory,
    ]


_MEASURED = (
    "perplexity 230 → 167 at 41, bits per byte 1.947 → 1.853 at 100 and 1.755 → 1.714 at 400"
)
"""What embeddings from counts gained in small models, by how many tokens the training saw for each
of the vocabulary: docs/first_layer.md."""


def _on_the_curve(arms: Mapping[str, Arm], plans: Mapping[str, Plan]) -> list[str]:
    """Where runs with embeddings from counts stand among those that were measured."""
    seen = set[float]()
    for name, plan in plans.items():
        program, length = arms[name].program, arms[name].config.data.get("length", 0)
        for write in plan:
            if write.role == "embedding" and "Cooccurrence" in write.scheme:
                seen.add(program.steps * program.batch * length / write.shape[0])
    return [
        f"a run sees {share:,.0f} tokens per token of the vocabulary: embeddings from counts "
        f"changed {_MEASURED} in small models, of texts that were read once at most; on a small "
        "one that was read eight times they lost (docs/first_layer.md)"
        for share in sorted(seen)
    ]


_UTILIZATION = (0.13, 0.4)
"""The shares of its peak that a chip may reach: that of small models on one GPU in
results/speed.md, and that of large ones."""


def on_target(comparison: Comparison, target: Target) -> str:
    """Return how long a comparison trains on other hardware and what it holds there, by their
    peaks."""
    config, chip = comparison.config, CHIPS[target.chip]
    programs = [arm.program for arm in comparison.arms.values()]
    tries, searching = len(rates.ladder(config).first), rates.searching(config)
    flops = sum(
        (len(config.seeds) + tries * (name in searching)) * program.steps * program.flops_per_step
        for name, program in zip(comparison.arms, programs, strict=True)
    )
    at_peak = flops / (chip.flops * target.count)
    longest, shortest = (duration(at_peak / share, rounded=True) for share in _UTILIZATION)
    held = max(bytes_per_device(program.shapes) + program.feed.data_bytes() for program in programs)
    lines = [
        f"{target.count} x {target.chip}, at {_UTILIZATION[1]:.0%} to {_UTILIZATION[0]:.0%} of "
        f"their peak of {chip.flops / 1e12:,.0f} TFLOP/s: {shortest} to {longest} for all runs; "
        "input and tests come on top",
        f"memory: {held / 1e9:.2g} of {chip.memory / 1e9:.0f} GB per chip for parameters, "
        "optimizer and data; `mimetic compile --target` adds the activations",
    ]
    return "\n".join(paragraph(line, "      ") for line in lines)


def bytes_per_device(tree: Any) -> int:
    """Bytes of a tree of sharded shapes on each device."""
    return sum(
        int(np.prod(leaf.sharding.shard_shape(leaf.shape))) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
    )


def _megabytes(count: float) -> str:
    return f"{count / 2**20:,.1f} MiB"
