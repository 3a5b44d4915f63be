import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax import InputError
from mimetic_jax.models import resample


@pytest.mark.parametrize("case", ["up", "down", "finer"])
def test_is_pytorchs_antialiased_bicubic(golden, case):
    """`torch.nn.functional.interpolate(mode="bicubic")` 2.13 of white noise, both ways."""
    arrays = golden("resample")
    table, (grid_from, grid_to) = arrays[f"{case}/table"], arrays[f"{case}/grids"].tolist()
    ours = resample(table, grid_from, grid_to)
    np.testing.assert_allclose(ours, arrays[f"{case}/antialias"], atol=5e-6)
    # What the docstring says of the other form.
    difference = float(np.std(ours - arrays[f"{case}/plain"]))
    assert difference == pytest.approx({"up": 0.08, "down": 0.59, "finer": 0.07}[case], abs=0.01)


def test_class_token_row_is_untouched():
    table = jax.random.normal(jax.random.key(0), (1, 10, 4))
    both = resample(table, (3, 3), (5, 4), prefix=1)
    assert both.shape == (1, 21, 4)
    np.testing.assert_array_equal(both[:, 0], table[:, 0])
    np.testing.assert_array_equal(both[:, 1:], resample(table[:, 1:], (3, 3), (5, 4)))


def test_same_grid_and_constants_stay():
    table = jax.random.normal(jax.random.key(0), (1, 9, 4))
    np.testing.assert_array_equal(resample(table, (3, 3), (3, 3)), table)
    np.testing.assert_allclose(resample(jnp.ones((1, 9, 4)), (3, 3), (2, 7)), 1, atol=1e-6)


def test_rows_and_columns_keep_their_places():
    """A table that depends on the row alone does so after resampling."""
    rows = jnp.broadcast_to(jnp.arange(4.0)[:, None, None], (4, 3, 2)).reshape(1, 12, 2)
    new = np.asarray(resample(rows, (4, 3), (8, 5))).reshape(8, 5, 2)
    np.testing.assert_allclose(new, new[:, :1].repeat(5, 1), atol=1e-6)
    assert (np.diff(new[:, 0, 0]) > 0).all()


def test_half_precision_is_computed_in_single():
    table = jax.random.normal(jax.random.key(0), (1, 9, 4)).astype(jnp.bfloat16)
    ours = resample(table, (3, 3), (6, 6))
    assert ours.dtype == jnp.bfloat16
    exact = resample(table.astype(jnp.float32), (3, 3), (6, 6))
    np.testing.assert_array_equal(ours, exact.astype(jnp.bfloat16))


@pytest.mark.parametrize(
    ("shape", "grid_to", "prefix", "words"),
    [
        ((1, 9, 4), (2, 2), 1, r"\(1, 9, 4\) does not hold 1 rows and a 3x3 grid"),
        ((9, 4), (2, 2), 0, r"\(9, 4\) does not hold"),
        ((1, 9, 4), (0, 2), 0, "the grid 0x2 is empty"),
    ],
)
def test_bad_input(shape, grid_to, prefix, words):
    with pytest.raises(InputError, match=words):
        resample(jnp.zeros(shape), (3, 3), grid_to, prefix)
