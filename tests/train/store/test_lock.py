import errno
import fcntl
import os
import signal
import subprocess
import sys

import pytest

from mimetic_jax import InputError
from mimetic_jax.train.store.lines import Lines
from mimetic_jax.train.store.lock import locked
from mimetic_jax.train.store.places import Place

HOLD = """
import sys, time
from mimetic_jax.train.store.lock import locked
with locked(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_one_at_a_time_and_free_after(tmp_path):
    for _ in range(2):
        with (
            locked(str(tmp_path / "run")),
            pytest.raises(InputError, match=r"in use by process \d+ on"),
            locked(str(tmp_path / "run")),
        ):
            pass


def test_another_process_keeps_it_until_it_is_killed(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(InputError, match=f"in use by process {holder.pid} "),
            locked(str(tmp_path)),
        ):
            pass
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    with locked(str(tmp_path)):
        pass


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(InputError, match="can't be written"),
        locked(str(tmp_path / "file" / "run")),
    ):
        pass


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_named_and_works(tmp_path, monkeypatch, number):
    def flock(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    said = []
    with locked(str(tmp_path / "run"), said.append):
        pass
    assert len(said) == 1
    assert f"without locks ({os.strerror(number)})" in said[0]
    lines = Lines(Place(tmp_path) / "x.jsonl")
    for step in range(3):
        lines.append({"step": step})
    assert [line["step"] for line in lines.read()] == [0, 1, 2]


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EACCES])
def test_what_file_systems_call_a_held_lock(tmp_path, monkeypatch, number):
    def flock(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with (
        pytest.raises(InputError, match="is in use by another process"),
        locked(str(tmp_path / "run")),
    ):
        pass
