"""The analyses of `--mode=analyze`: what they tell of a workdir, and what they write there."""

from __future__ import annotations

import csv
import importlib
import shutil

import pytest

from mimetic_jax.train.store.places import Place


def analyze(what, comparison, workdir):
    module = importlib.import_module(f"mimetic_jax.analysis.{what}")
    return module.analyze(comparison, Place.of(workdir))


@pytest.fixture
def copied(request, tmp_path):
    """A copy of what a fixture trained, with its comparison."""

    def copy(name):
        comparison, workdir = request.getfixturevalue(name)
        return comparison, shutil.copytree(workdir, tmp_path / "workdir")

    return copy


@pytest.mark.parametrize("what", ["attention", pytest.param("products", marks=pytest.mark.slow)])
def test_arms_are_drawn_before_and_after_training(what, trained, copied, tmp_path):
    pytest.importorskip("matplotlib")
    labels = []
    for workdir in (tmp_path / "new", copied("trained")[1]):
        said = analyze(what, trained.comparison, workdir)
        assert said.endswith(f" drawn: {workdir / what}.png")
        with (workdir / f"{what}.csv").open() as file:
            labels.append(list(dict.fromkeys(row["label"] for row in csv.DictReader(file))))
    assert labels == [
        ["default, initial", "mimetic, initial"],
        ["default, initial", "default, step 4", "mimetic, initial", "mimetic, step 4"],
    ]
