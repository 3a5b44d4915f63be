from __future__ import annotations

import numpy as np
import pytest

from mimetic_jax import InputError
from mimetic_jax.train.schedule import make_schedule


@pytest.mark.parametrize(
    ("name", "epochs", "peak"), [("100ep_lr3e_3", 100, 3e-3), ("150ep_lr1e_2", 150, 1e-2)]
)
def test_golden_triangle(golden, name, epochs, peak):
    """Two steps an epoch: the golden array's half epochs."""
    schedule = make_schedule("triangle", peak, 2 * epochs)
    rates = [schedule(step) for step in range(2 * epochs + 1)]
    np.testing.assert_allclose(rates, golden("schedules")[f"triangle_{name}"], atol=1e-8)


def test_cosine():
    schedule = make_schedule("cosine", 1.0, 110, warmup=10, final=0.1)
    assert [round(float(schedule(step)), 4) for step in (0, 5, 10, 60, 110)] == [
        0,
        0.5,
        1,
        0.55,
        0.1,
    ]


def test_constant():
    schedule = make_schedule("constant", 2.0, 10, warmup=4)
    assert [float(schedule(step)) for step in (0, 2, 4, 9)] == [0, 1, 2, 2]
    assert float(make_schedule("constant", 2.0, 10)(0)) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("cosin", 1.0, 10), "did you mean 'cosine'"),
        (("cosine", -0.1, 10), "learning rate -0.1"),
        (("cosine", float("nan"), 10), "learning rate nan"),
    ],
)
def test_bad_input(arguments, words):
    with pytest.raises(InputError, match=words):
        make_schedule(*arguments)


def test_warmup_must_fit():
    with pytest.raises(InputError, match="10 warm-up steps don't fit 10"):
        make_schedule("cosine", 1.0, 10, warmup=10)
