"""Where runs start: the model's own draw, a run of ours, a pretrained file, or parts of these."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.version import source_version
from mimetic_jax.rules import paths
from mimetic_jax.train.arm import Arm
from mimetic_jax.train.config import to_json
from mimetic_jax.train.pretrained import by_path
from mimetic_jax.train.state import TrainState
from mimetic_jax.train.store import files
from mimetic_jax.train.store.checkpoint import Checkpoints
from mimetic_jax.train.store.claim import Provenance
from mimetic_jax.train.store.files import AnyPath, path_of
from mimetic_jax.train.store.runs import Run

_FILES = (".npz", ".safetensors")
_HEAD = r"(^|/)head/"

PARTS = {
    "attention": r"(^|/)attention/(query|key|value|out)/kernel$",
    "position": r"(^|/)pos_embed$",
    "layers": r"(^|/)(blocks|block_\d+)/",
}
"""Parts of a model that can be taken alone, as regular expressions over paths: the kernels of
attention (biases stay), the position table, and all layers, without patches, positions and head."""


def initial_state(arm: Arm, seed: int, say: Callable[[str], None]) -> TrainState:
    """The state before the first step of a run: model's draw, then `init_from`, then the scheme."""
    variables, config = arm.program.draw(seed), arm.config
    if source := config.init_from:
        variables = warm_start(variables, source, say, parts=config.init_parts)
    began = time.perf_counter()
    statistics = arm.program.task.data_statistics(
        config.scheme, functools.partial(arm.source.of_seed, seed)
    )
    if statistics and (seconds := time.perf_counter() - began) >= 0.1:
        say(f"{' and '.join(statistics)} of the training data in {seconds:.1f} s")
    return arm.program.initial_state(seed, config.scheme, variables, **statistics)


def provenance_of(arm: Arm, seed: int) -> Provenance:
    """What makes the checkpoints of a run."""
    return Provenance(
        code=source_version(),
        config=to_json(arm.config),
        data=arm.source.fingerprint,
        source=source_digest(arm.config.init_from),
        arm=arm.name,
        seed=seed,
    )


def source_digest(source: str | None) -> str | None:
    """12 hexadecimal digits that differ if the weights of an `init_from` do; None of no weights.

    A run that isn't finished is refused: it would give other weights later.
    """
    if not source:
        return None
    start = _Source.of(source)
    if start.file:
        return hashlib.sha256(files.read(start.place)).hexdigest()[:12]
    if start.step is None and not start.run.finished():
        raise InputError(
            f"init_from {start.place} isn't finished: finish it, or name one of its checkpoints, "
            f"{start.place}/checkpoints/STEP"
        )
    with _checkpoint(start.run, start.step) as (checkpoints, step):
        record = checkpoints.record(step)
    provenance = record.get("provenance") or record["made"]  # version 0.2.0
    # Training is exact: what made a checkpoint, and what its tests gave, tell its weights.
    lane = start.run.group.index(start.run)
    about = {
        "made": {**provenance[lane], "code": None},
        "evaluations": [[step, values[lane]] for step, values in record["evaluations"]],
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:12]


@dataclasses.dataclass(frozen=True)
class _Source:
    """What `init_from` names: a file, a run, or a checkpoint of a run."""

    place: AnyPath
    file: bool
    step: int | None = None

    @classmethod
    def of(cls, path: str) -> _Source:
        place = path_of(path)
        source = cls(place, file=place.suffix in _FILES)
        if place.parent.name == "checkpoints" and re.fullmatch("[0-9]+", place.name):
            source = cls(place.parent.parent, file=False, step=int(place.name))
        there = place if source.step is None else source.run.checkpoints / str(source.step)
        if not there.exists():
            raise InputError(f"init_from {place} doesn't exist")
        if not source.file and not source.run.began:
            raise InputError(
                f"init_from {place} is neither a run's folder (WORKDIR/runs/ARM/SEED) nor a "
                f"{' or '.join(_FILES)} file"
            )
        return source

    @property
    def run(self) -> Run:
        seed = int(self.place.name) if re.fullmatch("[0-9]+", self.place.name) else -1
        return Run(self.place.parent.name, seed, self.place)


