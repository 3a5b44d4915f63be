import signal
import subprocess
import sys
import threading

import pytest

from mimetic_jax import InputError
from mimetic_jax.train.store.lock import leased, locked

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


SECONDS = 0.05


def test_who_renews_the_note_keeps_the_folder(tmp_path):
    said = []
    with (
        leased(tmp_path / "lock", seconds=SECONDS),
        pytest.raises(InputError, match=r"is in use by process \d+ on .*: two trainings"),
        leased(tmp_path / "lock", said.append, 4 * SECONDS),
    ):
        pass
    assert "waiting 1 s for its renewal" in said[0]
    assert not list(tmp_path.iterdir())


def test_the_note_of_a_killed_process_is_stale(tmp_path):
    note = "process 1 on elsewhere\nabcd\n7\n"
    (tmp_path / "lock").write_text(note)
    with leased(tmp_path / "lock", lambda line: None, SECONDS):
        assert (tmp_path / "lock").read_text() != note
    assert not (tmp_path / "lock").exists()


def test_it_is_renewed(tmp_path):
    with leased(tmp_path / "lock", seconds=SECONDS):
        notes = set()
        for _ in range(200):
            notes.add((tmp_path / "lock").read_text())
            if len(notes) > 2:
                break
            threading.Event().wait(SECONDS / 2)
    assert len(notes) > 2


def test_of_two_that_come_at_once_one_stays(tmp_path):
    entered, refused = [], []
    start, both = threading.Barrier(2), threading.Event()

    def come():
        start.wait()
        try:
            with leased(tmp_path / "lock", lambda line: None, 1.0):
                entered.append(1)
                both.wait(10)
        except InputError:
            refused.append(1)
            both.set()

    threads = [threading.Thread(target=come) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(entered), len(refused)) == (1, 1)
