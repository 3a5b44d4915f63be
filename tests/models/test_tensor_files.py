"""Files of tensors that other programs wrote: their arrays, or one line that says what is wrong."""

import io

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save, save_file

from mimetic_jax import InputError
from mimetic_jax.models.tensor_files import read_file

WHOLE = {"cls": np.ones((1, 1, 8), np.float32), "pos": np.linspace(0, 1, 40, dtype=np.float32)}


def npz(arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_both_formats_give_the_arrays(tmp_path, dtype):
    arrays = {name: array.astype(dtype) for name, array in WHOLE.items()}
    np.savez(tmp_path / "a.npz", **arrays)
    save_file(arrays, tmp_path / "a.safetensors")
    for name in ("a.npz", "a.safetensors"):
        found = read_file(tmp_path / name)
        assert found.keys() == arrays.keys()
        for key, array in arrays.items():
            assert found[key].dtype == dtype
            np.testing.assert_array_equal(found[key], array)


BAD = {
    "empty.npz": b"",
    "empty.safetensors": b"",
    "junk.npz": b"<html>404</html>",
    "junk.safetensors": b"<html>404</html>" * 9,
    "cut.npz": npz(WHOLE)[:-200],
    "cut.safetensors": save(WHOLE)[:-4],
    "objects.npz": npz({"a": np.array([{}], object)}),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_one_line(tmp_path, name):
    (tmp_path / name).write_bytes(BAD[name])
    with pytest.raises(InputError) as caught:
        read_file(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


@pytest.mark.parametrize("name", ["absent.npz", "absent.safetensors"])
def test_no_file(tmp_path, name):
    with pytest.raises(InputError, match=name):
        read_file(tmp_path / name)
