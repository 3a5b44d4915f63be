from __future__ import annotations

import numpy as np
import pytest

from mimetic_jax.analysis.expected import expected_map
from mimetic_jax.analysis.offsets import self_and_ring
from mimetic_jax.weights import sincos_2d

# Computed independently from the formula: mean attention to the patch itself and to the ring of its
# neighbors, on a 16×16 grid with D = 192 and K = 64.
PUBLISHED = {
    (0.7, True): (1.0, 3e-7),
    (0.395, True): (0.992, 0.0005),
    (0.7, False): (0.0179, 0.1061),
    (0.395, False): (0.0098, 0.0631),
}


@pytest.mark.parametrize(("beta", "content"), PUBLISHED)
def test_goldens(beta, content):
    attention = expected_map(sincos_2d(16, 16, 192), 64, beta, content=content)
    itself, ring = self_and_ring(attention, (16, 16))
    expected_self, expected_ring = PUBLISHED[beta, content]
    assert itself == pytest.approx(expected_self, abs=5e-4 if content else 5e-5)
    assert ring == pytest.approx(expected_ring, abs=5e-5)


def test_rows_are_the_softmax_of_the_logits():
    position = np.random.default_rng(0).normal(size=(5, 4))
    got = expected_map(position, 9, 0.3)
    logits = 0.3 * (4 * np.eye(5) + position @ position.T) / 3
    np.testing.assert_allclose(np.log(got / got[:, :1]), logits - logits[:, :1], atol=1e-12)
    np.testing.assert_allclose(got.sum(1), 1)
