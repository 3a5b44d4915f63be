"""Where attention of each arm looks before training, by positions alone and in a batch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from mimetic_jax.analysis.attention import maps_by_example
from mimetic_jax.analysis.capture import Snapshot, initial
from mimetic_jax.base.errors import InputError
from mimetic_jax.base.table import aligned, paragraph
from mimetic_jax.schemes import Impulse
from mimetic_jax.schemes.base import as_tuple, inside
from mimetic_jax.train.arm import Arm
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.trained.aim import LARGEST, MOST, Aim, aim_on_grid
from mimetic_jax.trained.check import aims
from mimetic_jax.tree.rewrite import blocks
from mimetic_jax.weights.position import square_grid

EXAMPLES = 8
"""Test examples of the batch."""

_ROOM = 2**20
"""Weights of a head in all maps of the batch: fewer examples have long sequences."""

MOST_PARAMETERS = 30_000_000
"""Larger models aren't initialized to look at them."""


def describe(comparison: Comparison) -> str:
    """Return a table of the arms whose schemes write query and key, by first, middle and last
    layer.

    Columns are averages over heads: the share of rows whose largest weight is at their target, the
    weight there, and how many tokens a row attends to, exp of its entropy. The target is where an
    `Impulse` in the arm aims the head, whatever noise or permutation has become of it; without one,
    or if a key decides, the offset that most rows of the head have. The columns of a batch are
    there if the data is.
    """
    rows: list[tuple[str, ...]] = []
    weak: list[str] = []
    large: list[str] = []
    for arm in filter(_makes_maps, comparison.arms.values()):
        if _parameters(arm) > MOST_PARAMETERS:
            large.append(arm.name or "the run")
            continue
        hits = []
        for layer, (alone, batch) in _aims(comparison, arm):
            if not (known := batch or alone):
                continue
            cells = (each.cells() if each else ("", "", "") for each in (alone, batch))
            target = "own offset" if known.own else "impulse"
            rows.append((arm.name or "the run", str(layer), target, *itertools.chain(*cells)))
            hits.append(known.hits.mean())
        if hits and np.mean(hits) < MOST:
            weak.append(arm.name or "the run")
    unseen = (
        f"attention before training isn't computed in {', '.join(large)}: more than "
        f"{MOST_PARAMETERS:,} parameters"
    )
    if not rows:
        return paragraph(unseen) if large else ""
    head = ("arm", "layer", "target", "rows", "weight", "tokens", "rows", "weight", "tokens")
    over = ("", "", "", "positions alone", "", "", "batch", "", "")
    shown = [column for column in range(len(head)) if any(row[column] for row in rows)]
    lines = aligned([[row[column] for column in shown] for row in (over, head, *rows)])
    lines.insert(
        0,
        "attention before training: rows whose largest weight is at their target (where an impulse "
        "aims their head, or the offset of most of its rows), the weight there, tokens that a row "
        "attends to",
    )
    if weak:
        lines.append(f"fewer than half of the rows do in {', '.join(weak)}")
    lines += [unseen] if large else []
    return "\n".join(paragraph(line) if "  " not in line else line for line in lines)


def _makes_maps(arm: Arm) -> bool:
    program, scheme = arm.program, arm.config.scheme
    return bool(scheme) and any(
        write.role in ("query", "query_bias") for write in program.plan(scheme)
    )


def _parameters(arm: Arm) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(arm.program.shapes.params))


def _aims(comparison: Comparison, arm: Arm) -> Iterator[tuple[int, tuple[Aim | None, Aim | None]]]:
    """Number of a layer, and its aims by positions alone and in a batch."""
    try:
        network = Snapshot(arm, "initial", initial(comparison, arm).variables)
    except InputError:  # its scheme takes statistics of data that isn't here
        return
    params = jax.device_get(network.variables["params"])
    options = {**arm.program.rewrite_options, "grid": arm.program.task.grid()}
    targets, again = itertools.tee(_targets(arm, params))
    alone = [layer.aim for layer in aims(params, targets, **options)]
    batch = _of_batch(network, again) if arm.source.loaded else []
    if batch and len(alone) != len(batch):  # layers of which only one of the two knows
        alone = []
    depth = max(len(alone), len(batch))
    for layer in sorted({1, (depth + 1) // 2, depth}) if depth else ():
        yield layer, (alone[layer - 1] if alone else None, batch[layer - 1] if batch else None)


def _targets(arm: Arm, params: Any) -> Iterator[np.ndarray | None]:
    """By layer with a query: where the impulse in the last scheme that writes it aims its heads.

    Without an end, since a layer that is called twice has two maps.
    """
    schemes, grid = as_tuple(arm.config.scheme), arm.program.task.grid()
    layers = [
        block
        for _, _, block in blocks(params, **arm.program.rewrite_options)
        if block.keys() >= {"query", "key"}
    ]
    for layer, block in enumerate(layers):
        writers = [
            scheme
            for scheme in schemes
            if scheme.covers(layer, len(layers)) and "query" in scheme.writes(frozenset(block))
        ]
        impulses = [part for part in inside(writers[-1:]) if isinstance(part, Impulse)]
        heads = [block.shapes[role][1] for role in ("query", "key")]
        yield impulses[-1].targets(grid, *heads) if impulses and grid else None
    yield from itertools.repeat(None)


def _of_batch(network: Snapshot, targets: Iterator[np.ndarray | None]) -> list[Aim]:
    """By layer, averaged over examples; empty if no map can be read, or of too many tokens."""
    task = network.arm.program.task
    count = math.prod(task.grid() or task.input_shape[:1])
    if count > LARGEST:
        return []
    inputs = network.inputs(max(1, min(EXAMPLES, _ROOM // count**2)))
    try:
        (maps,) = maps_by_example(network.model, network.variables, [inputs])
    except Exception:  # a user's module may raise anything, and the plan is whole without it
        return []
    found = []
    for layer, wanted in zip(maps, targets, strict=False):
        patches, grid = _patches(layer, task.grid())
        each = aim_on_grid(patches, grid, wanted if grid == task.grid() else None)
        hits, weights, tokens = (x.mean(axis=0) for x in (each.hits, each.weights, each.tokens))
        found.append(Aim(hits, weights, tokens, each.own))
    return found


def _patches(maps: np.ndarray, grid: tuple[int, int] | None) -> tuple[np.ndarray, tuple[int, int]]:
    """Attention among patches, after class tokens or in a window, and their grid; or of a text."""
    count = maps.shape[-1]
    if grid is None:
        return maps, (1, count)
    if math.prod(grid) > count:  # windows
        grid = square_grid(count) or (1, count)
    among = maps[..., -math.prod(grid) :, -math.prod(grid) :]
    return among / among.sum(axis=-1, keepdims=True), grid
