"""Files and folders of a user: paths with "~" for a home folder, names, texts, what is kept."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

import numpy as np

from mimetic_jax.base.errors import InputError, check_no_pointer

SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""The split that a name of a file or folder means, in lower case."""

INSTALLED = {"digits": "scikit-learn", "python_docs": "Python"}
"""Data sets that are read from no folder, and what they come with."""

_MOST_NAMED = 10  # files: more are counted
_CHUNK = 2**22  # bytes read at once: the strings of a chunk take about twenty times its size


def expanded(path: str) -> Path:
    """The path with the home folder in place of "~" or "~USER"."""
    if address := re.match(r"([a-z][a-z\d]+):/+", path):
        how = "copy it to a disk first"
        if address[1] == "gs":
            bucket, _, below = path[address.end() :].partition("/")
            how = (
                f"data are read from folders: mount it, as by gcsfuse {bucket} DIR, and give "
                f"{pathlib.PurePosixPath('DIR', below)}"
            )
        raise InputError(f"{path} is not on a local disk: {how}")
    try:
        found = Path(path).expanduser()
        found.exists()
    except (RuntimeError, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path[:200]} can't be opened ({reason})") from error
    return found


def existing(found: Path) -> Path:
    """The path, if there is a file or folder; else an InputError."""
    if not found.exists():
        raise InputError(f"there is no file or folder {found}")
    return found


