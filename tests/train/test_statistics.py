"""What a comparison of a few seeds can find, against draws."""

import doctest

import numpy as np
import pytest

from mimetic_jax.train import statistics
from mimetic_jax.train.statistics import paired_difference, smallest_gain


def test_doctests():
    assert doctest.testmod(statistics).failed == 0


@pytest.mark.parametrize(("n", "of"), [(2, 1), (5, 1), (5, 8)])
def test_the_smallest_gain_is_found_nine_times_of_ten(n, of):
    gain, random = smallest_gain(0.5, n, of), np.random.default_rng(0)
    theirs, ours = random.normal(0, 0.5, (1500, n)), random.normal(gain, 0.5, (1500, n))
    pairs = [paired_difference(*pair) for pair in zip(ours, theirs, strict=True)]
    found = [one.mean > 0 and one.p < 0.05 / of for one in pairs]
    assert np.mean(found) == pytest.approx(0.9, abs=0.03)


def test_it_grows_with_spread_and_arms_and_falls_with_seeds():
    assert smallest_gain(0.2, 5) == pytest.approx(2 * smallest_gain(0.1, 5))
    assert smallest_gain(0.1, 8) < smallest_gain(0.1, 5) < smallest_gain(0.1, 5, of=12)
