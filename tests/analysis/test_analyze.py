"""The analyses of `--mode=analyze`: what they tell of a workdir, and what they write there."""

from __future__ import annotations

import importlib
import os
import re
import shutil

import pytest

from mimetic_jax.command.experiment import ANALYSES
from mimetic_jax.errors import InputError
from mimetic_jax.train.store.places import Place
from mimetic_jax.train.store.runs import Run


def analyze(what, comparison, workdir):
    module = importlib.import_module(f"mimetic_jax.analysis.{ANALYSES[what][0]}")
    return module.analyze(comparison, Place.of(workdir))


@pytest.fixture
def copied(request, tmp_path):
    """A copy of what a fixture trained, with its comparison."""

    def copy(name):
        comparison, workdir = request.getfixturevalue(name)
        return comparison, shutil.copytree(workdir, tmp_path / "workdir")

    return copy


@pytest.mark.parametrize(
    "what",
    [
        "fit",
        "attention",
        *(pytest.param(what, marks=pytest.mark.slow) for what in ("products", "rank")),
    ],
)
def test_arms_are_told_before_and_after_training(what, trained, copied, tmp_path):
    if what == "attention":
        pytest.importorskip("matplotlib")
    workdirs = [tmp_path / "new", copied("trained")[1]]
    told = [analyze(what, trained.comparison, workdir) for workdir in workdirs]
    moments = r"^(?:default|mimetic), (?:initial|step \d+)"
    assert [re.findall(moments, said, re.MULTILINE) for said in told] == [
        ["default, initial", "mimetic, initial"],
        ["default, initial", "default, step 4", "mimetic, initial", "mimetic, step 4"],
    ]
    if what == "attention":  # mimetic attention looks at itself
        said = told[0]
        itself = [float(line.split()[1]) for line in said.splitlines() if line[:7] == "      1"]
        assert itself[1] > 1.5 * itself[0]
        assert said.endswith(f"attention maps drawn: {tmp_path / 'new' / 'attention.png'}")
        assert (tmp_path / "new" / "attention.csv").exists()


@pytest.mark.slow
def test_the_first_gradient_is_that_of_training(trained):
    lines = analyze("health", *trained).splitlines()
    run = Run.of(str(trained.workdir), "default", 0)
    first = next(line for line in run.metrics.read() if "grad_norm" in line)
    expected = f"loss {first['loss']:.4g}, gradient norm {first['grad_norm']:.3g}"
    assert lines[0].endswith(expected)
    assert len(lines) == 2 * (1 + 2)  # a headline per arm, and a table of one layer


@pytest.mark.parametrize(
    ("what", "where", "name", "kind"),
    [
        ("curves", "trained", "curves.png", "a symbolic link"),
        ("curves", "trained", "curves.csv", "a symbolic link"),
        ("curves", "trained", "curves.png", "not a regular file"),
        ("curves", "trained", "curves.csv", "not a regular file"),
    ],
)
def test_no_link_or_pipe_is_written_to(copied, tmp_path, what, where, name, kind):
    pytest.importorskip("matplotlib")
    comparison, workdir = copied(where)
    precious = tmp_path / "precious"
    precious.write_text("kept")
    if kind == "a symbolic link":
        (workdir / name).symlink_to(precious)
    else:
        os.mkfifo(workdir / name)
    with pytest.raises(InputError, match=f"{name} is {kind}") as refused:
        analyze(what, comparison, workdir)
    assert "\n" not in str(refused.value)
    assert precious.read_text() == "kept"
