import io
import re
import sys

import pytest

from mimetic_jax.train import progress
from mimetic_jax.train.progress import LiveLine, Progress, progress_of
from tests.training import quiet


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def now(monkeypatch):
    """A clock to set, in seconds."""
    clock = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: clock[0])
    return clock


def shown(terminal):
    """What has been the live line so far, and the lines that stay."""
    drawn = [part.strip() for part in re.split(r"[\r\n]|\x1b\[\w", terminal.getvalue())]
    return [part for part in drawn if "|" in part], [p for p in drawn if p and "|" not in p]


def test_estimates_are_of_this_run_and_of_all(now):
    line = LiveLine(terminal := Terminal())
    line.prepare("[1/3] default seed 0", waiting=400)
    line.now("compiling")
    now[0] = 100  # of compiling, which says nothing about the steps to come
    line.begin(0, 200)
    now[0] = 110
    line.at(50, "step 50/200  loss 1.5000", "640 images/s")
    line.say("a line that stays")
    line.end()
    live, lines = shown(terminal)
    assert any("[1/3] default seed 0  compiling …" in text for text in live)
    at = "step 50/200  loss 1.5000  ETA 0:30, all runs 1:50  640 images/s"  # 30 s and 400 of .2 s
    assert live[-1].startswith("25 %|#")
    assert live[-1].endswith(f"| [1/3] default seed 0  {at}")
    assert lines == ["a line that stays"]
    line.prepare("[2/3] default seed 1", waiting=200)
    line.begin(100, 200)
    now[0] = 130  # a slower run, of which half was trained before
    line.at(150, "step 150/200", "")
    line.say("another")  # which draws the live line again
    live, _ = shown(terminal)
    assert "ETA 0:20, all runs 1:20" in live[-1]  # 20 s and 200 of 30 s / 100
    line.end()
    line.say("after all")
    assert terminal.getvalue().endswith("after all\n")


def test_only_a_terminal_has_a_live_line(monkeypatch):
    assert type(progress_of(print)) is Progress  # pytest captures
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert isinstance(progress_of(print), LiveLine)
    assert not progress_of(print).live  # while nothing trains
    said = []
    plain = progress_of(said.append)
    plain.prepare("", 0)
    plain.now("compiling")
    plain.say("a line")
    assert said == ["a line"]


def test_a_run_on_a_terminal(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    quiet(tiny(), print).train(tmp_path)
    live, lines = shown(terminal)
    assert lines[0] == "[1/1] run seed 0: starts"
    assert not any("ETA" in line for line in lines)
    assert any(line.startswith("step     12/12  test accuracy") for line in lines)
    assert all("| [1/1] run seed 0  " in text for text in live)
    doing = ("preparing …", "compiling …", "testing …", "/12  loss ", "writing a checkpoint")
    for words in doing:
        assert any(words in text for text in live), words


@pytest.mark.slow
def test_runs_that_train_together_share_the_live_line(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    quiet(tiny(seeds=(0, 1), together=2, scheme=()), print).train(tmp_path)
    live, lines = shown(terminal)
    assert any("[1/2] run seed 0 and 1 more  step 6/12  loss " in text for text in live)
    assert lines[0] == "[1/2] run seed 0 and 1 more: starts"
    assert not any("ETA" in line for line in lines)
    assert any(re.match(r"step     12/12  accuracy % [\d.]+ ± [\d.]+$", line) for line in lines)
