"""Covariances of depthwise filters: pooled over networks, written, and drawn from again."""

from __future__ import annotations

import csv
import json

import jax
import numpy as np
import pytest

import mimetic_jax
from configs.default import default, model
from mimetic_jax import InputError
from mimetic_jax.analysis import filters
from mimetic_jax.schemes import Context, EmpiricalFilters, NormMatched, Shuffled
from mimetic_jax.weights import sample_filters
from tests.training import quiet

KEY = jax.random.key(0)


def networks(channels, layers=2, size=3, seed=0):
    """Filters of one layer and of the next: normal of covariance 1 and 4, mean 0 and 2."""
    noise = np.random.default_rng(seed).normal(size=(layers, size, size, 1, channels))
    return {
        f"block_{i}": {"depthwise": {"kernel": np.float32((i + 1) * noise[i] + 2 * i)}}
        for i in range(layers)
    }


def of(tree, layer=0):
    return np.asarray(tree[f"block_{layer}"]["depthwise"]["kernel"])[:, :, 0]


def test_what_is_read_of_networks_is_drawn_again(tmp_path):
    sources = [networks(3000, seed=seed) for seed in range(2)]
    found = filters.pooled(sources)
    np.testing.assert_array_equal(
        found["block_1"], np.concatenate([of(tree, 1) for tree in sources], axis=-1)
    )
    filters.write_statistics(tmp_path / "new" / "f.json", found)
    scheme = EmpiricalFilters(str(tmp_path / "new" / "f.json"))
    drawn = mimetic_jax.rewrite(KEY, networks(20_000, layers=3), scheme)
    # The middle layer is between the two: the mean of means 0 and 2, of variances 1 and 4.
    for layer, mean, variance in ((0, 0, 1), (1, 1, 2.5), (2, 2, 4)):
        pixels = of(drawn, layer).reshape(9, -1)
        np.testing.assert_allclose(pixels.mean(axis=1), mean, atol=0.15)
        np.testing.assert_allclose(np.cov(pixels), variance * np.eye(9), atol=0.25)
    matched, shuffled = (
        of(mimetic_jax.rewrite(KEY, networks(64), control(scheme)), 1)
        for control in (NormMatched, Shuffled)
    )
    like = of(mimetic_jax.rewrite(KEY, networks(64), scheme), 1)
    assert np.linalg.norm(matched) == pytest.approx(np.linalg.norm(like), rel=1e-5)
    np.testing.assert_array_equal(np.sort(shuffled.ravel()), np.sort(like.ravel()))


def test_correlated_pixels_keep_their_order(tmp_path):
    """A filter of one row alone comes back as such, at any width."""
    line = np.zeros((9, 9))
    line[3:6, 3:6] = 1  # the middle row, constant
    source = np.asarray(sample_filters(KEY, line, 50))
    filters.write_statistics(tmp_path / "f.json", {"layer": source})
    scheme = EmpiricalFilters(str(tmp_path / "f.json"))
    [new] = scheme(KEY, {"depthwise": np.zeros((3, 3, 7))}, Context()).values()
    np.testing.assert_allclose(new[::2], 0, atol=1e-3)
    assert np.abs(new[1]).max() > 0.1
    np.testing.assert_allclose(new[1], np.broadcast_to(new[1, :1], (3, 7)), atol=1e-3)


@pytest.mark.slow
def test_a_picture_and_a_file_of_trained_runs(tmp_path):
    pytest.importorskip("matplotlib")
    config = default()
    config.batch, config.steps, config.eval.batch, config.seeds = 32, 2, 72, (0, 1)
    config.model = model("convmixer", width=8, depth=2, patch=4, filter_size=3)
    comparison = quiet(config)
    with pytest.raises(InputError, match="has no trained run"):
        filters.analyze(comparison, tmp_path / "w")
    comparison.train(tmp_path / "w")
    said = filters.analyze(comparison, tmp_path / "w").splitlines()
    assert said[1].startswith("filters of 2 networks")
    assert [line.split()[:3] for line in said[3:5]] == [["1", "16", "3"], ["2", "16", "3"]]
    folder = tmp_path / "w" / "filters"
    with (folder / "run.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 9
    states = {(row["state"], row["pixel 8"]) for row in rows}
    assert len(states) == len(rows)  # training moved every entry
    layers = json.loads((folder / "run.json").read_text())["layers"]
    assert [layer["channels"] for layer in layers] == [16, 16]
    new = mimetic_jax.rewrite(KEY, networks(4), EmpiricalFilters(str(folder / "run.json")))
    assert np.abs(of(new)).max() < 1


def damaged(tmp_path, text):
    (tmp_path / "bad.json").write_text(text)
    return mimetic_jax.rewrite(KEY, networks(4), EmpiricalFilters(str(tmp_path / "bad.json")))


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ([{"mean": [0.0]}], r"layers\[0\].covariance None is not"),
        ([{"mean": [0.0] * 3, "covariance": [[0.0] * 3] * 3}], r"means \(1, 3\) and covariances"),
        ([{"mean": [0.0] * 9, "covariance": [[0.0] * 9] * 8}], r"are not \[L, k²\]"),
        ([{"mean": [0.0] * 4, "covariance": [[0.0] * 4] * 4}], "filters of 4 pixels, not of 3x3"),
        (
            [{"mean": [0.0], "covariance": [[0.0]]}, {"mean": [0.0] * 4, "covariance": [[0.0]]}],
            "isn't a file of statistics",
        ),
        ([{"mean": [0.0] * 4, "covariance": [[0.0, 1.0]] * 2}], "is not|are not"),
    ],
)
def test_a_damaged_file_is_one_line(layers, words, tmp_path):
    with pytest.raises(InputError, match=words) as caught:
        damaged(tmp_path, json.dumps({"layers": layers}))
    assert "\n" not in str(caught.value)


def test_networks_without_filters():
    with pytest.raises(InputError, match="have no depthwise filters"):
        filters.pooled([{"mlp": {"fc1": {"kernel": np.ones((2, 4))}}}])
