"""Token ids in files: `train.bin` and `val.bin` of nanoGPT and llm.c, or .npy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.data.home import name_of, split_in_name, split_of
from mimetic_jax.data.text.tokens import Corpus, starts

SUFFIXES = frozenset((".bin", ".npy"))

_HEADER = 256  # numbers int32 in front of llm.c's tokens: magic, version, number of tokens, zeros
_MAGIC = {20240520: "<u2", 20240801: "<u4"}  # of GPT-2's tokens and of Llama 3's
_MOST = 2**20  # of a vocabulary: each token has a row of the embedding


def load(path: Path, files: Sequence[Path], vocabulary: int = 0) -> Corpus:
    """The tokens of a file, or of a folder's `files`.

    A .bin file has ids of 16 bits, as nanoGPT writes it, unless it starts with llm.c's header. A
    .npy file has a row of integers. Names tell the splits, as train.bin, val.bin and test.bin do;
    several of a split are joined in order of their names. If there is no test split, the
    validation split is tested on, or the other way round. Tokens without splits are divided, 90 %,
    5 % and 5 %, at most 100,000 to test on.

    Args:
        vocabulary: the number of tokens; 0 for the largest id + 1.
    """
    below = path if path.is_dir() else path.parent
    told = {file: split_of(file.relative_to(below)) or split_in_name(file.stem) for file in files}
    notes = []
    if path.is_file() or not any(told.values()):
        tokens = np.concatenate([token_ids(file) for file in files])
        first, second = (int(start) for start in starts(len(tokens)))
        train, valid, test = tokens[:first], tokens[first:second], tokens[second:]
    else:
        splits = {split: [f for f in files if told[f] == split] for split in told.values()}
        if unnamed := splits.pop("", []):
            notes.append(f"no split in its name, left out: {', '.join(f.name for f in unnamed)}")
        held_out = splits.keys() & {"validation", "test"}
        if "train" not in splits or not held_out:
            raise InputError(
                f"{path} has {', '.join(file.name for file in files)}: it needs tokens to train "
                "on and to validate on, such as train.bin and val.bin"
            )
        joined = {name: np.concatenate([token_ids(f) for f in of]) for name, of in splits.items()}
        train = joined["train"]
        if len(held_out) == 1:
            (only,) = held_out
            notes.append(f"its {only} tokens are validated and tested on")
            valid = test = joined[only]
        else:
            valid, test = joined["validation"], joined["test"]
    largest = max(int(tokens.max(initial=0)) for tokens in (train, valid, test))
    if vocabulary and largest >= vocabulary:
        raise InputError(f"{path} has the token id {largest}: data.vocabulary {vocabulary} is less")
    if largest >= _MOST:
        raise InputError(f"{path} has the token id {largest}: at most {_MOST - 1} is allowed")
    if not vocabulary:
        notes.append(f"vocabulary {largest + 1:,}, the largest id + 1 (or give data.vocabulary)")
    symbols = tuple(map(str, range(vocabulary or largest + 1)))
    return Corpus(name_of(path), symbols, train, valid, test, "tokens", notes="; ".join(notes))


def token_ids(path: Path) -> np.ndarray:
    """The ids of a .bin or .npy file, int32 [N]."""
    if not path.stat().st_size:
        raise InputError(f"{path} is empty")
    try:
        numpy = path.suffix.lower() == ".npy"
        found = np.load(path, mmap_mode="r", allow_pickle=False) if numpy else _binary(path)
    except InputError:
        raise
    except (OSError, ValueError, EOFError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise InputError(f"can't read {path} ({reason})") from error
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise InputError(f"{path} has {found.dtype} {list(found.shape)}, not a row of token ids")
    if found.size and not (int(found.min()) >= 0 and int(found.max()) < 2**31):
        raise InputError(f"{path} has numbers from {found.min()} to {found.max()}, not token ids")
    return np.asarray(found, np.int32)


def _binary(path: Path) -> np.ndarray:
    size = path.stat().st_size
    if size >= 4 * _HEADER:
        header = np.fromfile(path, "<i4", _HEADER)
        if kind := _MAGIC.get(int(header[0])):
            expected = 4 * _HEADER + int(header[2]) * np.dtype(kind).itemsize
            if size != expected:
                raise InputError(f"{path} has {size:,} bytes, its header tells {expected:,}")
            return np.memmap(path, kind, "r", offset=4 * _HEADER)
    if size % 2:
        raise InputError(f"{path} has {size:,} bytes, an odd number: it isn't ids of 16 bits")
    return np.memmap(path, "<u2", "r")
