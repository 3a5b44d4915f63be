"""A comparison that tests of analyses share, trained once."""

import pathlib
from typing import NamedTuple

import pytest

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
