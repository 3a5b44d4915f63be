"""Token ids in files: .npy, or `train.bin` and `val.bin` of nanoGPT, llm.c and modded-nanogpt."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from mimetic_jax.base.errors import InputError, check_no_pointer
from mimetic_jax.data.paths import describe_skipped, group_copies, name_of, split_in_name, split_of
from mimetic_jax.data.text.tokens import Corpus, starts

SUFFIXES = frozenset((".bin", ".npy"))

_READ = (
    "files of token ids are .npy of integers in one axis, .bin of 16-bit ids as nanoGPT writes it, "
    "and .bin with the header of llm.c and modded-nanogpt"
)
_SAVE = "Save the ids with np.save, as .npy."
_HEADER = 256  # numbers of 32 bits before the tokens: magic, version, number of tokens, zeros
_KINDS = {(20240520, 1): "<u2", (20240801, 7): "<u4"}  # by magic and version: GPT-2's, Llama 3's
_NUMPY = b"\x93NUMPY"
_WHOLE = "whole"  # tokens that no name splits
_MOST = 2**20  # of a vocabulary: each token has a row of the embedding
_FEW, _SAMPLE = 400, 2**20  # numbers whose frequencies tell what they are, at least and at most


def load(
    path: Path,
    files: Sequence[Path],
    vocabulary: int = 0,
    others: Mapping[str, str] | None = None,
) -> Corpus:
    """Load the tokens of a file, or of a folder's `files`.

    Names tell the splits, as train.bin, val.bin and test.bin do. A file of a split stays a memory
    map; several, whose names differ in numbers alone, are joined in memory, in order of their
    names, those with the same bytes once. If there is no test split, the validation split is tested
    on, or the other way round. Tokens without splits are divided, 90%, 5% and 5%, at most
    100,000 to test on.

    Args:
        vocabulary: the number of tokens; 0 for the largest id + 1, of files that tell what they
            are: .bin without a header are bytes that may be anything.
        others: the other files of the folder, and why they are left out.
    """
    splits, unread, notes = _splits(path, files)
    held_out = [split for split in ("validation", "test") if split in splits]
    if _WHOLE not in splits and not ("train" in splits and held_out):
        raise InputError(
            f"{path} has {', '.join(file.name for file in files)}: it needs tokens to train "
            "on and to validate on, such as train.bin and val.bin"
        )
    read = {split: _joined(parts, vocabulary) for split, parts in splits.items()}
    largest = max(largest for _, largest in read.values())
    if _WHOLE in read:
        tokens, _ = read[_WHOLE]
        train, valid, test = np.split(tokens, [int(start) for start in starts(len(tokens))])
    else:
        train, valid, test = (read[split][0] for split in ("train", held_out[0], held_out[-1]))
        if len(held_out) == 1:
            notes.append(f"its {held_out[0]} tokens are validated and tested on")
    if not vocabulary:
        notes.append(f"vocabulary {largest + 1:,}, the largest id + 1 (or set data.vocabulary)")
    symbols = tuple(map(str, range(vocabulary or largest + 1)))
    notes.insert(0, describe_skipped({**(others or {}), **unread}))
    said = "; ".join(filter(None, notes))
    return Corpus(name_of(path), symbols, train, valid, test, "tokens", notes=said)


def token_ids(path: Path, vocabulary: int = 0) -> np.ndarray:
    """Read the ids of a .bin or .npy file, integers [N], all of a vocabulary: a memory map.

    Raises:
        InputError: if the file has no token ids, or can't tell how wide they are.
    """
    return _read(path, vocabulary)[0]


def _splits(
    path: Path, files: Sequence[Path]
) -> tuple[dict[str, list[Path]], dict[str, str], list[str]]:
    """The files of each split; those that aren't read, and why; notes."""
    below = path if path.is_dir() else path.parent
    told = {file: split_of(file.relative_to(below)) or split_in_name(file.stem) for file in files}
    if not any(told.values()) or path.is_file():
        told = dict.fromkeys(files, _WHOLE)
    splits: defaultdict[str, list[Path]] = defaultdict(list)
    names = {file: str(file.relative_to(below)) for file in files}
    unread = {names[file]: "no split in its name" for file in files if not told[file]}
    notes = []
    for group in group_copies(file for file in files if told[file]):
        firsts: dict[str, Path] = {}  # by split
        for file in group:
            if (first := firsts.setdefault(told[file], file)) is not file:
                unread[f"{names[file]} of {first.name}"] = "copies"
        for split, file in firsts.items():
            splits[split].append(file)
        first, *others = firsts.values()
        notes += [f"{names[other]} is a copy of {first.name}" for other in others]
    return {split: sorted(parts) for split, parts in splits.items()}, unread, notes


