"""The control of an arm, by its name, is the arm's own noise in every configuration."""

import importlib
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

import mimetic_jax
from configs import arms
from launch.runner import load
from mimetic_jax import weights
from mimetic_jax.command import shipped
from mimetic_jax.rules import paths
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.record import CONTROLS
from papers import TABLES, rows_of
from papers.record import Row
from tests import words

OTHERS = ("images", "text")
"""Of data of one's own."""

WITHOUT_STRUCTURE = ("random",)
"""Arms whose scheme draws independent entries, though schemes of its class may have structure."""


def rows() -> Iterator[Any]:
    """The comparison of every shipped file, and those of the rows of papers."""
    for name in shipped.names():
        if name not in OTHERS:
            module = importlib.import_module(f"configs.{name}")
            yield pytest.param(Row(name, config=module), id=name)
    seen = set()
    for name in TABLES:
        for row in rows_of(name):
            size = str(row.arguments) if row.ladder else ""
            if not row.needs and not row.is_untrained and (row.config, size, row.arms) not in seen:
                seen.add((row.config, size, row.arms))  # other sizes and rates: the same schemes
                yield pytest.param(row, id=f"{name} {row.number}", marks=pytest.mark.slow)


@pytest.mark.parametrize("row", list(rows()))
def test_a_control_has_the_norms_of_its_arm(row, tmp_path):
    """And where they differ it is noise, not the same numbers."""
    config = small(load(row))
    if config.data.name.startswith("text_"):
        config.data.dir = words.numbered(tmp_path / "text.txt", 100_000)
    comparison = Comparison(config, say=lambda _: None)
    pairs = [
        (name, f"{before}{name}")
        for name in config.arms
        for before in CONTROLS.values()
        if f"{before}{name}" in config.arms and "scheme" in config.arms[name]
    ]
    arrays = {arm: written(comparison, arm) for pair in pairs for arm in pair}
    for name, control in pairs:
        ours, noise = arrays[name], arrays[control]
        differs = False
        for path, kernel in ours.items():
            norms = [float(np.linalg.norm(array)) for array in (kernel, noise[path])]
            np.testing.assert_allclose(*norms, rtol=1e-4, err_msg=f"{name}: {path}")
            differs |= not np.array_equal(kernel, noise[path])
        assert differs, f"{control} has no noise where {name} has structure"
    for name, arm in config.arms.items():
        structure = "scheme" in arm and arms.noise(arm)["scheme"] != tuple(arm["scheme"])
        if structure and not row.arms and name not in WITHOUT_STRUCTURE:
            assert name in dict(pairs), f"{row.label} compares {name} with the default alone"


def small(config: ConfigDict) -> ConfigDict:
    """Of a narrow model, two layers deep."""
    width = 16 if "depths" in config.model else 48  # which a Swin doubles in each stage
    sizes = {"width": width, "depth": 2, "depths": (2, 2, 2, 2), "heads": 2, "head_dim": 16}
    for field, value in sizes.items():
        if field in config.model:
            config.model[field] = value
    return config


def written(comparison: Comparison, arm: str) -> dict[str, np.ndarray]:
    """The leaves of an arm's parameters, which were the same for all before its scheme."""
    of_arm = comparison.arms[arm]
    program, generator = of_arm.program, np.random.default_rng(0)
    params = jax.tree.map(
        lambda leaf: generator.normal(size=leaf.shape).astype(leaf.dtype), program.shapes.params
    )
    scheme = tuple(of_arm.config.scheme)
    if scheme:
        key, options = (
            jax.random.key(0),
            program.rewrite_options | program.task.data_statistics(scheme),
        )
        if "counts" in options:  # of another text, which needs no download
            vocab = options["counts"].shape[0]
            text = generator.integers(min(vocab, 500), size=5000)
            options["counts"] = weights.cooccurrence(text, vocab)
        params = mimetic_jax.rewrite(key, params, scheme, **options, grid=program.task.grid())
    return {path: np.asarray(leaf) for path, leaf in paths.flatten(params)[0]}
