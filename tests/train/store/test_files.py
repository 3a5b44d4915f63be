"""Files of JSON lines: whole records, each once, whatever happened to the process or the file."""

import errno
import fcntl
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
from unittest import mock

import fsspec.implementations.memory
import pytest
from etils import epath

from mimetic_jax import InputError
from mimetic_jax.train.store import files
from mimetic_jax.train.store.claim import Claim
from mimetic_jax.train.store.files import Lines, locked, path_of


def lines_of(folder):
    return Lines(folder / "x.jsonl")


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


def test_a_full_disk_keeps_the_old_text(tmp_path, full_disk):
    path = tmp_path / "x.json"
    for text in ("one", "two"):
        files.write(path, text)
    with full_disk(100), pytest.raises(OSError, match="File too large"):
        files.write(path, 200 * "3")
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
    assert path.read_bytes() == b"two"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("s3://bucket/folder", "is neither a local folder nor gs://"),
        ("", "workdir is empty; pass a path"),
        ("a\0b", "has a NUL character"),
    ],
)
def test_other_paths_are_refused(text, words):
    with pytest.raises(InputError, match=words):
        path_of(text)


@pytest.fixture
def bucket(monkeypatch):
    """A folder of gs:// in memory."""
    monkeypatch.setattr(fsspec.implementations.memory.MemoryFileSystem, "store", {})
    memory = fsspec.filesystem("memory", skip_instance_cache=True)
    monkeypatch.setattr(epath.backend.fsspec_backend, "fs", lambda path: memory)
    monkeypatch.setattr(files, "need", lambda *_: None)  # the client of the real one
    files._bucket.cache_clear()
    return path_of("gs://bucket/run")


def test_objects_of_a_bucket_are_replaced_whole(bucket):
    """They can't be appended to or locked; what a kill left of a line goes, as on a disk."""
    lines = lines_of(bucket)
    assert lines.read() == files.names(bucket) == []
    records = [{"step": step} for step in range(3)]
    lines.append(records[0])
    lines.path.write_bytes(lines.path.read_bytes() + b'{"st')
    with locked(bucket), files.in_turn(bucket):
        for record in records[1:]:
            lines.append(record)
    assert lines.read() == records
    claim = Claim({"task": "images", "arms": {}}, {"run": "digest"})
    claim.write(bucket)
    assert Claim.read(bucket) == claim
    assert files.names(bucket) == ["config.json", "x.jsonl"]


HOLD = """
import pathlib, sys, time
from mimetic_jax.train.store.files import locked
with locked(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_another_process_keeps_it_until_it_is_killed(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        words = f"in use by process {holder.pid} "
        with pytest.raises(InputError, match=words), locked(tmp_path):
            pass
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    for _ in range(2):  # and one at a time in a process, too
        words = r"in use by process \d+ on"
        with locked(tmp_path), pytest.raises(InputError, match=words), locked(tmp_path):
            pass


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "run"
    with pytest.raises(InputError, match="can't be written"), locked(folder):
        pass


@pytest.fixture
def flock_fails(monkeypatch):
    def with_number(number):
        error = OSError(number, os.strerror(number))
        monkeypatch.setattr(fcntl, "flock", mock.Mock(side_effect=error))

    return with_number


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_named_and_works(tmp_path, flock_fails, number):
    flock_fails(number)
    with locked(tmp_path / "run", (said := []).append):
        pass
    assert len(said) == 1
    assert f"without locks ({os.strerror(number)})" in said[0]
    assert lines_of(filled(tmp_path, 3).parent).read()[-1]["step"] == 2


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EACCES])
def test_what_file_systems_call_a_held_lock(tmp_path, flock_fails, number):
    flock_fails(number)
    with pytest.raises(InputError, match="is in use by another process"), locked(tmp_path / "run"):
        pass


def test_a_system_without_locks_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    spec = importlib.util.spec_from_file_location("again", files.__file__)
    with pytest.raises(ImportError, match=r"needs Linux or macOS, .* On Windows use WSL"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
