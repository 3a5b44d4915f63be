"""Token ids as nanoGPT, llm.c and NumPy write them, and what isn't certain to be some."""

import gzip
import io
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest

from mimetic_jax.data.text.corpus import describe, load_text
from mimetic_jax.data.text.token_files import token_ids
from tests.data.made import refused, write

IDS = np.arange(1000) * 7 % 513
WIDE = np.arange(1000) * 131 % 128_000


def raw(ids: np.ndarray, kind: type = np.uint16) -> bytes:
    return ids.astype(kind).tobytes()


def llm_c(ids: np.ndarray, magic: int = 20240520, version: int = 1, more: int = 0) -> bytes:
    header = np.zeros(256, np.int32)
    header[:3] = magic, version, len(ids) + more
    return header.tobytes() + raw(ids, np.uint16 if version == 1 else np.uint32)


def saved(**arrays: np.ndarray) -> bytes:
    """What np.savez writes; of one array, np.save."""
    file = io.BytesIO()
    np.savez(file, **arrays) if len(arrays) > 1 else np.save(file, *arrays.values())
    return file.getvalue()


def load(folder, vocabulary: int = 0, bits: int = 0):
    return load_text("text_tokens", str(folder), vocabulary, bits)


def test_nano_gpt(tmp_path):
    """meta.pkl is left out: reading pickles runs what is in them."""
    files = {"train.bin": raw(IDS), "val.bin": raw(IDS[:300]), "meta.pkl": b"x"}
    corpus = load(write(tmp_path, files))
    np.testing.assert_array_equal(corpus.train, IDS)
    for tokens in (corpus.valid, corpus.test):
        np.testing.assert_array_equal(tokens, IDS[:300])
    assert corpus.notes == (
        "left out: 1 (meta.pkl: no token ids); its validation tokens are validated and tested on; "
        "vocabulary 513, the largest id + 1 (or give data.vocabulary)"
    )
    info = describe("text_tokens", str(tmp_path), vocabulary=520)
    sizes = info.level, info.vocabulary, info.num_train, info.test_bytes
    assert sizes == ("tokens", 520, 1000, 0)
    assert "vocabulary" not in info.notes


def test_llm_c_in_several_files(tmp_path):
    files = {f"fineweb_train_{n}.bin": llm_c(IDS + n) for n in (2, 1)}
    files |= {"fineweb_val_0.bin": llm_c(WIDE[:9], 20240801, 7), "other.bin": llm_c(IDS)}
    (write(tmp_path, files) / "fineweb_train_3.bin").symlink_to(tmp_path / "fineweb_train_2.bin")
    corpus = load(tmp_path)
    np.testing.assert_array_equal(corpus.train, np.concatenate([IDS + 1, IDS + 2]))
    np.testing.assert_array_equal(corpus.test, WIDE[:9])
    assert corpus.notes.startswith(
        "left out: 2 (other.bin: no split in its name; fineweb_train_3.bin of "
        "fineweb_train_2.bin: copies); "
    )


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.int32, np.int64, ">u2"])
def test_numpy(tmp_path, kind):
    """The same tokens have the same fingerprint, whatever kind of numbers they are."""
    for n, name in enumerate(("train", "valid", "test")):
        np.save(tmp_path / f"{name}.npy", (IDS[n:] % 200).astype(kind))
    corpus = load(tmp_path)
    for n, tokens in enumerate((corpus.train, corpus.valid, corpus.test)):
        np.testing.assert_array_equal(tokens, IDS[n:] % 200)
    for n, name in enumerate(("train", "valid", "test")):
        (tmp_path / f"{name}.npy").unlink()
        write(tmp_path, {f"{name}.bin": raw(IDS[n:] % 200)})
    assert load(tmp_path).fingerprint() == corpus.fingerprint()


def test_a_single_file_is_divided(tmp_path):
    corpus = load(write(tmp_path, {"all.bin": raw(IDS)}) / "all.bin")
    sizes = [len(tokens) for tokens in (corpus.train, corpus.valid, corpus.test)]
    assert sizes == [900, 50, 50]
    np.testing.assert_array_equal(np.concatenate([corpus.train, corpus.valid, corpus.test]), IDS)
    assert corpus.fingerprint() == load(tmp_path).fingerprint()


