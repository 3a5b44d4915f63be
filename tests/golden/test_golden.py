from __future__ import annotations

import numpy as np
import pytest

from tests.golden import make


@pytest.mark.parametrize("name", make.FORMULAS)
def test_formulas_reproduce_the_files(golden, name):
    """To float64 rounding, which the numerical libraries' versions change."""
    stored, computed = golden(name), make.FORMULAS[name]()
    assert list(stored) == list(computed)
    for key, array in computed.items():
        assert (array.dtype, array.shape) == (stored[key].dtype, stored[key].shape), key
        # Signs of singular vectors are free, and only this array shows them.
        found, expected = (
            (np.abs(array), np.abs(stored[key]))
            if key == "vo_product_swapped"
            else (array, stored[key])
        )
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12, err_msg=key)
