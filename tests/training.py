"""Whole runs that print nothing, and runs that end in the middle."""

import contextlib
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
from jax.sharding import Mesh
from ml_collections import ConfigDict

from configs.default import default
from mimetic_jax.schemes import Mimetic, SinCos
from mimetic_jax.train import arm as arms
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.config import to_json
from mimetic_jax.train.journal import History, Journal
from mimetic_jax.train.program import Program
from mimetic_jax.train.schema import affecting
from mimetic_jax.train.state import TrainState
from mimetic_jax.train.store.runs import Run
from mimetic_jax.train.tasks import TASKS


def quiet(
    config: ConfigDict, say: Callable[[str], object] = lambda line: None, **own: Any
) -> Comparison:
    """The comparison, which prints nothing, with the programs of earlier ones that are the same.

    A program is the same for every run, as it is for all arms and seeds of a comparison: to trace
    it again takes longer than the run. Not for tests that change a program, or the files behind it.
    """
    with mock.patch.object(arms, "Program", programs):
        return Comparison(config, say=say, **own)


class Programs:
    """Makes programs and keeps the latest: one that is asked for again isn't made again."""

    def __init__(self, most: int = 12) -> None:
        self.kept: dict[Any, Program] = {}
        self.most = most

    def __call__(self, config: ConfigDict, task: Any, feed: Any, mesh: Mesh) -> Program:
        fields = json.dumps(affecting(to_json(config), "program"), sort_keys=True)
        key = fields, repr(getattr(task, "info", None)), mesh
        if key not in self.kept:
            self.kept[key] = Program(config, task, feed, mesh)
            if len(self.kept) > self.most:
                del self.kept[next(iter(self.kept))]  # the oldest, with its data and steps
        return self.kept[key]


programs: Any = Program
"""What makes the programs of `quiet`; a session of pytest has `Programs` here, see conftest.py."""

RATES = np.array([1e-3, 1.0], np.float32)
"""The highest of the schedule, and its factor: what a program's dispatch is called with."""


def program_of(config: ConfigDict, info: Any, mesh: Mesh) -> Program:
    """The program of an arm on described data."""
    return Program(config, *TASKS[config.task].build(config, info, mesh), mesh)


def tiny(**overrides: Any) -> ConfigDict:
    """A comparison small enough to train in a second."""
    config = default()
    config.name = "tiny"
    config.batch, config.steps, config.max_dispatch = 32, 12, 4
    config.model.width, config.model.depth, config.model.heads = 16, 1, 2
    config.optimizer.clip = 1.0
    config.optimizer.warmup = 2
    config.data.augment.crop = 1
    config.eval.batch, config.eval.every = 72, 4
    config.log_every, config.checkpoint_every = 2, 4
    config.scheme = (SinCos(), Mimetic())
    config.update_from_flattened_dict(overrides)
    return config


def trained(config: ConfigDict, workdir: pathlib.Path) -> TrainState:
    """The last state of the run of a comparison without arms."""
    comparison = quiet(config)
    comparison.train(workdir)
    return comparison.restored(Run.of(workdir, "run", 0))


def evaluations(run: Run) -> list[dict[str, Any]]:
    """The lines of a run's tests, in order."""
    return [line for line in run.metrics.read() if "eval_count" in line]


def unclocked(run: Run) -> list[dict[str, Any]]:
    """The lines of a run without what a clock says, and without its Record."""
    clocks = ("seconds", "examples_per_second", "record")
    return [{k: v for k, v in line.items() if k not in clocks} for line in run.metrics.read()]


class _Killed(BaseException):
    pass


@contextlib.contextmanager
def killed(after: int) -> Iterator[None]:
    """Kill the run inside the block, as a signal would, once it has taken more steps than these."""
    original = Journal.count_steps

    def count_steps(self: Journal, history: History, seconds: float) -> dict[Run, str]:
        wrong = original(self, history, seconds)
        if self.step > after:
            raise _Killed
        return wrong

    with mock.patch.object(Journal, "count_steps", count_steps), pytest.raises(_Killed):
        yield
