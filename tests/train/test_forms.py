"""A vision transformer of each form continues exactly where it was killed."""

from typing import Any

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from configs.default import model
from mimetic_jax.schemes import Mimetic, NormMatched
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
    expected = [arm.reached for arm in results.arms.values()]
    assert [arm.reached for arm in again.arms.values()] == expected
