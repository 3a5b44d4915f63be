"""Files of JSON lines: whole records, each once, whatever happened to the process or the file."""

import json
import threading

import pytest

from mimetic_jax import InputError
from mimetic_jax.train.store.lines import Lines
from mimetic_jax.train.store.places import Place


def lines_of(folder):
    return Lines(Place(folder) / "x.jsonl")


def filled(folder, count=6):
    lines = lines_of(folder)
    for step in range(count):
        lines.append({"step": step, "loss": 0.125 * step})
    return folder / "x.jsonl"


def test_append_read_rewrite(tmp_path):
    lines = lines_of(tmp_path)
    assert lines.read() == []
    records = [{"step": step, "loss": step / 10, "name": "Δ"} for step in (2, 4, 6)]
    for record in records:
        lines.append(record)
    lines.rewrite(lines.read()[:2])
    lines.append(records[2])
    assert lines.read() == records == lines_of(tmp_path).read()


BAD = [b"", b"<<<< mine", b'{"step": 3, "lo', b"[]", b"3", b"\xff", b"\0\0", b"[" * 100_000]


@pytest.mark.parametrize("at", [0, 3, 5])
def test_a_damaged_line_is_named_and_nothing_is_deleted(tmp_path, at):
    """A torn line is the last, and has no end; every other one that can't be read is damage."""
    path = filled(tmp_path)
    lines = path.read_bytes().splitlines()
    for bad in BAD:
        path.write_bytes(b"\n".join([*lines[:at], bad, *lines[at + 1 :]]) + b"\n")
        before = path.read_bytes()
        with pytest.raises(InputError, match=rf"x\.jsonl line {at + 1} is not a JSON object"):
            lines_of(tmp_path).read()
        assert path.read_bytes() == before


@pytest.mark.parametrize("left", [1, 5, -1])
def test_a_torn_last_line_is_dropped_and_loses_no_other(tmp_path, left):
    path = filled(tmp_path)
    *whole, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole) + last[:left])
    lines = lines_of(tmp_path)
    assert [record["step"] for record in lines.read()] == [*range(5)]
    lines.append({"step": 9})
    assert [record["step"] for record in lines.read()] == [*range(5), 9]


def _append(folder, first):
    lines = lines_of(folder)
    for step in range(first, first + 40):
        lines.append({"step": step, "text": "x" * 5000})


def test_appenders_take_turns(tmp_path):
    """A lock is of an open file: threads stand for processes."""
    writers = [threading.Thread(target=_append, args=(tmp_path, 40 * i)) for i in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(record["step"] for record in lines_of(tmp_path).read()) == [*range(120)]


def test_a_full_disk_tears_no_line(tmp_path, full_disk):
    lines = lines_of(tmp_path)
    lines.append({"step": 2})
    with full_disk(100), pytest.raises(OSError, match="File too large"):
        lines.append({"step": 4, "loss": 100 * "9"})
    lines.append({"step": 6})
    content = (tmp_path / "x.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in content] == [2, 6]
    assert [record["step"] for record in lines.read()] == [2, 6]