def test_ids_of_32_bits(tmp_path):
    """By their header, if the user says it, or refused: by what they are, or by the vocabulary."""
    write(tmp_path, {"a.bin": raw(WIDE, np.uint32), "b.npy": saved(a=WIDE)})
    half = raw(WIDE % 60_000, np.uint16)
    write(tmp_path, {"c.bin": half, "d.bin": raw(WIDE, np.uint64)})
    write(tmp_path, {"e.bin": raw(WIDE % 9, np.uint32), "f.bin": llm_c(IDS)})
    for corpus in (load(tmp_path / "a.bin", bits=32), load(tmp_path / "b.npy", 128_000)):
        np.testing.assert_array_equal(corpus.train, WIDE[:900])
    ways = "give --config.data.bits=32 in training, or np.fromfile('{}.bin', np.uint32) in a .npy"
    proof = "every second number of {} bits is the upper half of an id of {} bits"
    for name in "ae":
        refused(lambda: load(tmp_path / f"{name}.bin"), proof.format(16, 32), ways.format(name))  # noqa: B023
    for bits in (0, 32):
        words = proof.format(bits or 16, 64), "give np.fromfile('d.bin', np.uint64) in a .npy file"
        refused(lambda: load(tmp_path / "d.bin", bits=bits), *words)  # noqa: B023
    few = "16 bits are too few for all ids of a vocabulary of 128,256"
    refused(lambda: load(tmp_path / "c.bin", 128_256), few, ways.format("c"))
    refused(lambda: token_ids(tmp_path / "c.bin", 128_256), few)
    assert len(load(tmp_path / "c.bin", 128_256, bits=16).train) == 900
    refused(lambda: load(tmp_path / "f.bin", bits=32), "ids of 16 bits by its header, not 32")
    for name, words in (("text_char", "is of text_tokens"), ("ptb_word", "is for texts of")):
        refused(lambda: load_text(name, str(tmp_path), bits=32), f"data.bits 32 {words}")  # noqa: B023


@pytest.mark.parametrize(
    ("ids", "vocabulary"), [(IDS % 4, 4), (np.repeat([3, 0, 40], 300), 41), (0 * IDS, 1)]
)
def test_small_vocabularies_are_no_halves(tmp_path, ids, vocabulary):
    corpus = load(write(tmp_path, {"a.bin": raw(ids)}))
    assert (len(corpus.train), len(corpus.vocabulary)) == (len(ids) * 9 // 10, vocabulary)


TAKEN = "taken are .npy of integers in one axis, .bin of 16 bits as nanoGPT writes it, and .bin"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.bin", b"", "a.bin is empty"),
        ("a.bin", b"abc", "a.bin has 3 bytes, which can't be ids of 16 bits"),
        ("a.bin", llm_c(IDS, more=1), "a.bin has 3,024 bytes, its header tells 3,026"),
        ("a.bin", llm_c(IDS)[:512], "a.bin has 512 bytes, its header tells 3,024"),
        ("a.bin", llm_c(IDS, 20240522), "a header of magic number 20240522 and version 1: taken"),
        ("a.bin", llm_c(IDS, version=2), "a header of magic number 20240520 and version 2: taken"),
        ("a.bin", b"the river was cold\n" * 40, f"is a text, not ids alone: {TAKEN}"),
        ("a.bin", "река была холодной\n".encode() * 40, "is a text"),
        ("a.bin", json.dumps(IDS.tolist()).encode(), "is a text"),
        ("a.bin", saved(a=IDS), "is a .npy file, not ids alone"),
        ("a.bin", saved(a=IDS, b=IDS), "is a zip file"),
        ("a.bin", gzip.compress(raw(IDS)), "is a compressed file"),
        ("a.bin", pickle.dumps(IDS, 4), "is a pickle"),
        ("a.bin", b"\x40\0\0\0\0\0\0\0" + b'{"a": {"dtype": "U16"}}' + raw(IDS), "a .safetensors"),
        ("a.bin", b"300 64\nthe " + raw(IDS), "is vectors of words"),
        ("a.bin", b"version https://git-lfs.github.com/spec/v1\n" * 9, "is a Git LFS pointer"),
        ("a.npy", raw(IDS), "lacks the header that NumPy writes: raw ids of 16 bits are read as a"),
        ("a.npy", b"\x93NUMPY", "can't read"),
        ("a.npy", saved(a=IDS[:0]), "a.npy"),
        ("a.npy", saved(a=np.zeros(9)), "has float64 [9], not integers in one axis"),
        ("a.npy", saved(a=np.zeros((3, 3), int)), "has int64 [3, 3], not integers in one axis"),
        ("a.npy", saved(a=np.array([{}])), "can't read"),
        ("a.npy", saved(a=np.arange(-1, 9)), "has the token id -1: allowed are 0 to 1,048,575"),
        ("a.npy", saved(a=np.arange(9) + 2**40), "has the token id 1,099,511,627,776: allowed"),
        ("a.txt", b"the river", f"a.txt is a .txt, not a file of token ids: {TAKEN}"),
        ("a.npz", saved(a=IDS, b=IDS), "a.npz is a .npz, not a file of token ids"),
        ("a.bin.gz", gzip.compress(raw(IDS)), "a.bin.gz is a .gz, not"),
        ("tokens", raw(IDS), "tokens is a file without a suffix, not"),
    ],
)
def test_what_is_not_certain_is_refused(tmp_path, name, content, words):
    """By a training and by --tokens alike."""
    path = write(tmp_path, {name: content}) / name
    refused(lambda: load(path), words)
    refused(lambda: token_ids(path), words)


