"""The pictures of attention products, whatever the storage of the kernels."""

from __future__ import annotations

import csv
import pathlib

import numpy as np
import pytest

from mimetic_jax.analysis import products
from mimetic_jax.schemes import Mimetic
from mimetic_jax.train.store.places import Place
from tests.analysis.networks import small
from tests.training import quiet


def test_analyze_reads_models_with_scan(tmp_path: pathlib.Path) -> None:
    """The mean diagonal of W_V W_out of both layers is β of each arm."""
    pytest.importorskip("matplotlib")
    config = small(scan=True, fused_qkv=True)
    config.arms = {"default": {}, "mimetic": {"scheme": (Mimetic(),)}}
    said = products.analyze(quiet(config), Place.of(tmp_path))
    assert said == f"products drawn: {tmp_path / 'products.png'}"
    with (tmp_path / "products.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["product"] == "summed"]
    means: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        means.setdefault((row["label"], row["layer"]), []).append(float(row[row["row"]]))
    assert list(means) == [(f"{a}, initial", n) for a in ("default", "mimetic") for n in "12"]
    found = [np.mean(diagonal) for diagonal in means.values()]
    assert found == pytest.approx([0, 0, -0.4, -0.4], abs=0.1)
