import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.weights.baselines import shuffled, zero_init

KEY = jax.random.key(0)


def test_every_order_is_equally_likely():
    places = np.stack([shuffled(key, jnp.arange(4)) for key in jax.random.split(KEY, 400)])
    counts = (places[:, :, None] == np.arange(4)).mean(axis=0)
    np.testing.assert_allclose(counts, 1 / 4, atol=0.08)


def test_golden_zero_init(golden):
    for name, weight in golden("zero_init").items():
        fan_out, fan_in = weight.shape
        np.testing.assert_allclose(zero_init(fan_in, fan_out), weight.T, atol=1e-7, err_msg=name)
