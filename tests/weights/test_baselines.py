import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax.weights import norm_matched
from mimetic_jax.weights.baselines import shuffled, tfixup, uniform_noise, zero_init

KEY = jax.random.key(0)


@pytest.mark.parametrize("shape", [(8,), (4, 6), (3, 5, 7)])
def test_norm_is_matched_and_direction_is_not(shape):
    like = jax.random.normal(jax.random.key(1), shape) + 2
    drawn = norm_matched(jax.random.key(0), like)
    assert drawn.shape == shape
    np.testing.assert_allclose(
        np.linalg.norm(drawn.ravel()), np.linalg.norm(like.ravel()), rtol=1e-5
    )
    cosine = jnp.vdot(drawn, like) / jnp.vdot(like, like)
    assert abs(cosine) < 0.9


def test_zero_stays_zero():
    np.testing.assert_array_equal(norm_matched(jax.random.key(0), jnp.zeros((2, 3))), 0)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_shuffled_keeps_the_entries_and_not_their_order(dtype):
    like = jax.random.normal(jax.random.key(1), (6, 4, 5)).astype(dtype)
    drawn = shuffled(KEY, like)
    assert drawn.dtype == dtype
    np.testing.assert_array_equal(np.sort(drawn.ravel()), np.sort(like.ravel()))
    assert abs(np.corrcoef(drawn.ravel(), like.ravel())[0, 1]) < 0.3


def test_every_order_is_equally_likely():
    places = np.stack([shuffled(key, jnp.arange(4)) for key in jax.random.split(KEY, 400)])
    counts = (places[:, :, None] == np.arange(4)).mean(axis=0)
    np.testing.assert_allclose(counts, 1 / 4, atol=0.08)


def test_uniform_noise_has_its_spread_and_bounds():
    drawn = np.asarray(uniform_noise(KEY, (50, 20, 10), std=0.3))
    assert drawn.std() == pytest.approx(0.3, rel=0.02)
    assert np.abs(drawn).max() == pytest.approx(0.3 * 3**0.5, rel=0.01)


@pytest.mark.parametrize(
    ("decoder", "scale"), [(False, 0.67 * 12**-0.25), (True, 108**-0.25)], ids=["en", "de"]
)
def test_tfixup_is_a_scaled_xavier(decoder, scale):
    drawn = np.asarray(tfixup(KEY, 120, 360, num_layers=12, decoder=decoder))
    assert drawn.shape == (120, 360)
    bound = scale * (6 / 480) ** 0.5
    assert np.abs(drawn).max() == pytest.approx(bound, rel=0.01)
    assert np.abs(drawn).max() < bound * (1 + 1e-6)
    assert drawn.std() == pytest.approx(bound / 3**0.5, rel=0.02)


def test_golden_zero_init(golden):
    for name, weight in golden("zero_init").items():
        fan_out, fan_in = weight.shape
        np.testing.assert_allclose(zero_init(fan_in, fan_out), weight.T, atol=1e-7, err_msg=name)
