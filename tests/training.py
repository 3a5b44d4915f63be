"""Whole runs without a word, and runs that end in the middle."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
from jax.sharding import Mesh
from ml_collections import ConfigDict

from mimetic_jax.train import books, compare
from mimetic_jax.train.compare import Comparison
from mimetic_jax.train.program import Program
from mimetic_jax.train.state import TrainState
from mimetic_jax.train.workdir.runs import Run


def quiet(config: ConfigDict, say: Callable[[str], object] = lambda line: None) -> Comparison:
    """The comparison, without a word, with the programs of those before it that are the same.

    A program is the same for every run, as it is for all arms and seeds of a comparison: to trace
    it again takes longer than the run. Not for tests that change a program, or the files behind it.
    """
    with mock.patch.object(compare, "Program", _program):
        return Comparison(config, say=say)


def _program(config: ConfigDict, info: Any, mesh: Mesh) -> Program:
    key = compare._program_key(config), repr(info), mesh
    if key not in _PROGRAMS:
        _PROGRAMS[key] = Program(config, info, mesh)
        if len(_PROGRAMS) > _KEPT:
            del _PROGRAMS[next(iter(_PROGRAMS))]  # the oldest, with its data and compiled steps
    return _PROGRAMS[key]


_PROGRAMS: dict[Any, Program] = {}
_KEPT = 12


def trained(config: ConfigDict, workdir: pathlib.Path) -> TrainState:
    """The last state of the run of a comparison without arms."""
    comparison = quiet(config)
    comparison.train(workdir)
    return comparison.restored(Run.of(workdir, "run", 0))


class _Killed(BaseException):
    pass


@contextlib.contextmanager
def killed(after: int) -> Iterator[None]:
    """Kill the run inside the block, as a signal would, once it has taken more steps than these."""
    original = books._check_finite

    def check(run: Run, first: int, history: Any, *rest: Any) -> None:
        original(run, first, history, *rest)
        if first + len(history["loss"]) > after:
            raise _Killed

    with mock.patch.object(books, "_check_finite", check), pytest.raises(_Killed):
        yield
