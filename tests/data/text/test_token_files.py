"""Token ids as nanoGPT, llm.c and NumPy write them, and what isn't certain to be some."""

import functools
import gzip
import io
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


def load(folder, vocabulary: int = 513):
    return load_text("text_tokens", str(folder), vocabulary)


def test_nano_gpt(tmp_path):
    """meta.pkl is left out: reading pickles runs what is in them."""
    files = {"train.bin": raw(IDS), "val.bin": raw(IDS[:300]), "meta.pkl": b"x"}
    corpus = load(write(tmp_path, files))
    np.testing.assert_array_equal(corpus.train, IDS)
    for tokens in (corpus.valid, corpus.test):
        np.testing.assert_array_equal(tokens, IDS[:300])
    assert corpus.notes == (
        "left out: 1 (meta.pkl: no token ids); its validation tokens are validated and tested on"
    )
    info = describe("text_tokens", str(tmp_path), vocabulary=520)
    sizes = info.level, info.vocabulary, info.num_train, info.test_bytes
    assert sizes == ("tokens", 520, 1000, 0)
    refused(
        lambda: load(tmp_path, 0), "has no header that tells how wide its ids are", "vocab=50257"
    )


def test_llm_c_in_several_files(tmp_path):
    files = {f"fineweb_train_{n}.bin": llm_c(IDS + n) for n in (2, 1)}
    files |= {"fineweb_val_0.bin": llm_c(WIDE[:9], 20240801, 7), "other.bin": llm_c(IDS)}
    (write(tmp_path, files) / "fineweb_train_3.bin").symlink_to(tmp_path / "fineweb_train_2.bin")
    corpus = load(tmp_path, 0)
    np.testing.assert_array_equal(corpus.train, np.concatenate([IDS + 1, IDS + 2]))
    assert corpus.notes.endswith("vocabulary 1,049, the largest id + 1 (or set data.vocabulary)")
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
    """Of .npy, or by the header of llm.c; what 16 bits can't hold is refused by the vocabulary."""
    write(tmp_path, {"a.npy": saved(a=WIDE), "b.bin": llm_c(WIDE, 20240801, 7)})
    for name, vocabulary in (("a.npy", 0), ("a.npy", 128_000), ("b.bin", 0)):
        np.testing.assert_array_equal(load(tmp_path / name, vocabulary).train, WIDE[:900])
    path = write(tmp_path, {"c.bin": raw(WIDE % 60_000)}) / "c.bin"
    for read in (load, token_ids):
        refused(
            functools.partial(read, path, 128_256),
            "16 bits are too few for all ids of a vocabulary of 12",
        )


RANDOM = np.random.default_rng(0)
FREQUENT = RANDOM.zipf(1.3, 4000) % 5000  # small ids are frequent
TEXT = b" ".join(RANDOM.choice([b"the", b"river", b"was", b"cold", b"again"], 1000))
WIDER, NARROWER = "seems to be of 32 or more bits", "seems to be of 8 bits, a text or compressed"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (raw(FREQUENT, np.uint32), WIDER),
        (raw(FREQUENT % 9, np.int32), WIDER),
        (raw(FREQUENT, np.int64), WIDER),
        (raw(FREQUENT, np.float32), WIDER),
        (raw(FREQUENT, np.float64), WIDER),
        (raw(FREQUENT % 256, np.uint8), NARROWER),
        (raw(RANDOM.integers(0, 4, 4000), np.uint8), NARROWER),
        (TEXT[: len(TEXT) // 2 * 2], NARROWER),
        (gzip.compress(raw(FREQUENT))[:4000], NARROWER),
        (raw(FREQUENT, ">u2"), "allowed are 0 to 49,999, of a vocabulary of 50,000"),
    ],
)
def test_other_numbers_are_no_ids_of_16_bits(tmp_path, content, words):
    """Though all of 16 bits are in the vocabulary, but for the other order of bytes."""
    path = write(tmp_path, {"a.bin": content}) / "a.bin"
    for read in (load, token_ids):
        refused(functools.partial(read, path, 50_000 if "allowed" in words else 2**16), words)


