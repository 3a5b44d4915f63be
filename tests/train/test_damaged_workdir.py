"""Damaged files of a workdir: the table as before, or one line that names the file."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings

from configs.default import default
from mimetic_jax import InputError
from mimetic_jax.train import config as configs
from mimetic_jax.train.workdir.lock import locked
from mimetic_jax.train.workdir.members import Chunk, MembersFolder
from mimetic_jax.train.workdir.runs import Run
from tests.fuzz import changes, damaged
from tests.training import quiet

DAMAGE = {
    "garbage": b"<<<<<<< mine\n",
    "empty": b"",
    "a list": b"[]\n",
    "a number": b"3\n",
    "null": b"null\n",
    "other fields": b'{"step": "3", "arms": [], "seeds": 4, "size": "x"}\n',
    "half": b'{"step": 3, "na\n',
    "not UTF-8": b"\xff\xfe\x00\n",
    "deep": b"[" * 100_000,
    "a folder": None,
}


def put(path, damage):
    path.unlink(missing_ok=True)
    if (content := DAMAGE[damage]) is None:
        path.mkdir()
    else:
        path.write_bytes(content)


def contents(workdir):
    """Every file of a folder by its name, and every folder."""
    return {
        str(path.relative_to(workdir)): path.read_bytes() if path.is_file() else None
        for path in workdir.rglob("*")
    }


def one_line(message, name):
    assert "\n" not in message
    assert name in message


def refused(call, workdir, name):
    before = contents(workdir)
    with pytest.raises(InputError) as caught:
        call(workdir)
    one_line(str(caught.value), name)
    assert contents(workdir) == before


def finished_runs(comparison, workdir):
    """A workdir of two finished runs; nothing is trained for it."""
    workdir.mkdir(parents=True)
    comparison.claim(workdir)
    for seed in comparison.config.seeds:
        run = Run.of(workdir, "run", seed)
        run.directory.mkdir(parents=True)
        for step in (0, 4, 12):
            tested = {"eval_accuracy": 0.125 * (step + seed), "eval_loss": 2.0, "eval_count": 360}
            end = {"finished": True} if step == 12 else {}
            run.metrics.append({"step": step, **tested, "seconds": 1.5 * step, **end})


def members(comparison, workdir):
    """A workdir of a population of three; nothing is trained for it."""
    workdir.mkdir(parents=True)
    comparison.claim(workdir)
    folder = MembersFolder.of(workdir, "run")
    folder.directory.mkdir(parents=True)
    folder.choose(3, "a fingerprint", configs.to_json(comparison.config))
    steps, values = np.array([0, 12]), np.linspace(0, 1, 6).reshape(3, 2)
    curve = {"accuracy": (steps, values), "loss": (steps, 2 - values)}
    kernel = {"kernel": np.ones((3, 2))}
    folder.save(Chunk(np.arange(3), curve, kernel, kernel, 360, 1.5, {}))


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    """By kind of workdir: its comparison, how to write it, and its table."""
    found = {}
    for kind, overrides, write in (
        ("runs", {"seeds": (0, 1)}, finished_runs),
        ("members", {"members": 3, "scheme": ()}, members),
    ):
        config = default()
        config.steps, config.optimizer.warmup = 12, 2
        config.model.width, config.model.depth, config.model.heads = 16, 1, 2
        config.update(overrides)
        comparison = quiet(config)
        workdir = tmp_path_factory.mktemp(kind) / "workdir"
        write(comparison, workdir)
        found[kind] = comparison, write, comparison.table(workdir)
    return found


FILES = {
    "runs": ("config.json", "runs/run/0/metrics.jsonl"),
    "members": ("config.json", "population/run/members_00000000-00000002.npz"),
}
CASES = [(kind, name) for kind, names in FILES.items() for name in names]


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_damaged_file_is_named_and_nothing_is_deleted(kinds, tmp_path, kind, name, damage):
    comparison, write, table = kinds[kind]
    workdir = tmp_path / "workdir"
    write(comparison, workdir)
    put(workdir / name, damage)
    if (name, damage) in LEGAL:
        assert comparison.table(workdir) != table
        return
    refused(comparison.table, workdir, name)
    if name == "config.json":
        refused(comparison.claim, workdir, name)


LEGAL = {("runs/run/0/metrics.jsonl", "empty"), ("runs/run/0/metrics.jsonl", "deep")}
"""No run yet, and one whose first line a kill has torn."""


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_chunk_json_is_named(tmp_path, damage):
    folder = MembersFolder.of(tmp_path, "run")
    folder.directory.mkdir(parents=True)
    put(folder.directory / "chunk.json", damage)
    refused(lambda workdir: MembersFolder.of(workdir, "run").chunk_size, tmp_path, "chunk.json")


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_summary_is_written_anew_or_that_is_said(kinds, tmp_path, damage):
    comparison, write, table = kinds["runs"]
    write(comparison, tmp_path / "workdir")
    path = tmp_path / "workdir" / "summary.json"
    put(path, damage)
    shown = comparison.table(tmp_path / "workdir")
    if damage == "a folder":
        assert shown.endswith(f"not written into {path.parent}: Is a directory")
    else:
        assert shown == table
        assert path.stat().st_size > 100


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_lock_is_taken_or_is_named(tmp_path, damage):
    put(tmp_path / "lock", damage)
    if damage == "a folder":
        with pytest.raises(InputError, match=f"{tmp_path} can't be written: Is a directory"):
            locked(tmp_path).__enter__()
        return
    with locked(tmp_path), pytest.raises(InputError, match="is in use by process"):
        locked(tmp_path).__enter__()


def test_a_lock_that_is_a_link_leaves_its_target_alone(tmp_path):
    target = tmp_path / "precious"
    target.write_text("kept")
    (tmp_path / "lock").symlink_to(target)
    with pytest.raises(InputError, match="can't be written: Is a symbolic link"):
        locked(tmp_path).__enter__()
    (tmp_path / "lock").unlink()
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(InputError, match="can't be written: Is no regular file"):
        locked(tmp_path).__enter__()
    assert target.read_text() == "kept"


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_random_edits_change_no_table_silently(kinds, tmp_path, kind, name):
    comparison, write, table = kinds[kind]
    workdir = tmp_path / "workdir"
    write(comparison, workdir)
    whole = (workdir / name).read_bytes()

    @settings(deadline=None, max_examples=100, derandomize=True, database=None)
    @given(changes)
    def check(edits):
        content = damaged(whole[:-1], edits) + whole[-1:]  # without its end it is a torn line
        (workdir / name).write_bytes(content)
        try:
            assert comparison.table(workdir) == table
        except InputError as error:
            one_line(str(error), "workdir")
        assert (workdir / name).read_bytes() == content

    check()
