"""Whole runs without a word, and runs that end in the middle."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from ml_collections import ConfigDict

from mimetic_jax.train import books
from mimetic_jax.train.compare import Comparison
from mimetic_jax.train.state import TrainState
from mimetic_jax.train.workdir.runs import Run


def quiet(config: ConfigDict) -> Comparison:
    return Comparison(config, say=lambda line: None)


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
