import csv
import dataclasses

import numpy as np
import pytest

from configs.default import default
from mimetic_jax.analysis import curves
from mimetic_jax.base.errors import InputError
from mimetic_jax.schemes import Mimetic, NormMatched
from mimetic_jax.train.config import to_json
from mimetic_jax.train.record import SCORES, Origin, Record, Trained
from mimetic_jax.train.store.claim import Claim
from mimetic_jax.train.store.files import path_of
from mimetic_jax.train.store.runs import Run

IMAGES = {
    "default": {0: [0.1, 0.5, 0.60], 1: [0.1, 0.5, 0.64]},
    "norm_matched_mimetic": {0: [0.1, 0.6, 0.80]},
    "mimetic": {0: [0.2, 0.7, 0.90], 1: [0.1, 0.8, 0.92]},
}


def write(workdir, scores, name="accuracy", **more):
    """A workdir as training leaves it: runs of three evaluations are finished."""
    config = default()
    config.name, config.seeds = workdir.name, (0, 1)
    schemes = {"norm_matched_mimetic": (NormMatched(Mimetic()),), "mimetic": (Mimetic(),)}
    config.arms = {arm: {"scheme": schemes.get(arm, ())} for arm in scores if arm != "run"}
    Claim(to_json(config), {}).write(path_of(workdir))
    for arm, seeds in scores.items():
        for seed, values in seeds.items():
            evaluations = [
                (step, {name: value, "loss": 1.0, **more})
                for step, value in zip((0, 10, 20), values, strict=False)
            ]
            metrics = Run.of(workdir, arm, seed).metrics
            for step, found in evaluations:
                metrics.append({"step": step, "eval_count": 1, **found})
            if len(values) == 3:
                record = Record.of(SCORES[name], evaluations, Origin(), Trained(arm=arm, seed=seed))
                metrics.append({"step": 20, "record": record.to_json()})
    return workdir


@pytest.fixture
def images(tmp_path):
    """Seed 1 of norm_matched_mimetic is missing."""
    return write(tmp_path / "digits", IMAGES)


@pytest.fixture
def text(tmp_path):
    scores = {"run": {0: [6.7, 4.0, 3.5], 1: [6.6, 4.2, 3.7]}}
    return write(tmp_path / "docs", scores, "test_bpc", bpc=3.0)


def test_spread_is_over_seeds(images):
    _, results = curves.read(images)
    steps, mean, sd = curves.spread(results[0])
    assert steps.tolist() == [0, 10, 20]
    np.testing.assert_allclose(mean, [10, 50, 62])
    np.testing.assert_allclose(sd, [0, 0, np.std([60, 64], ddof=1)], atol=1e-12)
    assert curves.spread(results[1])[2].tolist() == [0, 0, 0]


def test_unfinished_runs_are_left_out(tmp_path):
    workdir = write(tmp_path / "some", {"default": {0: [0.1, 0.5]}, "mimetic": {1: [0.1, 0.5, 1]}})
    _, results = curves.read(workdir)
    assert [(result.arm, list(result.reached)) for result in results] == [("mimetic", [1])]


def test_a_workdir_is_drawn_with_its_numbers(images):
    pytest.importorskip("matplotlib")
    png, table = curves.draw_workdir(path_of(images))
    assert png.read_bytes().startswith(b"\x89PNG")
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 3  # arms, steps
    assert list(rows[2].values()) == ["", "default", "20", "", "62", "2.82843", "2"]


def test_panel_names_arms_score_and_direction(images, text):
    figure = pytest.importorskip("matplotlib.figure").Figure(layout="constrained")
    for axes, workdir in zip(figure.subplots(2), (images, text), strict=True):
        config, results = curves.read(workdir)
        curves.panel(axes, config["name"], results)
    above, below = figure.axes
    labels = [entry.get_text() for entry in above.get_legend().get_texts()]
    assert labels == ["default (n = 2)", "norm_matched_mimetic (n = 1)", "mimetic (n = 2)"]
    assert len({line.get_color() for line in above.lines}) == 3
    assert len({line.get_linestyle() for line in above.lines}) == 3
    assert (above.get_xlabel(), above.get_ylabel()) == ("training step", "accuracy %")
    assert below.get_ylabel() == "test bits/char (lower is better)"
    assert "digits" in above.get_title()
    assert [axes.lines[0].get_xdata()[0] for axes in figure.axes] == [0, 10]
    figure.draw_without_rendering()
    for axes in figure.axes:  # no legend lies over bands
        assert not axes.get_legend().get_window_extent().overlaps(axes.get_window_extent())


def test_one_test_is_a_point(tmp_path):
    """Of a text, whose start is left out: a line of one point would be invisible."""
    figure = pytest.importorskip("matplotlib.figure").Figure()
    workdir = write(tmp_path / "docs", {"run": {0: [6.7, 4.0, 3.5]}}, "test_bpc", bpc=3.0)
    _, (result,) = curves.read(workdir)
    short = {
        seed: dataclasses.replace(run, curve=(run.curve[0], run.curve[-1]))
        for seed, run in result.runs.items()
    }
    every = (result, dataclasses.replace(result, runs=short))
    for axes, shown in zip(figure.subplots(2), every, strict=True):
        curves.panel(axes, "a text", [shown])
    line, point = (axes.lines[0] for axes in figure.axes)
    assert (len(line.get_xdata()), len(point.get_xdata())) == (2, 1)
    assert (line.get_marker(), point.get_marker()) == ("None", "o")


def test_nothing_to_draw_is_one_line(tmp_path):
    with pytest.raises(InputError, match=f"nothing was trained in {tmp_path / 'no'}:"):
        curves.read(tmp_path / "no")
    unfinished = write(tmp_path / "unfinished", {"default": {0: [0.1]}})
    with pytest.raises(InputError, match=f"no finished run in {unfinished}: nothing to draw"):
        curves.draw_workdir(path_of(unfinished))
    assert not (unfinished / "curves.png").exists()
