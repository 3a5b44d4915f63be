"""Being told to stop at moments that a signal to a process can't be aimed at."""

from __future__ import annotations

import os
import signal

import pytest

from mimetic_jax.train.cluster import preemption
from mimetic_jax.train.compare import Comparison
from mimetic_jax.train.loop import Run
from mimetic_jax.train.program import Program


@pytest.fixture
def two_arms(tiny):
    config = tiny(**{"eval.every": 0})
    config.arms.default = {"scheme": ()}
    config.arms.mimetic = {}
    return config


def told_at_test(monkeypatch, number):
    """SIGTERM to this process while it tests for the so-manieth time."""
    original, tests = Program.test, []

    def test(self, params, data):
        tests.append(None)
        if len(tests) == number:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, params, data)

    monkeypatch.setattr(Program, "test", test)


def test_at_the_last_test_of_a_run_the_next_does_not_start(two_arms, tmp_path, monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    told_at_test(monkeypatch, 2)
    with pytest.raises(preemption.Preempted, match="between two runs"):
        Comparison(two_arms, say=lambda line: None).train(tmp_path)
    assert signal.getsignal(signal.SIGTERM) is before
    assert Run.of(tmp_path, "default", 0).finished()
    assert not Run.of(tmp_path, "mimetic", 0).directory.exists()
    assert "mimetic against default" in Comparison(two_arms, say=lambda line: None).train(tmp_path)


def test_at_the_first_test_it_stops_after_a_step(two_arms, tmp_path, monkeypatch):
    told_at_test(monkeypatch, 1)
    comparison = Comparison(two_arms, say=lambda line: None)
    with pytest.raises(preemption.Preempted, match="stopped at step 2, which is saved"):
        comparison.train(tmp_path)
    assert int(comparison.restored(Run.of(tmp_path, "default", 0)).step) == 2