def walk(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """The folders below one, itself first, with the names of the visible files in each.

    Symbolic links are followed. Each real folder comes once, under its own name rather than that of
    a link to it, so that links to folders above end nothing.
    """
    waiting, seen = [root], set[str]()
    while waiting:
        found = waiting.pop(0)
        for name, folders, files in os.walk(found):
            folder = Path(name)
            if (real := os.path.realpath(folder)) in seen:
                folders.clear()
                continue
            seen.add(real)
            # Behind a link may be a folder that comes under its own name.
            visible = sorted(_visible(folders))
            folders[:] = [each for each in visible if not (folder / each).is_symlink()]
            waiting += [folder / each for each in visible if each not in folders]
            yield folder, _visible(files)


def _visible(names: list[str]) -> list[str]:
    """Without what a system or an editor made."""
    return [name for name in names if not name.startswith(".") and name != "__MACOSX"]


class NotText(InputError):
    """A file is no text in UTF-8; `line` is the first one that shows it, `reason` is why."""

    def __init__(self, path: Path, line: int, offset: int, byte: int) -> None:
        super().__init__(f"{path}, line {line:,} isn't UTF-8: byte {offset} is {byte:#04x}")
        self.line, self.reason = line, "not UTF-8" if byte else "a zero byte"


def parts_of(path: Path, clean: Callable[[str], str] = str) -> Iterator[str]:
    """Yield the text of a file, without a byte order mark, in parts that end at a line end.

    It is UTF-8 without a zero byte, which UTF-16 has. Line ends are those of any system: CR LF and
    CR become LF.
    """
    offset, lines = 0, 1
    try:
        with path.open("rb") as file:
            while part := file.read(_CHUNK) + file.readline():
                check_no_pointer(path, part)
                if (zero := part.find(0)) >= 0:
                    raise UnicodeDecodeError("utf-8", part, zero, zero + 1, "a zero byte")
                text = _with_line_feeds(part.decode("utf-8"))
                yield clean(text if offset else text.removeprefix("\ufeff"))
                offset += len(part)
                lines += text.count("\n")
    except UnicodeDecodeError as error:
        lines += _with_line_feeds(part[: error.start].decode("utf-8", "replace")).count("\n")
        raise NotText(path, lines, offset + error.start, part[error.start]) from error
    except OSError as error:
        raise InputError(f"can't read {path} ({error.strerror})") from error
    if not offset:
        raise InputError(f"{path} is empty")


def _with_line_feeds(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def split_in_name(stem: str) -> str:
    """The split that the first or the last word of a name without suffix tells; "" for none.

    >>> split_in_name("ptb.valid"), split_in_name("Train-001"), split_in_name("a test")
    ('validation', 'train', 'test')
    """
    words = re.findall(r"[a-z]+", stem.lower()) or [""]
    return SPLITS.get(words[0], "") or SPLITS.get(words[-1], "")


def split_of(file: Path) -> str:
    """The split that a file is by its whole name, or that a folder above it is; "" for none.

    >>> split_of(Path("val/a.txt")), split_of(Path("test.bin")), split_of(Path("a test.txt"))
    ('validation', 'test', '')
    """
    names = (file.stem, *reversed(file.parts[:-1]))
    return next((SPLITS[name.lower()] for name in names if name.lower() in SPLITS), "")


def cache_folder() -> Path:
    """Where prepared data is kept: mimetic_jax in $XDG_CACHE_HOME, which is ~/.cache unless set."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "mimetic_jax")


def keep(path: Path, write: Callable[[IO[bytes]], object]) -> bool:
    """Write a file of the cache, whole or not at all; returns whether it could be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            try:
                write(file.file)
                file.close()
                os.replace(file.name, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(file.name)
                raise
    except OSError:  # no home folder, a full disk
        return False
    return True


def kept_arrays(
    path: Path, names: Iterable[str], make: Callable[[], dict[str, np.ndarray]]
) -> tuple[dict[str, np.ndarray], str]:
    """The arrays of a file of the cache, made and kept if there is none or it is damaged.

    The note is "" unless it was damaged: the checksums of its arrays are checked.
    """
    note = ""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            return {name: file[name] for name in names}, note
    except MemoryError:  # the file is whole
        raise
    except Exception as error:  # a damaged file may raise anything
        if not isinstance(error, OSError):  # else there is none
            note = f"{path} was damaged and is made again"
    arrays = make()
    keep(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]
    return arrays, note


def alike(
    files: Iterable[Path], content: Callable[[Path], Hashable] | None = None
) -> list[list[Path]]:
    """The files by what they contain: in a group of several, all but the first are copies of it.

    What is compared is `content`, or else the bytes, which are read of files of equal size alone. A
    file comes before links to it; files that can't be read are like no other.
    """
    groups: defaultdict[Hashable, list[Path]] = defaultdict(list)
    content = content or _bytes_of(files := list(files))
    for file in sorted(files, key=Path.is_symlink):
        groups[content(file)].append(file)
    return [*groups.values()]


def _bytes_of(files: Iterable[Path]) -> Callable[[Path], Hashable]:
    sizes = {file: file.stat().st_size for file in files if file.exists()}
    counts = Counter(sizes.values())

    def content(file: Path) -> Hashable:
        if counts[sizes.get(file, -1)] < 2:
            return file
        with contextlib.suppress(OSError), file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").digest()
        return file

    return content


def left_out(why: Mapping[str, str]) -> str:
    """The files that aren't read, and why: by name, or of more than ten by suffix; "" for none.

    >>> left_out({"a.md": "no image", "Makefile": "no image", "b.py": "empty"})
    'left out: 3 (a.md, Makefile: no image; b.py: empty)'
    >>> left_out({f"{n}.MD": "no image" for n in range(1200)} | {"b": "no image"})
    'left out: 1,201 (.md 1,200, no suffix 1: no image)'
    """
    names: defaultdict[str, list[str]] = defaultdict(list)
    for name, reason in why.items():
        names[reason].append(name)
    said = "; ".join(f"{_listed(files)}: {reason}" for reason, files in names.items())
    return f"left out: {len(why):,} ({said})" if why else ""


def _listed(files: list[str]) -> str:
    if len(files) <= _MOST_NAMED:
        return ", ".join(files)
    counts = Counter(Path(name).suffix.lower() or "no suffix" for name in files)
    most_first = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{suffix} {count:,}" for suffix, count in most_first)


def check_unused(name: str, data_dir: str | None, own: str) -> None:
    """Check that no folder is given for a data set of `INSTALLED`.

    The caller would train on other data than it names. `own` are the sets that read a folder.
    """
    if data_dir:
        raise InputError(
            f"{name} comes with {INSTALLED[name]} and reads no folder, so {data_dir} would be "
            f"ignored. For your own data set data.name to {own}, or use the configuration "
            "`images` or `text`."
        )


def name_of(path: Path) -> str:
    """The name of the data in a folder or file: of the folder itself for "." and "..", too."""
    return Path(os.path.abspath(path)).stem
