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


def test_scale_is_the_amplitude():
    np.testing.assert_allclose(sincos_2d(3, 4, 16, scale=2.0), 2 * sincos_2d(3, 4, 16), rtol=1e-6)
    norms = (np.asarray(sincos_2d(7, 7, 192)) ** 2).sum(axis=1)
    np.testing.assert_allclose(norms, 96, rtol=1e-5)


def test_neighbors_are_alike():
    """The method needs this: P Pᵀ falls with distance on the grid."""
    table = np.asarray(sincos_2d(16, 16, 192), np.float64).reshape(16, 16, 192)
    center = table[8, 8]
    similar = [center @ table[8, 8 + step] for step in range(4)]
    assert similar == sorted(similar, reverse=True)
    assert similar[1] == pytest.approx(94.5, abs=0.1)
    assert center @ table[9, 9] == pytest.approx(93.0, abs=0.1)


@pytest.mark.parametrize("dim", [1, 41, 410])
def test_text_tables_of_any_width(dim):
    assert sincos_1d(5, dim).shape == (5, dim)
