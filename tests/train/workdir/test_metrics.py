from __future__ import annotations

import json

import pytest

from mimetic_jax import InputError
from mimetic_jax.train.workdir.metrics import MetricsFile
from mimetic_jax.train.workdir.paths import as_path, in_bucket, write_atomically


def test_append_read_rewind(tmp_path):
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    assert metrics.read() == []
    metrics.rewind(0)
    for step in (2, 4, 6):
        metrics.append({"step": step, "loss": step / 10})
    metrics.rewind(4)
    assert [record["step"] for record in metrics.read()] == [2, 4]


def test_a_torn_last_line_is_ignored_and_gone_after_rewind(tmp_path):
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    metrics.append({"step": 2})
    with metrics.path.open("a") as file:
        file.write('{"step": 4, "lo')
    assert metrics.read() == [{"step": 2}]
    metrics.rewind(10)
    metrics.append({"step": 4})
    assert metrics.read() == [{"step": 2}, {"step": 4}]


LINES = [json.dumps({"step": step, "loss": 0.5}).encode() for step in range(6)]


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"<<<< mine",
        b'{"step": 3, "lo',
        b"[]",
        b"3",
        b'{"loss": 0.5}',
        b'{"step": "3"}',
        b"\xff",
    ],
)
@pytest.mark.parametrize("at", [0, 3, 5])
def test_a_damaged_line_is_named_and_nothing_is_deleted(tmp_path, at, bad):
    """A torn line is the last, and has no end; every other one that can't be read is damage."""
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    lines = [*LINES[:at], bad, *LINES[at + 1 :]]
    metrics.path.write_bytes(b"\n".join(lines) + b"\n")
    before = metrics.path.read_bytes()
    for call in (metrics.read, lambda: metrics.rewind(9)):
        with pytest.raises(InputError, match=rf"metrics\.jsonl line {at + 1} is damaged"):
            call()
    assert metrics.path.read_bytes() == before


@pytest.mark.parametrize("length", [1, 5, len(LINES[-1]) - 1, len(LINES[-1])])
def test_a_torn_last_line_loses_no_other(tmp_path, length):
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    metrics.path.write_bytes(b"\n".join([*LINES[:-1], LINES[-1][:length]]))
    metrics.rewind(9)
    whole = len(LINES) if length == len(LINES[-1]) else len(LINES) - 1
    assert metrics.path.read_bytes().count(b"\n") == whole
    assert metrics.read() == [json.loads(line) for line in LINES[:whole]]


@pytest.mark.parametrize("digits", [(b"0.125", b"0.725"), (b'"step": 4', b'"step": 5')])
def test_a_changed_digit_is_damage(tmp_path, digits):
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    metrics.append({"step": 4, "loss": 0.125})
    assert metrics.read() == [{"step": 4, "loss": 0.125}]
    metrics.path.write_bytes(metrics.path.read_bytes().replace(*digits))
    with pytest.raises(InputError, match=r"metrics\.jsonl line 1 is damaged"):
        metrics.read()


def test_atomic_write_leaves_no_draft(tmp_path):
    write_atomically(tmp_path / "x.json", "one")
    write_atomically(tmp_path / "x.json", "two")
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
    assert (tmp_path / "x.json").read_text() == "two"


def test_a_full_disk_tears_no_line(tmp_path, full_disk):
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    metrics.append({"step": 2})
    with full_disk(100), pytest.raises(OSError, match="File too large"):
        metrics.append({"step": 4, "loss": 100 * "9"})
    metrics.append({"step": 6})
    lines = metrics.path.read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [2, 6]


def test_a_full_disk_keeps_the_old_text(tmp_path, full_disk):
    write_atomically(tmp_path / "x.json", "one")
    with full_disk(100), pytest.raises(OSError, match="File too large"):
        write_atomically(tmp_path / "x.json", 200 * "2")
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
    assert (tmp_path / "x.json").read_text() == "one"


def test_places(tmp_path):
    assert not in_bucket(as_path(str(tmp_path)))
    for text in ("s3://bucket/folder", "gs://"):
        with pytest.raises(InputError, match=f"{text} is neither a local folder nor gs://"):
            as_path(text)
