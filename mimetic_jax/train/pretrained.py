"""Weights that runs continue from: those of a finished run, or of a file."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mimetic_jax.base.errors import InputError
from mimetic_jax.rules import paths
from mimetic_jax.train import vit_files
from mimetic_jax.train.store import files
from mimetic_jax.train.store.checkpoint import Checkpoints
from mimetic_jax.train.store.files import AnyPath, path_of
from mimetic_jax.train.store.runs import Run

_HEAD = r"(^|/)head/"

PARTS = {
    "attention": r"(^|/)attention/(query|key|value|out)/kernel$",
    "position": r"(^|/)pos_embed$",
}
"""Parts of a model that can be loaded alone, as regular expressions over paths: the kernels of
attention, without biases, and the position table."""


class Pretrained:
    """The weights that `init_from` names, which are read once for all runs.

    Args:
        path: the folder of a run, `WORKDIR/runs/ARM/SEED`; or a file of a ViT, .npz of AugReg or
            .safetensors of timm.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    @functools.cached_property
    def _place(self) -> AnyPath:
        """The path, checked."""
        place = path_of(self.path)
        if not place.exists():
            raise InputError(f"init_from {place} doesn't exist")
        if self._is_file:
            return place
        if not (run := _run(place)).began:
            raise InputError(
                f"init_from {place} is neither a run's folder (WORKDIR/runs/ARM/SEED) nor a "
                f"{' or '.join(vit_files.SUFFIXES)} file"
            )
        if not run.finished():  # it would have other weights later
            raise InputError(f"init_from {place} isn't finished: train it to its end first")
        return place

    @property
    def _is_file(self) -> bool:
        return path_of(self.path).suffix in vit_files.SUFFIXES

    @functools.cached_property
    def digest(self) -> str:
        """12 hexadecimal digits that differ if the weights do."""
        if self._is_file:
            return hashlib.sha256(files.read(self._place)).hexdigest()[:12]
        run = _run(self._place)
        with _newest(run) as (checkpoints, step):
            record = checkpoints.record(step)
        # Training is exact: what made a checkpoint, and what its tests gave, tell its weights.
        lane = run.group.index(run)
        about = {
            "made": {**record["provenance"][lane], "code": None},
            "evaluations": [[step, values[lane]] for step, values in record["evaluations"]],
        }
        return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:12]

    @functools.cached_property
    def _tensors(self) -> Mapping[str, Any]:
        """All arrays by path: those of a file as `read_vit` returns them."""
        if self._is_file:
            return vit_files.read_vit(self._place)
        return trained_variables(_run(self._place))[1]

    def arrays_for(
        self, variables: Mapping[str, Any], say: Callable[[str], None], parts: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Select what replaces a model's variables, by path.

        A deeper network gives its first layers.

        Args:
            variables: of the model; shapes are enough.
            say: prints a line.
            parts: names in `PARTS`; by default everything but the head.

        Raises:
            InputError: a parameter isn't there, or has another size.

        Reference: Mimetic Initialization of Self-Attention Layers, table 2 (attention and positions
        of a pretrained model).
        """
        named, _ = paths.flatten(variables)
        wanted = {name: leaf for name, leaf in named if not re.search(_HEAD, name)}
        if parts:
            either = "|".join(PARTS[part] for part in parts)
            wanted = {name: leaf for name, leaf in wanted.items() if re.search(either, name)}
        stored = self._tensors
        if self._is_file:
            arrays = vit_files.fit_vit(stored, variables["params"], say)
            stored = {f"params/{name}": array for name, array in arrays.items()}
        for name, leaf in wanted.items():
            if name not in stored:
                seen = ", ".join(list(stored)[:4]) or "nothing"
                raise InputError(f"{self.path} has no {name} {leaf.shape}; it has {seen}, …")
            if stored[name].shape != leaf.shape:
                raise InputError(f"{name} is {stored[name].shape} in {self.path}, not {leaf.shape}")
        say(f"starts from {len(wanted)} of {len(named)} parameters of {self.path}")
        return {name: stored[name] for name in wanted}


def trained_variables(run: Run) -> tuple[int, dict[str, Any]]:
    """Read the step of a run's newest checkpoint, and its variables by path."""
    group = run.group
    with _newest(run) as (checkpoints, step):
        variables = dict(paths.flatten(checkpoints.variables(step))[0])
    if len(group) > 1:
        lane = group.index(run)
        variables = {path: leaf[lane] for path, leaf in variables.items()}
    return step, variables


def _run(place: AnyPath) -> Run:
    seed = int(place.name) if re.fullmatch("[0-9]+", place.name) else -1
    return Run(place.parent.name, seed, place)


@contextlib.contextmanager
def _newest(run: Run) -> Iterator[tuple[Checkpoints, int]]:
    """The checkpoints of a run's group, and the step of the newest."""
    none = InputError(f"{run} has no checkpoint in {run.folder}")
    if not (folder := run.checkpoints).exists():
        raise none
    with contextlib.closing(Checkpoints(folder)) as checkpoints:
        if not (steps := checkpoints.steps()):
            raise none
        yield checkpoints, steps[-1]
