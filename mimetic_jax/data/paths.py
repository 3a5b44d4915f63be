"""Files and folders of a user: paths with "~" for a home folder, names, splits, copies."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from pathlib import Path

from mimetic_jax.base.errors import InputError

SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""The split that a name of a file or folder means, in lower case."""

INSTALLED = {"digits": "scikit-learn", "python_docs": "Python"}
"""Data sets that are read from no folder, and what they come with."""

_MOST_NAMED = 10  # files: more are counted


def local_path(path: str) -> Path:
    """Put the home folder in place of "~" or "~USER" of a path; refuse the address of a bucket."""
    if address := re.match(r"([a-z][a-z\d]+):/+", path):
        how = "copy it to a disk first"
        if address[1] == "gs":
            bucket, _, below = path[address.end() :].partition("/")
            how = (
                f"data are read from folders: mount it, as by gcsfuse {bucket} DIR, and pass "
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


def check_exists(found: Path) -> Path:
    """Return the path if there is a file or folder; else raise InputError."""
    if not found.exists():
        raise InputError(f"there is no file or folder {found}")
    return found


def walk(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield the folders below one, itself first, with the names of the visible files in each.

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


def split_in_name(stem: str) -> str:
    """Find the split in the first or the last word of a name without suffix; "" for none.

    >>> split_in_name("ptb.valid"), split_in_name("Train-001"), split_in_name("a test")
    ('validation', 'train', 'test')
    """
    words = re.findall(r"[a-z]+", stem.lower()) or [""]
    return SPLITS.get(words[0], "") or SPLITS.get(words[-1], "")


def split_of(file: Path) -> str:
    """Find the split in the whole name of a file or of a folder above it; "" for none.

    >>> split_of(Path("val/a.txt")), split_of(Path("test.bin")), split_of(Path("a test.txt"))
    ('validation', 'test', '')
    """
    names = (file.stem, *reversed(file.parts[:-1]))
    return next((SPLITS[name.lower()] for name in names if name.lower() in SPLITS), "")


def group_copies(
    files: Iterable[Path], content: Callable[[Path], Hashable] | None = None
) -> list[list[Path]]:
    """Group files by what they contain: all but the first of a group are copies of it.

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


def describe_skipped(why: Mapping[str, str]) -> str:
    """List the files that aren't read, and why: by name, or of more than ten by suffix.

    >>> describe_skipped({"a.md": "no image", "Makefile": "no image", "b.py": "empty"})
    'left out: 3 (a.md, Makefile: no image; b.py: empty)'
    >>> describe_skipped({f"{n}.MD": "no image" for n in range(1200)} | {"b": "no image"})
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
    """Name the data in a folder or file: after the folder itself for "." and "..", too."""
    return Path(os.path.abspath(path)).stem
