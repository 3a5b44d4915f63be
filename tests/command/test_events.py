"""TensorBoard's files have the numbers of metrics.jsonl; a long training says how long it is."""

import json
import struct
import sys
import types

import pytest

from mimetic_jax.base.extras import MissingExtra
from mimetic_jax.command import progress
from mimetic_jax.command.progress import Events
from mimetic_jax.train.store.runs import Run


def scalars(path):
    """Step, name and value of each, by the format of TFRecord: length, CRC, bytes, CRC."""
    from tensorboardX.proto.event_pb2 import Event

    data, at = path.read_bytes(), 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        event = Event.FromString(data[at + 12 : at + 12 + length])
        if event.session_log.status == 1:
            yield event.step, "start", None
        yield from ((event.step, one.tag, one.simple_value) for one in event.summary.value)
        at += 16 + length


def test_each_run_has_its_numbers_at_their_steps(tmp_path):
    pytest.importorskip("tensorboardX")
    lines = {
        Run.of(tmp_path, arm, seed): [
            {"step": 0, "eval_loss": 2.5 + seed},
            {"step": 8, "loss": 0.5, "eval_loss": 0.25, "record": {"arm": arm}, "unknown": None},
        ]
        for arm, seed in (("default", 0), ("default", 1), ("mimetic", 0))
    }
    events = Events(str(tmp_path / "events"))
    for run, of in lines.items():
        for line in of:
            events.written(run, json.loads(json.dumps(line)))
    events.close()
    for run, of in lines.items():
        [file] = (tmp_path / "events" / run.arm / str(run.seed)).iterdir()
        assert list(scalars(file)) == [(0, "start", None)] + [
            (line["step"], name, value)
            for line in of
            for name, value in line.items()
            if isinstance(value, float)
        ]


def test_a_resumed_run_drops_what_a_killed_process_wrote(tmp_path):
    pytest.importorskip("tensorboardX")
    run = Run.of(tmp_path, "default", 0)
    kept = [{"step": step, "loss": step / 4} for step in (2, 4, 6)]
    for line in kept:
        run.metrics.append(line)
    events = Events(str(tmp_path / "events"))
    events.written(run, kept[-1])  # the first that the resumed process records
    events.close()
    [file] = (tmp_path / "events" / "default" / "0").iterdir()
    expected = [(2, "start", None), *((line["step"], "loss", line["loss"]) for line in kept)]
    assert list(scalars(file)) == expected


@pytest.mark.parametrize(
    ("steps", "trials", "said"),
    [
        (600, False, []),
        (4000, False, ["about 12 min for the 7,290 steps to come"]),
        (4000, True, ["at least about 25 min for the 15,290 steps to come"]),
    ],
)
def test_a_minute_of_steps_tells_how_long_the_rest_takes(
    tmp_path, monkeypatch, steps, trials, said
):
    """A tenth of a second for a step with the tests; compilations, 600 seconds, don't come again.
    Trials are followed by what is compared, 8,000 steps."""
    runs = [Run.of(tmp_path, "default", seed) for seed in (0, 1)]
    lines, clock = [], [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: clock[0])
    bar = progress.Progress()
    bar.say = lines.append
    arm = types.SimpleNamespace(program=types.SimpleNamespace(steps=steps))
    stage = types.SimpleNamespace(
        arms={"default": arm}, runs=lambda workdir: runs, tolerate_divergence=trials
    )
    with bar.of(stage, tmp_path, later=8000):
        for now, run, step in ((600, 0, 0), (630, 0, 300), (1230, 1, 0), (1231, 1, 10)):
            clock[0] = float(now)
            bar.moved(runs[run], {"step": step})
        assert lines == []
        for now, step in ((1241, 110), (1271, 410), (1281, 510)):
            clock[0] = float(now)
            bar.moved(runs[1], {"step": step})
    assert lines == said


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(MissingExtra, match=r"--tensorboard needs tensorboardX: pip install .*\["):
        Events("DIR")