@pytest.mark.parametrize("ids", [FREQUENT, RANDOM.integers(0, 50_257, 100_000)])
def test_ids_of_16_bits(tmp_path, ids):
    path = write(tmp_path, {"a.bin": raw(ids)}) / "a.bin"
    np.testing.assert_array_equal(token_ids(path, 50_257), ids)


def test_two_kinds_of_tokens_that_alternate_are_read_from_numpy(tmp_path):
    """In a .bin they look like the halves of wider numbers."""
    ids = np.tile([5, 400], 300)
    write(tmp_path, {"a.bin": raw(ids), "a.npy": saved(a=ids)})
    refused(lambda: token_ids(tmp_path / "a.bin", 513), WIDER, "Save the ids with np.save, as .npy")
    np.testing.assert_array_equal(token_ids(tmp_path / "a.npy", 513), ids)


@pytest.mark.parametrize(
    ("ids", "vocabulary"), [(IDS % 4, 4), (np.repeat([3, 0, 40], 300), 41), (0 * IDS, 1)]
)
def test_small_vocabularies_are_no_halves(tmp_path, ids, vocabulary):
    corpus = load(write(tmp_path, {"a.bin": raw(ids)}), vocabulary)
    assert (len(corpus.train), len(corpus.vocabulary)) == (len(ids) * 9 // 10, vocabulary)


READ = (
    "files of token ids are .npy of integers in one axis, .bin of 16-bit ids as nanoGPT writes it"
)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.bin", b"", "a.bin is empty"),
        ("a.bin", b"abc", "a.bin has 3 bytes, which can't be ids of 16 bits"),
        ("a.bin", llm_c(IDS, more=1), "a.bin has 3,024 bytes, its header tells 3,026"),
        ("a.bin", llm_c(IDS)[:512], "a.bin has 512 bytes, its header tells 3,024"),
        ("a.bin", llm_c(IDS, 20240522), "a header of magic number 20240522 and version 1: files"),
        ("a.bin", llm_c(IDS, version=2), "a header of magic number 20240520 and version 2: files"),
        ("a.bin", saved(a=IDS), "has the header of NumPy: name it a.npy"),
        ("a.bin", b"version https://git-lfs.github.com/spec/v1\n" * 9, "is a Git LFS pointer"),
        ("a.npy", raw(IDS), "lacks the header that NumPy writes: raw ids of 16 bits are read as a"),
        ("a.npy", b"\x93NUMPY", "can't read"),
        ("a.npy", saved(a=IDS[:0]), "a.npy"),
        ("a.npy", saved(a=np.zeros(9)), "has float64 [9], not integers in one axis"),
        ("a.npy", saved(a=np.zeros((3, 3), int)), "has int64 [3, 3], not integers in one axis"),
        ("a.npy", saved(a=np.array([{}])), "can't read"),
        ("a.npy", saved(a=np.arange(-1, 9)), "has the token id -1: allowed are 0 to 512, of a"),
        ("a.npy", saved(a=np.arange(9) + 2**40), "has the token id 1,099,511,627,776: allowed"),
        ("a.txt", b"the river", f"a.txt is a .txt: {READ}"),
        ("a.npz", saved(a=IDS, b=IDS), "a.npz is a .npz: files of token ids"),
        ("a.bin.gz", gzip.compress(raw(IDS)), "a.bin.gz is a .gz: files"),
        ("tokens", raw(IDS), "tokens is a file without a suffix: files"),
    ],
)
def test_what_is_not_certain_is_refused(tmp_path, name, content, words):
    """By a training and by --tokens alike."""
    path = write(tmp_path, {name: content}) / name
    for read in (load, token_ids):
        refused(functools.partial(read, path, 513), words)


def test_bad_folders(tmp_path):
    refused(lambda: token_ids(tmp_path), "is a folder: files of token ids are .npy")
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


MAPPED = """
import resource, sys
import jax, numpy as np
from mimetic_jax.data.feed.rows import TokenRows
from mimetic_jax.data.text.corpus import describe, load_text
from mimetic_jax.train.cluster.mesh import BATCH, make_mesh
jax.numpy.zeros(1)
used = [int(line.split()[1]) * 1024 for line in open("/proc/self/status") if "VmData" in line][0]
resource.setrlimit(resource.RLIMIT_DATA, (used + 2**27, used + 2**27))
corpus = load_text("text_tokens", sys.argv[1], 513)
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
