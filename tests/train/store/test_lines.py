"""Files of JSON lines: whole records, each once, whatever happened to the process or the file."""

import json
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimetic_jax import InputError
from mimetic_jax.train.store.lines import Lines
from mimetic_jax.train.store.places import Place

KINDS = pytest.mark.parametrize("chained", [True, False], ids=["metrics", "results"])


def lines_of(folder, chained):
    return Lines(Place(folder) / "x.jsonl", chained=chained)


def filled(folder, chained, count=6):
    lines = lines_of(folder, chained)
    for step in range(count):
        lines.append({"step": step, "loss": 0.125 * step})
    return folder / "x.jsonl"


@KINDS
def test_append_read_rewrite(tmp_path, chained):
    lines = lines_of(tmp_path, chained)
    assert lines.read() == []
    records = [{"step": step, "loss": step / 10, "name": "Δ"} for step in (2, 4, 6)]
    for record in records:
        lines.append(record)
    lines.rewrite(lines.read()[:2])
    lines.append(records[2])
    assert lines.read() == records == lines_of(tmp_path, chained).read()
    assert lines.mark() == lines_of(tmp_path, chained).mark()


BAD = [b"", b"<<<< mine", b'{"step": 3, "lo', b"[]", b"3", b'{"loss": 0.5}', b"\xff", b"\0\0"]


@KINDS
@pytest.mark.parametrize("at", [0, 3, 5])
def test_a_damaged_line_is_named_and_nothing_is_deleted(tmp_path, chained, at):
    """A torn line is the last, and has no end; every other one that can't be read is damage."""
    path = filled(tmp_path, chained)
    lines, words = (
        path.read_bytes().splitlines(),
        rf"x\.jsonl line {at + 1} is (damaged|out of order)",
    )
    for bad in BAD:
        path.write_bytes(b"\n".join([*lines[:at], bad, *lines[at + 1 :]]) + b"\n")
        before = path.read_bytes()
        for call in (Lines.read, lambda lines: lines.append({})):
            with pytest.raises(InputError, match=words):
                call(lines_of(tmp_path, chained))
        assert path.read_bytes() == before


@KINDS
@pytest.mark.parametrize("left", [1, 5, -1])
def test_a_torn_last_line_loses_no_other(tmp_path, chained, left):
    path = filled(tmp_path, chained)
    *whole, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole) + last[:left])  # -1: all but its end, so it is a record
    lines, kept = lines_of(tmp_path, chained), 6 if left == -1 else 5
    assert len(lines.read()) == kept
    lines.append({"step": 9})
    assert [record["step"] for record in lines.read()] == [*range(kept), 9]


@KINDS
@pytest.mark.parametrize("digits", [(b"0.125", b"0.725"), (b'"step": 4', b'"step": 5')])
def test_a_changed_digit_is_damage(tmp_path, chained, digits):
    path = filled(tmp_path, chained)
    path.write_bytes(path.read_bytes().replace(*digits))
    with pytest.raises(InputError, match=r"is (damaged|out of order)"):
        lines_of(tmp_path, chained).read()


@settings(deadline=None, max_examples=60)
@given(st.permutations(range(6)), st.integers(0, 6))
def test_a_chain_knows_its_order(tmp_path_factory, order, count):
    """Missing, doubled and moved lines are all seen, but for missing ones at the end."""
    folder = tmp_path_factory.mktemp("chain")
    path = filled(folder, chained=True)
    content = path.read_bytes().splitlines(keepends=True)
    chosen = list(order)[:count]
    path.write_bytes(b"".join(content[i] for i in chosen))
    lines = lines_of(folder, chained=True)
    if chosen == list(range(count)):
        assert len(lines.read()) == count
    else:
        with pytest.raises(InputError, match="is out of order"):
            lines.read()


def test_lines_of_several_files_may_be_joined(tmp_path):
    """Results of two branches, merged by git in any order."""
    path = filled(tmp_path, chained=False)
    content = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(reversed(content)))
    assert [record["step"] for record in lines_of(tmp_path, False).read()] == [5, 4, 3, 2, 1, 0]


def _append(folder, first):
    lines = lines_of(folder, chained=False)
    for step in range(first, first + 40):
        lines.append({"step": step, "text": "x" * 5000})


def test_appenders_take_turns(tmp_path):
    """A lock is of an open file: threads stand for processes."""
    writers = [threading.Thread(target=_append, args=(tmp_path, 40 * i)) for i in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(record["step"] for record in lines_of(tmp_path, False).read()) == [*range(120)]


@KINDS
def test_a_full_disk_tears_no_line(tmp_path, full_disk, chained):
    lines = lines_of(tmp_path, chained)
    lines.append({"step": 2})
    with full_disk(100), pytest.raises(OSError, match="File too large"):
        lines.append({"step": 4, "loss": 100 * "9"})
    lines.append({"step": 6})
    content = (tmp_path / "x.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in content] == [2, 6]
    assert [record["step"] for record in lines.read()] == [2, 6]
