import jax
import numpy as np

from mimetic_jax.data.augment.rectangles import ATTEMPTS, rectangles


def test_areas_and_ratios_span_their_ranges():
    keys = jax.random.split(jax.random.key(0), 200)
    drawn = jax.vmap(lambda key: rectangles(key, 100_000, (0.1, 0.5), (0.5, 2.0)))(keys)
    one, other, place = (np.asarray(array, np.float64) for array in drawn)
    assert one.shape == other.shape == (200, ATTEMPTS)
    assert place.shape == (200, 2)
    area, ratio = one * other / 100_000, np.log2(one / other)
    # Rounding a side moves both by up to a hundredth.
    assert area.min() > 0.099
    assert area.max() < 0.503
    assert abs(area.mean() - 0.3) < 0.01
    assert abs(ratio).max() < 1.02
    assert abs(ratio.mean()) < 0.05
    assert 0 <= place.min() < place.max() < 1
