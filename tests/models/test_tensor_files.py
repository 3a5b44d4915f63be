"""Files of pretrained weights that are damaged or made to harm: one line, in bounded memory."""

import io
import os
import pickle
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from safetensors.numpy import save

from mimetic_jax import InputError
from mimetic_jax.models.pretrained_attention import pretrained_attention
from mimetic_jax.models.tensor_files import read_file
from tests.fuzz import changes, damaged, peak_bytes

WHOLE = {"cls": np.ones((1, 1, 8), np.float32), "pos": np.linspace(0, 1, 40, dtype=np.float32)}


def npz(arrays, **options):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays, **options)
    return buffer.getvalue()


def zipped(name, content, method=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        file.writestr(name, content)
    return buffer.getvalue()


def header(text):
    return struct.pack("<Q", len(text)) + text


class Hostile:
    def __reduce__(self):
        return os.mkdir, ("executed",)


HUGE = (
    np.lib.format.magic(1, 0)
    + struct.pack("<H", 118)
    + (
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (1152921504606846976,), }".ljust(117)
        + b"\n"
    )
)
BAD = {
    "empty.npz": b"",
    "empty.safetensors": b"",
    "junk.npz": b"<html>404</html>",
    "junk.safetensors": b"<html>404</html>" * 9,
    "cut.npz": npz(WHOLE)[:-200],
    "cut.safetensors": save(WHOLE)[:-4],
    "array.npz": npz(WHOLE)[:4] + b"\0" * 500,
    "npy.npz": HUGE + b"\0" * 64,
    "pickled.npz": pickle.dumps(Hostile()),
    "objects.npz": npz({"a": np.array([Hostile()], object)}),
    "huge.npz": zipped("a.npy", HUGE + b"\0" * 64),
    "bomb.npz": zipped("a.npy", HUGE + bytes(50_000_000), zipfile.ZIP_DEFLATED),
    "huge.safetensors": struct.pack("<Q", 2**60) + b"{}",
    "offsets.safetensors": header(b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'),
    "negative.safetensors": header(b'{"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}}')
    + bytes(16),
    "dtype.safetensors": header(b'{"a":{"dtype":"Q9","shape":[4],"data_offsets":[0,16]}}')
    + bytes(16),
    "deep.safetensors": header(b"[" * 100_000),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_one_line_and_takes_no_memory(tmp_path, monkeypatch, name):
    """NumPy refuses the huge one; tracemalloc counts what was refused."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(BAD[name])
    most = 2**63 if name == "huge.npz" else 10_000_000
    with peak_bytes(most), pytest.raises(InputError) as caught:
        read_file(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert f"{name} can't be read as a checkpoint (" in str(caught.value)
    assert len(str(caught.value)) < 400
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("content", [npz(WHOLE), save(WHOLE)], ids=["npz", "safetensors"])
def test_random_edits_give_the_tensors_or_one_line(tmp_path, content):
    path = tmp_path / ("a.npz" if content[:2] == b"PK" else "a.safetensors")

    @settings(deadline=None, max_examples=100, derandomize=True, database=None)
    @given(changes)
    def check(edits):
        path.write_bytes(damaged(content, edits))
        try:
            found = read_file(path)
        except InputError as error:
            one_line(str(error))
        else:
            assert sum(array.nbytes for array in found.values()) <= 100 * len(content)

    def one_line(message):
        assert "\n" not in message

    check()


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.ones((128, 384), np.int32), r"is int32 \(128, 384\), not floating point of 2 axes"),
        (np.float32(3), r"is float32 \(\), not floating point of 2 axes"),
        (np.ones((128, 100), np.float32), r"query/kernel has shape \(128, 34\), not 128x128"),
        (np.full((128, 384), "x"), "not floating point"),
    ],
)
def test_attention_of_another_form_is_named(tmp_path, array, words):
    np.savez(tmp_path / "a.npz", **{"h.0.attn.c_attn.weight": array})
    with pytest.raises(InputError, match=words):
        pretrained_attention(tmp_path / "a.npz")
