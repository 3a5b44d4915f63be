import numpy as np
import pytest

from mimetic_jax.weights import sincos_1d, sincos_2d


def test_golden_tables(golden):
    tables = golden("sincos")
    np.testing.assert_allclose(sincos_2d(4, 4, 16), tables["simplevit_4x4_d16"], atol=1e-6)
    np.testing.assert_allclose(sincos_2d(3, 5, 8), tables["simplevit_3x5_d8"], atol=1e-6)
    np.testing.assert_allclose(
        sincos_1d(16, 16), tables["vaswani1d_interleaved_n16_d16"], atol=1e-6
    )


@pytest.mark.parametrize("dim", [1, 41, 410])
def test_text_tables_of_any_width(dim):
    assert sincos_1d(5, dim).shape == (5, dim)