def _joined(files: Sequence[Path], vocabulary: int) -> tuple[np.ndarray, int]:
    """The ids of a split, and the largest."""
    if len({re.sub(r"\d+", "", file.name) for file in files}) > 1:
        raise InputError(
            f"{', '.join(str(file) for file in files[:10])} must be parts of one text, with names "
            "that differ in numbers only. Remove files from the folder that do not hold its tokens."
        )
    parts, largest = zip(*(_read(file, vocabulary) for file in files), strict=True)
    if len(parts) == 1:
        return parts[0], largest[0]
    kind = np.uint16 if max(largest) < 2**16 else np.int32
    try:
        return np.concatenate(parts, dtype=kind, casting="unsafe"), max(largest)
    except MemoryError as error:
        raise InputError(
            f"{files[0]} and {len(files) - 1} more have {sum(map(len, parts)):,} tokens, which "
            "memory doesn't hold: join them in one file, which is read where it is"
        ) from error


def _read(path: Path, vocabulary: int) -> tuple[np.ndarray, int]:
    """The ids of a file, and the largest."""
    if path.is_dir() or (suffix := path.suffix.lower()) not in SUFFIXES:
        what = "a folder" if path.is_dir() else f"a {path.suffix or 'file without a suffix'}"
        raise InputError(f"{path} is {what}: {_READ}")
    try:
        if not path.stat().st_size:
            raise InputError(f"{path} is empty")
        ids = _of_numpy(path) if suffix == ".npy" else _binary(path, vocabulary)
    except InputError:
        raise
    except (OSError, ValueError, EOFError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise InputError(f"can't read {path} ({reason})") from error
    if not ids.size:
        raise InputError(f"{path} has no tokens")
    smallest, largest = int(ids.min()) if ids.dtype.kind == "i" else 0, int(ids.max())
    allowed = range(vocabulary or _MOST)
    for number in (smallest, largest):
        if number not in allowed:
            whose = f", of a vocabulary of {vocabulary:,}" if vocabulary else ""
            raise InputError(
                f"{path} has the token id {number:,}: allowed are 0 to {allowed[-1]:,}{whose}"
            )
    return ids, largest


def _of_numpy(path: Path) -> np.ndarray:
    with path.open("rb") as file:
        if file.read(len(_NUMPY)) != _NUMPY:
            raise InputError(
                f"{path} lacks the header that NumPy writes: raw ids of 16 bits are read as "
                f"{path.stem}.bin"
            )
    ids = np.load(path, mmap_mode="r", allow_pickle=False)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise InputError(f"{path} has {ids.dtype} {list(ids.shape)}, not integers in one axis")
    return ids


def _binary(path: Path, vocabulary: int) -> np.ndarray:
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(4 * _HEADER)
    check_no_pointer(path, start)
    magic, version, count, _, *zeros = np.frombuffer(start.ljust(4 * _HEADER, b"?"), "<i4").tolist()
    if kind := _KINDS.get((magic, version)):
        if size != (expected := 4 * _HEADER + count * np.dtype(kind).itemsize):
            raise InputError(f"{path} has {size:,} bytes, its header tells {expected:,}")
        return np.memmap(path, kind, "r", offset=4 * _HEADER)
    if start.startswith(_NUMPY):
        raise InputError(f"{path} has the header of NumPy: name it {path.stem}.npy")
    if magic and not any(zeros):
        raise InputError(
            f"{path} has a header of magic number {magic} and version {version}: {_READ}"
        )
    if not vocabulary:
        raise InputError(
            f"{path} has no header that tells how wide its ids are. If they have 16 bits, pass the "
            "size of their vocabulary (vocab=50257 for GPT-2). Otherwise save them with np.save, "
            "as .npy."
        )
    if vocabulary > 2**16:
        raise InputError(
            f"{path} has no header, and 16 bits are too few for all ids of a vocabulary of "
            f"{vocabulary:,}. {_SAVE}"
        )
    if size % 2:
        raise InputError(f"{path} has {size:,} bytes, which can't be ids of 16 bits")
    ids = np.memmap(path, "<u2", "r")
    if what := _not_ids(ids[:_SAMPLE]):
        raise InputError(f"{path} seems to be {what}, not ids of 16 bits. {_SAVE}")
    return ids


def _not_ids(numbers: np.ndarray) -> str:
    """Say what numbers of 16 bits are instead of ids, by their frequencies; "" for ids.

    Small ids are more frequent, so that the upper bytes of ids differ from the lower ones, but not
    those at even places from those at odd ones.
    """
    if len(numbers) < _FEW:
        return ""
    upper = numbers >> 8
    if upper.any() and _distance(upper, numbers & 255) < 0.2:
        return "of 8 bits, a text or compressed"
    digits = np.frexp(numbers)[1]
    return "of 32 or more bits" if _distance(digits[::2], digits[1::2]) > 0.3 else ""


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    """The total variation between the frequencies of bytes, 0 to 1."""
    first, second = (np.bincount(array, minlength=256) / len(array) for array in (one, other))
    return float(np.abs(first - second).sum() / 2)
