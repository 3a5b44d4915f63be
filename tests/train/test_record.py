"""The commit of a record says what git says, and that it doesn't if it doesn't."""

import subprocess

import pytest

from mimetic_jax.train import record


@pytest.fixture
def commit(monkeypatch, tmp_path):
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(record, "ROOT", tmp_path)
    return record.commit.__wrapped__


@pytest.mark.parametrize(
    ("status", "suffix"), [("", ""), (" M main.py\n", "-dirty"), (None, "-unknown")]
)
def test_changed_code_is_marked_and_so_is_a_git_that_stalls(commit, monkeypatch, status, suffix):
    def run(command, *, timeout, **options):
        if "status" in command and status is None:
            raise subprocess.TimeoutExpired(command, timeout)
        text = status if "status" in command else "0123abc\n"
        return subprocess.CompletedProcess(command, 0, stdout=text)

    monkeypatch.setattr(subprocess, "run", run)
    assert commit() == f"0123abc{suffix}"


def test_without_git_there_is_no_commit(commit, monkeypatch):
    def run(command, **options):
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", run)
    assert commit() is None
