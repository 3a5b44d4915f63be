"""A comparison and a population that tests of analyses share, each trained once."""

import pathlib
from typing import NamedTuple

import pytest

from configs.default import default
from mimetic_jax.schemes import Mimetic, SinCos
from mimetic_jax.train.comparison import Comparison
from tests.analysis.networks import small
from tests.training import quiet


class Trained(NamedTuple):
    comparison: Comparison
    workdir: pathlib.Path


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Two arms on the digits after four steps."""
    config = small(depth=1)
    config.arms.default = {"scheme": ()}
    config.arms.mimetic = {"scheme": (SinCos(), Mimetic())}
    found = Trained(quiet(config), tmp_path_factory.mktemp("trained") / "workdir")
    found.comparison.train(found.workdir)
    return found


@pytest.fixture(scope="session")
def population(tmp_path_factory):
    """Two seeds of a ViT of one block after a step, trained together."""
    config = default()
    config.seeds, config.together = (0, 1), 2
    config.batch, config.steps, config.eval.batch = 32, 1, 72
    config.model.update(width=8, depth=1, heads=2, patch=4, mlp_ratio=1.0)
    found = Trained(quiet(config), tmp_path_factory.mktemp("population") / "workdir")
    found.comparison.train(found.workdir)
    return found
