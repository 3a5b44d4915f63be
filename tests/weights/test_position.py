import numpy as np

from mimetic_jax.weights import sincos_1d, sincos_2d


def test_golden_tables(golden):
    tables = golden("sincos")
    np.testing.assert_allclose(sincos_2d(4, 4, 16), tables["simplevit_4x4_d16"], atol=1e-6)
    np.testing.assert_allclose(sincos_2d(3, 5, 8), tables["simplevit_3x5_d8"], atol=1e-6)
    expected = tables["vaswani1d_interleaved_n16_d16"]
    np.testing.assert_allclose(sincos_1d(16, 16), expected, atol=1e-6)
    assert [sincos_1d(5, dim).shape for dim in (1, 41)] == [(5, 1), (5, 41)]