def check_start(arm: Arm) -> list[str]:
    """What an arm's `init_from` gives it, in lines; an error if it doesn't fit the model."""
    said: list[str] = []
    if arm.config.init_from:
        variables = arm.program.shapes.variables
        _taken(variables, arm.config.init_from, said.append, arm.config.init_parts)
    return said


def warm_start(
    variables: dict[str, Any],
    source: str,
    say: Callable[[str], None],
    *,
    parts: Sequence[str] = (),
) -> dict[str, Any]:
    """Variables of a source of the same sizes; the head keeps its initial values.

    - the folder of a run, `WORKDIR/runs/ARM/SEED`, or of one of its checkpoints,
      `WORKDIR/runs/ARM/SEED/checkpoints/STEP`.
    - `.npz` or `.safetensors`, a pretrained ViT (see `pretrained.by_path`).

    `parts` are names in `PARTS`; none: everything but the head. A deeper source gives its first
    layers.

    Raises:
        InputError: the source lacks a parameter, or has it in another size.

    Reference: Mimetic Initialization of Self-Attention Layers, table 2 (attention and positions of
    a pretrained model).
    """
    taken = _taken(variables, source, say, parts)
    named, treedef = paths.flatten(variables)
    leaves = [
        jax.device_put(jnp.asarray(taken[name], leaf.dtype), leaf.sharding)
        if name in taken
        else leaf
        for name, leaf in named
    ]
    return jax.tree.unflatten(treedef, leaves)


def _taken(
    variables: dict[str, Any], source: str, say: Callable[[str], None], parts: Sequence[str]
) -> dict[str, Any]:
    """What `warm_start` takes of a source, by path, for variables of which shapes are enough."""
    start = _Source.of(source)
    named, _ = paths.flatten(variables)
    wanted = {name: leaf for name, leaf in named if not re.search(_HEAD, name)}
    if parts:
        chosen_parts = "|".join(PARTS[part] for part in parts)
        wanted = {name: leaf for name, leaf in wanted.items() if re.search(chosen_parts, name)}
    if start.file:
        arrays = by_path(start.place, variables["params"], say)
        stored = {f"params/{name}": array for name, array in arrays.items()}
    else:
        _, stored = trained_variables(start.run, start.step)
    for name, leaf in wanted.items():
        if name not in stored:
            seen = ", ".join(list(stored)[:4]) or "nothing"
            raise InputError(f"{source} has no {name} {leaf.shape}; it has {seen}, …")
        if stored[name].shape != leaf.shape:
            raise InputError(f"{name} is {stored[name].shape} in {source}, not {leaf.shape}")
    say(f"starts from {len(wanted)} of {len(named)} parameters of {source}")
    return {name: stored[name] for name in wanted}


def trained_variables(run: Run, step: int | None = None) -> tuple[int, dict[str, Any]]:
    """The step of a run's checkpoint, the newest unless given, and its variables by path."""
    group = run.group
    with _checkpoint(run, step) as (checkpoints, found):
        variables = dict(paths.flatten(checkpoints.variables(found))[0])
    if len(group) > 1:
        lane = group.index(run)
        variables = {path: leaf[lane] for path, leaf in variables.items()}
    return found, variables


@contextlib.contextmanager
def _checkpoint(run: Run, step: int | None) -> Iterator[tuple[Checkpoints, int]]:
    """The checkpoints of a run's group, and the step of the one that is named, else the newest."""
    none = InputError(f"{run} has no checkpoint in {run.folder}")
    if not (folder := run.checkpoints).exists():
        raise none
    with contextlib.closing(Checkpoints(folder)) as checkpoints:
        if not (steps := checkpoints.steps()):
            raise none
        yield checkpoints, steps[-1] if step is None else step
