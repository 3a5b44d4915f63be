"""The way of TPUs, products of one-hot digits, against gathers and scatters: equal to the bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax.data.augment import tables


def test_products_are_gathers_and_scatters(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    image = jnp.asarray(rng.integers(0, 256, (20, 24, 3)), jnp.float32)
    table = jnp.asarray(rng.integers(0, 256, (3, 256)), jnp.float32)
    shared = table[:1]

    def every() -> list[jax.Array]:
        return [
            tables.histogram(image),
            tables.apply_table(image, table),
            tables.apply_table(image, shared),
        ]

    expected = jax.jit(every)()
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda *_, tpu, default: tpu())
    for found, wanted in zip(jax.jit(lambda: every())(), expected, strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)
