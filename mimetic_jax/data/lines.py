"""Files of text, read as UTF-8 with the line ends of any system."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from mimetic_jax.base.errors import InputError, check_no_pointer

_CHUNK = 2**22  # bytes read at once: the strings of a chunk take about twenty times its size


def parts_of(path: Path, clean: Callable[[str], str] = lambda text: text) -> Iterator[str]:
    """Yield the text of a file, without a byte order mark, in parts that end at a line end.

    Line ends are those of any system: CR LF and CR become LF.

    Raises:
        InputError: it is empty, not UTF-8, or can't be read.
    """
    offset = 0
    try:
        with path.open("rb") as file:
            while part := file.read(_CHUNK) + file.readline():
                check_no_pointer(path, part)
                text = part.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
                yield clean(text if offset else text.removeprefix("\ufeff"))
                offset += len(part)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} isn't UTF-8: byte {offset + error.start} is {part[error.start]:#04x}"
        ) from error
    except OSError as error:
        raise InputError(f"can't read {path} ({error.strerror})") from error
    if not offset:
        raise InputError(f"{path} is empty")
