"""Token ids as nanoGPT, llm.c and NumPy write them."""

import numpy as np
import pytest

from mimetic_jax.data.text.corpus import describe, load_text
from tests.data.made import refused, write

IDS = np.arange(1000) * 7 % 513


def raw(ids: np.ndarray, kind: type = np.uint16) -> bytes:
    return ids.astype(kind).tobytes()


def llm_c(ids: np.ndarray, magic: int = 20240520, kind: type = np.uint16, more: int = 0) -> bytes:
    header = np.zeros(256, np.int32)
    header[:3] = magic, 1, len(ids) + more
    return header.tobytes() + raw(ids, kind)


def load(folder, vocabulary: int = 0):
    return load_text("text_tokens", str(folder), vocabulary)


def test_nano_gpt(tmp_path):
    """meta.pkl is left out: reading pickles runs what is in them."""
    files = {"train.bin": raw(IDS), "val.bin": raw(IDS[:300]), "meta.pkl": b"x"}
    corpus = load(write(tmp_path, files))
    np.testing.assert_array_equal(corpus.train, IDS)
    for tokens in (corpus.valid, corpus.test):
        np.testing.assert_array_equal(tokens, IDS[:300])
    assert corpus.train.dtype == np.int32
    assert corpus.notes == (
        "other files, left out: 1 (.pkl 1); its validation tokens are validated and tested on; "
        "vocabulary 513, the largest id + 1 (or give data.vocabulary)"
    )
    info = describe("text_tokens", str(tmp_path), vocabulary=520)
    assert (info.level, info.vocabulary, info.num_train, info.test_bytes) == (
        "tokens",
        520,
        1000,
        0,
    )
    assert "vocabulary" not in info.notes


def test_llm_c_in_several_files(tmp_path):
    files = {f"fineweb_train_{n}.bin": llm_c(IDS + n) for n in (2, 1)}
    files |= {"fineweb_val_0.bin": llm_c(IDS[:9], 20240801, np.uint32), "other.bin": llm_c(IDS)}
    corpus = load(write(tmp_path, files))
    np.testing.assert_array_equal(corpus.train, np.concatenate([IDS + 1, IDS + 2]))
    np.testing.assert_array_equal(corpus.test, IDS[:9])
    assert corpus.notes.startswith("no split in its name, left out: other.bin; ")


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.int32, np.int64])
def test_numpy(tmp_path, kind):
    for n, name in enumerate(("train", "valid", "test")):
        np.save(tmp_path / f"{name}.npy", (IDS[n:] % 200).astype(kind))
    corpus = load(tmp_path)
    assert corpus.train.dtype == np.int32
    for n, tokens in enumerate((corpus.train, corpus.valid, corpus.test)):
        np.testing.assert_array_equal(tokens, IDS[n:] % 200)


def test_a_single_file_is_divided(tmp_path):
    corpus = load(write(tmp_path, {"all.bin": raw(IDS)}) / "all.bin")
    sizes = [len(tokens) for tokens in (corpus.train, corpus.valid, corpus.test)]
    assert sizes == [900, 50, 50]
    np.testing.assert_array_equal(np.concatenate([corpus.train, corpus.valid, corpus.test]), IDS)
    assert corpus.fingerprint() == load(tmp_path).fingerprint()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "a.bin is empty"),
        (b"abc", "a.bin has 3 bytes, an odd number: it isn't ids of 16 bits"),
        (llm_c(IDS, more=1), "a.bin has 3,024 bytes, its header tells 3,026"),
    ],
)
def test_bad_files(tmp_path, content, words):
    refused(lambda: load(write(tmp_path, {"a.bin": content}) / "a.bin"), words)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros(9), "has float64 [9], not a row of token ids"),
        (np.zeros((3, 3), int), "has int64 [3, 3], not a row of token ids"),
        (np.arange(-1, 9), "has numbers from -1 to 8, not token ids"),
        (np.arange(9) + 2**40, "not token ids"),
        (np.arange(9) + 2**21, "has the token id 2097160: at most 1048575 is allowed"),
    ],
)
def test_bad_arrays(tmp_path, array, words):
    np.save(tmp_path / "a.npy", array)
    refused(lambda: load(tmp_path / "a.npy"), words)


def test_bad_folders(tmp_path):
    write(tmp_path, {"a.npy": b"\x93NUMPY"})
    refused(lambda: load(tmp_path), "can't read", "a.npy")
    (tmp_path / "a.npy").unlink()
    refused(lambda: load(tmp_path), "has no file that is read here, such as .bin, .npy")
    write(tmp_path, {"train.bin": raw(IDS)})
    refused(lambda: load(tmp_path), "it needs tokens to train on and to validate on")
    write(tmp_path, {"val.bin": raw(IDS)})
    refused(lambda: load(tmp_path, 512), "has the token id 512: data.vocabulary 512 is less")
