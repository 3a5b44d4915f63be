"""A vision transformer of each form trains like its twin in Linen, and continues exactly."""

import contextlib
import pathlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from configs.default import model
from mimetic_jax.schemes import Mimetic, NormMatched
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.store.runs import Run
from tests.forms import FORMS
from tests.training import killed, quiet, tiny

pytestmark = pytest.mark.slow
ARMS = {
    "default": {},
    "norm_matched": {"scheme": (NormMatched(Mimetic()),)},
    "mimetic": {"scheme": (Mimetic(),)},
}


def config_of(form: str, **fields: Any) -> ConfigDict:
    config = tiny(scheme=())
    config.arms = ARMS
    config.model = model(FORMS[form], **fields)
    return config


def curve(workdir: pathlib.Path, arm: str) -> np.ndarray:
    lines = Run.of(workdir, arm, 0).metrics.read()
    return np.array([line.get("loss", line.get("eval_loss")) for line in lines[:-1]])


@contextlib.contextmanager
def weights_of(twin: Comparison, comparison: Comparison) -> Iterator[None]:
    """Runs start from what the twin's model draws, before their schemes."""
    ours, theirs = (found.arms["default"].program for found in (comparison, twin))
    with mock.patch.object(ours, "draw", theirs.draw):
        yield


@pytest.fixture(scope="module")
def linen(tmp_path_factory):
    twin, workdir = quiet(config_of("linen")), tmp_path_factory.mktemp("linen")
    twin.train(workdir)
    return twin, workdir


@pytest.mark.parametrize("form", ["nnx", "functions"])
def test_losses_and_logits_are_those_of_the_linen_twin(form, linen, tmp_path):
    twin, workdir = linen
    comparison = quiet(config_of(form))
    plans = [str(found.arms["mimetic"].program.plan((Mimetic(),))) for found in (comparison, twin)]
    assert plans[0] == plans[1]
    with weights_of(twin, comparison):
        comparison.train(tmp_path)
    images = jax.random.normal(jax.random.key(0), (5, 8, 8, 1))
    for arm in ARMS:
        np.testing.assert_allclose(curve(tmp_path, arm), curve(workdir, arm), rtol=1e-5)
        logits = [
            found.arms[arm].program.task.model(
                found.restored(Run.of(folder, arm, 0)).variables, images
            )[0]
            for found, folder in ((comparison, tmp_path), (twin, workdir))
        ]
        np.testing.assert_allclose(*logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_killed_and_resumed_is_the_same_to_the_last_bit(form, tmp_path):
    """With dropout, statistics, and their averages."""
    config = config_of(form, dropout=0.2)
    config.ema = 0.9
    whole = quiet(config)
    results = whole.train(tmp_path / "whole")
    for _ in range(2):  # in the middle of the first arm, then of the next
        with killed(after=6):
            quiet(config).train(tmp_path / "killed")
    resumed = quiet(config)
    resumed.train(tmp_path / "killed")
    for arm in ARMS:
        states = [whole.restored(Run.of(tmp_path / of, arm, 0)) for of in ("whole", "killed")]
        assert int(states[0].step) == 12
        jax.tree.map(np.testing.assert_array_equal, *states)
    again = resumed.table(tmp_path / "killed")
    assert [arm.reached for arm in again.arms.values()] == [
        arm.reached for arm in results.arms.values()
    ]
