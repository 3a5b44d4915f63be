"""Being told to stop at moments that a signal to a process can't be aimed at."""

import ctypes
import itertools
import os
import signal
import sys
import threading

import jax
import numpy as np
import pytest

from mimetic_jax import InputError
from mimetic_jax.train.cluster import preemption, processes
from mimetic_jax.train.program import Program
from mimetic_jax.train.store.runs import Run
from tests.training import quiet


@pytest.fixture
def two_arms(tiny):
    config = tiny(**{"eval.every": 0})
    config.arms.default = {"scheme": ()}
    config.arms.mimetic = {}
    return config


@pytest.fixture
def handlers():
    """Python's own handlers; a test in the background may have begun with others."""
    own = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, handler) for number, handler in own.items()}
    yield lambda: {number: signal.getsignal(number) for number in own}
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_for_a_stop(handlers, number):
    before = handlers()
    for _ in range(2):
        with preemption.listening():
            assert not preemption.should_stop()
            os.kill(os.getpid(), number)
            assert preemption.should_stop()
        assert handlers() == before
        assert not preemption.should_stop()


def test_ctrl_c_is_answered_while_python_handles_no_signals(handlers, monkeypatch):
    """As in a compiler: here the main thread waits in C until it is answered."""
    answered, said = os.pipe()
    press = threading.Thread(
        target=lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    )
    with os.fdopen(answered), os.fdopen(said, "w") as stderr, preemption.listening():
        monkeypatch.setattr(sys, "stderr", stderr)
        press.start()
        text = ctypes.create_string_buffer(200)
        ctypes.CDLL(None).read(answered, text, 200)
        assert b"Ctrl-C again stops without saving" in text.value
        assert preemption.should_stop()
        press.join()


@pytest.mark.parametrize("first", [[], [signal.SIGTERM]])
def test_a_second_ctrl_c_ends_at_once(handlers, first):
    before = handlers()

    def press(numbers):
        with preemption.listening():
            for number in numbers:
                os.kill(os.getpid(), number)
                assert preemption.should_stop()
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        press([*first, signal.SIGINT])
    assert handlers() == before
    assert not preemption.should_stop()


def test_other_threads_leave_the_signals_alone(handlers):
    before, inside = handlers(), []

    def listen():
        with preemption.listening():
            inside.append(handlers())

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert inside == [before]


def test_a_signal_that_is_ignored_stays_so(handlers):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with preemption.listening():
        os.kill(os.getpid(), signal.SIGINT)
        assert not preemption.should_stop()
    assert handlers()[signal.SIGINT] is signal.SIG_IGN


def test_ctrl_c_of_one_of_several_processes_is_a_sigterm(handlers, monkeypatch):
    """JAX has its own handler of SIGTERM there, and tells the others."""
    told = []
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with preemption.listening():
        os.kill(os.getpid(), signal.SIGINT)
        assert told == [signal.SIGTERM]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def told_at_test(monkeypatch, number, told=signal.SIGTERM):
    """A signal to this process while it tests for the so-manieth time."""
    original, tests = Program.evaluate, itertools.count(1)

    def evaluate(self, *arguments):
        if next(tests) == number:
            os.kill(os.getpid(), told)
        return original(self, *arguments)

    monkeypatch.setattr(Program, "evaluate", evaluate)


@pytest.mark.slow
def test_at_the_last_test_of_a_run_the_next_does_not_start(two_arms, tmp_path, monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    told_at_test(monkeypatch, 2)
    with pytest.raises(preemption.Preempted, match="between two runs"):
        quiet(two_arms).train(tmp_path)
    assert signal.getsignal(signal.SIGTERM) is before
    assert Run.of(tmp_path, "default", 0).finished()
    assert not Run.of(tmp_path, "mimetic", 0).folder.exists()
    assert "| Δ default" in str(quiet(two_arms).train(tmp_path))


def test_at_the_first_test_it_stops_after_a_step(two_arms, tmp_path, monkeypatch, handlers):
    """By Ctrl-C, and with no other checkpoint than of the last step."""
    two_arms.checkpoint_every = 0
    told_at_test(monkeypatch, 1, signal.SIGINT)
    comparison = quiet(two_arms)
    with pytest.raises(preemption.Preempted, match="stopped at step 2, which is saved"):
        comparison.train(tmp_path)
    assert int(comparison.restored(Run.of(tmp_path, "default", 0)).step) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("host:1", None, None, False), "host:1, None and None"),
        ((None, 2, 0, False), "needs all of --coordinator"),
        (("host:1", 2, 2, False), "process_id 2 is not one of 2 processes"),
        (("host:1", 2, 0, True), "not both"),
    ],
)
def test_joining_by_halves(arguments, words):
    with pytest.raises(InputError, match=words):
        processes.join(*arguments)


def test_the_process_that_differs_is_named(monkeypatch):
    def gather(digests):
        others = np.repeat(digests[None], 3, axis=0)
        others[2, 1] += 1
        return others

    monkeypatch.setattr(processes.jax, "process_count", lambda: 3)
    monkeypatch.setattr(processes.multihost_utils, "process_allgather", gather)
    with pytest.raises(InputError, match="the code of process 2 differs from that of process 0"):
        processes.check_processes_agree(config={"a": 1}, code="0.1", data=["digits"])