def test_bad_folders(tmp_path):
    refused(lambda: token_ids(tmp_path), "is a folder, not a file of token ids: taken are")
    refused(lambda: load(tmp_path), "has no file that is read here, such as .bin, .npy")
    write(tmp_path, {"train.bin": raw(IDS)})
    refused(lambda: load(tmp_path), "it needs tokens to train on and to validate on")
    write(tmp_path, {"val.bin": raw(IDS)})
    assert load(tmp_path, 513).notes.startswith("val.bin is a copy of train.bin; ")
    words = "train.bin has the token id 512: allowed are 0 to 511, of a vocabulary of 512"
    refused(lambda: load(tmp_path, 512), words)
    write(tmp_path, {"train_labels.bin": raw(IDS % 2)})
    words = "train_labels.bin must be parts of one text, with names that differ in numbers only"
    refused(lambda: load(tmp_path), words)
    write(tmp_path, {"train.idx": "MMIDIDX"})
    refused(lambda: load(tmp_path / "train.bin"), "is data of litgpt, Megatron or fairseq")


MAPPED = """
import resource, sys
import jax, numpy as np
from mimetic_jax.data.feed.rows import TokenRows
from mimetic_jax.data.text.corpus import describe, load_text
from mimetic_jax.train.cluster.mesh import BATCH, make_mesh
jax.numpy.zeros(1)
used = [int(line.split()[1]) * 1024 for line in open("/proc/self/status") if "VmData" in line][0]
resource.setrlimit(resource.RLIMIT_DATA, (used + 2**27, used + 2**27))
corpus = load_text("text_tokens", sys.argv[1])
sharding = jax.sharding.NamedSharding(make_mesh(), BATCH)
feed = TokenRows(describe("text_tokens", sys.argv[1], corpus), 4, 4, 8, 8, True, 2, sharding)
rows = feed.place(corpus).train
assert rows.dtype == feed.shapes().dtype == np.uint16
inputs, targets, _ = jax.jit(lambda rows, key: feed.examples(rows, None, 5))(rows, 0)
assert inputs.dtype == targets.dtype == np.int32
np.testing.assert_array_equal(inputs, np.asarray(rows[:, 40:48]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits a process as Linux does")
@pytest.mark.slow
def test_a_file_larger_than_memory_is_read_where_it_is(tmp_path):
    """512 MiB of zeros, which are on no disk, by a process that may allocate 128 MiB."""
    with (tmp_path / "train.bin").open("wb") as file:
        file.truncate(2**29)
    write(tmp_path, {"val.bin": raw(IDS)})
    subprocess.run([sys.executable, "-c", MAPPED, str(tmp_path)], check=True)
