"""Files of tensors that other programs wrote: their arrays, or one line that says what is wrong."""

import io
import json
import re

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save, save_file

from mimetic_jax import InputError
from mimetic_jax.base.tensor_files import checkpoint_files, mapped, read_file

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


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4f4f\nsize 133466304\n"
BAD = {
    "empty.npz": b"",
    "empty.safetensors": b"",
    "junk.npz": b"<html>404</html>",
    "junk.safetensors": b"<html>404</html>" * 9,
    "cut.npz": npz(WHOLE)[:-200],
    "cut.safetensors": save(WHOLE)[:-4],
    "objects.npz": npz({"a": np.array([{}], object)}),
    **dict.fromkeys(("lfs.npz", "lfs.safetensors", "lfs.safetensors.index.json"), POINTER),
}


@pytest.mark.parametrize("name", [*BAD, "absent.npz", "absent.safetensors"])
def test_a_bad_file_is_one_line(tmp_path, name):
    if name in BAD:
        (tmp_path / name).write_bytes(BAD[name])
    words = " is a Git LFS pointer .* git lfs pull" if "lfs" in name else ""
    with pytest.raises(InputError, match=f"{name}{words}"):
        read_file(tmp_path / name)


def test_a_header_beyond_the_limit_of_the_format_is_not_read(tmp_path):
    path = tmp_path / "holes.safetensors"
    with path.open("wb") as file:
        file.write((2**33).to_bytes(8, "little"))
        file.truncate(2**33 + 8)  # a file of holes, which takes no disk
    with pytest.raises(InputError, match="its header says 8,589,934,592 bytes"):
        read_file(path)


def indexed(folder, files, weight_map):
    for name, tensors in files.items():
        save_file(tensors, folder / name)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    return index


def test_a_tensor_is_that_of_the_file_which_the_index_names(tmp_path):
    """A file may hold old copies of what another one holds, and tensors of none."""
    one, old = np.ones((2, 2), np.float32), np.zeros((2, 2), np.float32)
    files = {"1.safetensors": {"a": one}, "2.safetensors": {"a": old, "b": one, "unused": old}}
    index = indexed(tmp_path, files, {"a": "1.safetensors", "b": "2.safetensors"})
    found = mapped(index, "r+")
    assert {name: float(array.sum()) for name, array in found.items()} == {"a": 4, "b": 4}
    found["a"][...] = 3
    index.unlink()
    assert mapped(tmp_path / "1.safetensors")["a"].sum() == 12
    assert mapped(tmp_path / "2.safetensors")["a"].sum() == 0


@pytest.mark.parametrize("suffix", ["safetensors", "bin"])
def test_one_file_of_several_is_refused_with_the_index_beside_it(tmp_path, suffix):
    """Half a model has layers without value and out."""
    shard = tmp_path / f"model-00001-of-00002.{suffix}"
    save_file(WHOLE, shard)
    with pytest.raises(InputError, match=r"one of 2 files .*; pass the .index.json that belongs"):
        checkpoint_files(str(shard))
    index = indexed(tmp_path, {}, {})
    with pytest.raises(InputError, match=re.escape(f"pass {index}")):
        checkpoint_files(str(shard))
    assert checkpoint_files(str(shard.rename(tmp_path / f"model-00001-of-00001.{suffix}")))


@pytest.mark.parametrize(
    ("name", "other", "words"),
    [
        ("weights_1of4", "", "one of 4 files of a checkpoint; pass the .index.json that belongs"),
        ("consolidated.00", "consolidated.01", "one of 2 files .*; pass one in which they are"),
        ("mp_rank_00_states", "mp_rank_01_states", "one of 2 files of a checkpoint"),
        ("model-shard3", "model-shard4", "one of 2 files of a checkpoint"),
        ("half_a", "half_b", "one of 2 files of a checkpoint; pass .*/model.index.json"),
        ("consolidated.00", "", ""),
        ("step_100", "step_200", ""),
        ("lora_rank8", "lora_rank16", ""),
    ],
)
def test_files_of_other_programs_that_are_one_of_several(tmp_path, name, other, words):
    for stem in filter(None, (name, other)):
        save_file(WHOLE, tmp_path / f"{stem}.safetensors")
    if name == "half_a":
        names = {"a": "half_a.safetensors", "b": "half_b.safetensors"}
        (tmp_path / "model.index.json").write_text(json.dumps({"weight_map": names}))
    file = str(tmp_path / f"{name}.safetensors")
    if not words:
        assert checkpoint_files(file) == [file]
    else:
        with pytest.raises(InputError, match=words):
            checkpoint_files(file)


def test_a_tensor_that_no_file_has_is_an_error(tmp_path):
    index = indexed(
        tmp_path, {"1.safetensors": WHOLE}, {"cls": "1.safetensors", "b": "1.safetensors"}
    )
    with pytest.raises(InputError, match=r"names b in .*1\.safetensors, which doesn't hold it"):
        mapped(index)


@pytest.mark.parametrize(
    ("dtype", "bits", "shape"),
    [("F4", 4, (4, 2)), ("F6_E2M3", 6, (4, 3)), ("F8_E4M3FNUZ", 8, (4, 4)), ("NEW", 128, (4, 64))],
)
def test_numbers_that_numpy_lacks_are_bytes_beside_the_others(tmp_path, dtype, bits, shape):
    size = 16 * bits // 8
    header = {
        "packed": {"dtype": dtype, "shape": [4, 4], "data_offsets": [0, size]},
        "plain": {"dtype": "F32", "shape": [2], "data_offsets": [size, size + 8]},
    }
    text = json.dumps(header).encode()
    content = bytes(range(size % 256)) + bytes(size - size % 256)
    values = np.array([1.5, 2.5], "<f4")
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + content + values.tobytes())
    found = mapped(path)
    np.testing.assert_array_equal(found["plain"], values)
    assert found["packed"].shape == shape
    assert found["packed"].tobytes() == content
