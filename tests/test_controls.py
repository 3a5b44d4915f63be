"""The control of an arm is its own noise, in every shipped configuration and row of a paper."""

import pathlib
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

import mimetic_jax
from configs import arms
from launch.registry import entries
from mimetic_jax import paths
from mimetic_jax.command import shipped
from mimetic_jax.train import config as configs
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.controls import controls
from papers import TABLES

OWN_DATA = ("images", "text")
"""Files whose data is the user's; their arms are those of cifar10_vit and ptb_char."""
SMALL = {"width": 48, "depth": 2, "depths": (2, 2, 2, 2), "heads": 2}


def rows() -> Iterable[Any]:
    """Every config file with its own arms, and with those of the rows of papers."""
    named: dict[tuple[str, str], dict[str, None]] = {}
    for name in TABLES:
        for entry in entries(name):
            if not entry.row.needs and not TABLES[name].trials:
                key = entry.spec.config, entry.spec.arguments
                named.setdefault(key, {}).update(dict.fromkeys(entry.init))
    seen = set()
    for (config, arguments), init in named.items():
        if (config, *init) not in seen:  # other sizes and rates have the same schemes
            seen.add((config, *init))
            yield pytest.param(config, f"{arguments},init={'+'.join(init)}".lstrip(","))
    yield from ((f"configs/{name}.py", "") for name in shipped.names() if name not in OWN_DATA)


@pytest.mark.parametrize(("config", "arguments"), list(rows()))
def test_a_control_has_the_norms_of_its_arm(config: str, arguments: str) -> None:
    """And where they differ it is noise, not the same numbers."""
    chosen = small(shipped.read(pathlib.Path(config), arguments))
    comparison = Comparison(chosen, say=lambda _: None)
    found = controls(configs.of_arms(configs.to_json(chosen)))
    for name, control in found.items():
        ours, noise = (written(comparison, arm) for arm in (name, control))
        differs = False
        for path, kernel in ours.items():
            np.testing.assert_allclose(
                np.linalg.norm(kernel), np.linalg.norm(noise[path]), rtol=1e-4, err_msg=path
            )
            differs |= not np.array_equal(kernel, noise[path])
        assert differs, f"{control} has no noise where {name} has structure"
    of_arms = chosen.arms.to_dict()
    for name, arm in of_arms.items():
        if "scheme" in arm and arms.noise(arm) != arm and not arguments:
            assert name in found, f"{config} compares {name} with the default alone"


def small(config: ConfigDict) -> ConfigDict:
    for field, value in SMALL.items():
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
        key, grid = jax.random.key(0), program.task.grid()
        params = mimetic_jax.rewrite(key, params, scheme, rules=program.rules, grid=grid)
    return {path: np.asarray(leaf) for path, leaf in paths.flatten(params)[0]}
