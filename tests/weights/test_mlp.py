import jax
import numpy as np
import pytest

from mimetic_jax.weights.mlp import anti_correlated, mean_shift, mean_shift_per_input

KEY = jax.random.key(0)


def kernel(dim=64, hidden=128, seed=1):
    return jax.random.normal(jax.random.key(seed), (dim, hidden)) * 0.02


@pytest.mark.parametrize(("dim", "hidden", "b"), [(1, 2, -3.0), (12, 5, 0.7)])
def test_scalar_shift_is_relative_to_the_spread(dim, hidden, b):
    before = kernel(dim, hidden)
    shift = np.asarray(mean_shift(before, b), np.float64) - np.asarray(before, np.float64)
    np.testing.assert_allclose(shift, b * np.asarray(before, np.float64).std(), atol=1e-7)


def test_every_hidden_unit_gets_the_same_random_row():
    before = np.asarray(kernel(4000, 3), np.float64)
    shift = np.asarray(mean_shift_per_input(KEY, kernel(4000, 3), sigma=0.25), np.float64) - before
    np.testing.assert_allclose(shift, np.repeat(shift[:, :1], 3, axis=1), atol=1e-8)
    assert shift[:, 0].std() / before.std() == pytest.approx(0.25, rel=0.05)
    assert abs(shift.mean() / before.std()) < 0.02


def normalized(x):
    return (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-6)


def test_scalar_shift_has_no_effect_after_a_layer_norm():
    """For inputs that sum to zero a constant has no effect, a number per input has."""
    x = normalized(np.random.default_rng(0).normal(size=(16, 64)))
    before, scalar, per_input = (
        x @ np.asarray(array, np.float64)
        for array in (kernel(), mean_shift(kernel()), mean_shift_per_input(KEY, kernel()))
    )
    np.testing.assert_allclose(scalar, before, atol=1e-6)
    assert np.abs(per_input - before).std() > 0.1 * before.std()
    # With an affine LayerNorm, or none, the scalar has an effect.
    affine = (x + 1) @ np.asarray(mean_shift(kernel()), np.float64)
    assert np.abs(affine - before - np.asarray(kernel()).sum(axis=0)).min() > 0.1


def test_anti_correlated():
    first, second = kernel(64, 128, seed=1), kernel(128, 64, seed=2)
    new = np.asarray(anti_correlated(first, second), np.float64)
    truth = (np.asarray(first, np.float64) - np.asarray(second, np.float64).T) / 2
    np.testing.assert_allclose(new, truth, atol=1e-8)
    correlation = np.corrcoef(new.ravel(), np.asarray(second).T.ravel())[0, 1]
    assert correlation == pytest.approx(-(0.5**0.5), abs=0.02)
    assert new.std() / np.asarray(first).std() == pytest.approx(0.5**0.5, abs=0.02)
