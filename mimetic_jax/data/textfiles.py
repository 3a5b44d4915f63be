"""Text files: UTF-8, whatever their line ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from mimetic_jax.base.errors import InputError, check_no_pointer

_CHUNK = 2**22  # bytes read at once: the strings of a chunk take about twenty times its size


class NotText(InputError):
    """A file isn't text in UTF-8; `line` is the first one that shows it, `reason` is why."""

    def __init__(self, path: Path, line: int, offset: int, byte: int) -> None:
        super().__init__(f"{path}, line {line:,} isn't UTF-8: byte {offset} is {byte:#04x}")
        self.line, self.reason = line, "not UTF-8" if byte else "a zero byte"


def read_parts(path: Path, clean: Callable[[str], str] = str) -> Iterator[str]:
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
