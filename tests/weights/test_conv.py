import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax.weights.conv import (
    conv_covariance_2022,
    conv_filters,
    sample_filters,
)

KEY = jax.random.key(0)


def formula(size, sigma):
    """The closed form before clipping, written out pixel by pixel."""
    center = size // 2
    bump = np.empty((size, size))
    for i in range(size):
        for j in range(size):
            bump[i, j] = np.exp(-((i - center) ** 2 + (j - center) ** 2) / (2 * sigma))
    half = np.empty((size,) * 4)
    for i, j in np.ndindex(size, size):
        moved = np.roll(bump, (i - center, j - center), axis=(0, 1))
        half[i, j] = bump[i, j] * (moved - bump / 2)
    half = half.reshape(size**2, size**2)
    return (half + half.T) / 2


@pytest.mark.parametrize(
    ("sigma", "smallest", "largest"), [(0.3, -0.0014, 0.5), (1.0, -0.022, 1.0), (2.0, -0.077, 2.0)]
)
def test_closed_form_and_what_clipping_costs(sigma, smallest, largest):
    """Eigenvalues measured elsewhere (REFERENCES 4.3); clipping removes the negative ones."""
    truth = formula(7, sigma)
    values = np.linalg.eigvalsh(truth)
    assert values[0] == pytest.approx(smallest, rel=0.05)
    assert values[-1] == pytest.approx(largest, rel=0.15)
    clipped = conv_covariance_2022(7, sigma)
    change = np.linalg.norm(clipped - truth, ord=2)
    assert change == pytest.approx(-values[0], rel=1e-3)
    assert truth[24, 24] == pytest.approx(0.5)


def test_sampling_under_jit_needs_no_lapack_there():
    covariance = conv_covariance_2022(5, sigma=1.0)
    sample = jax.jit(lambda key: sample_filters(key, covariance, channels=40_000))
    np.testing.assert_allclose(np.cov(sample(KEY).reshape(25, -1)), covariance, atol=0.03)
    assert "custom_call" not in sample.lower(KEY).as_text()


def energies(filters):
    return np.square(np.asarray(filters, np.float64)).sum(axis=(0, 1))


@pytest.mark.parametrize("size", [1, 8])
def test_impulse_and_box_have_the_energy_of_random_filters(size):
    key = jax.random.key(size)
    impulse, box, random = (
        conv_filters(key, size, 40, kind) for kind in ("impulse", "box", "random")
    )
    np.testing.assert_allclose(energies(impulse), 1 / 3, rtol=1e-5)
    np.testing.assert_allclose(energies(box), 1 / 3, rtol=1e-5)
    assert (np.count_nonzero(impulse, axis=(0, 1)) == 1).all()
    assert np.ptp(np.asarray(box)) == 0
    assert np.abs(random).max() <= 1 / size
    assert random.dtype == impulse.dtype == box.dtype == jnp.float32


def test_random_filters_have_that_energy_on_average_and_impulses_are_everywhere():
    assert energies(conv_filters(KEY, 5, 5000)).mean() == pytest.approx(1 / 3, rel=0.02)
    impulses = np.count_nonzero(conv_filters(KEY, 5, 5000, "impulse"), axis=2)
    assert impulses.min() > 100
