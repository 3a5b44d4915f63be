from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from mimetic_jax import InputError
from mimetic_jax.train.workdir.lock import locked

HOLD = """
import pathlib, sys, time
from mimetic_jax.train.workdir.lock import locked
with locked(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_one_at_a_time_and_free_after(tmp_path):
    for _ in range(2):
        with (
            locked(tmp_path / "run"),
            pytest.raises(InputError, match=r"in use by process \d+ on"),
            locked(tmp_path / "run"),
        ):
            pass


def test_another_process_keeps_it_until_it_is_killed(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(InputError, match=f"in use by process {holder.pid} "), locked(tmp_path):
            pass
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    with locked(tmp_path):
        pass


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="can't be written"), locked(tmp_path / "file" / "run"):
        pass
