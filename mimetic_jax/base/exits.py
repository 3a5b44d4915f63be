"""How commands end: by one line if the input is at fault, and by the exit code that says why."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
from collections.abc import Callable, Iterator

from mimetic_jax.base.errors import InputError, innermost


class EarlyExit(Exception):
    """End a command with what was asked for, such as a list of arguments, in place of its work."""


Leave = Callable[[int], None]
"""Takes the exit code with which the process is to end; it may end it."""


@contextlib.contextmanager
def reported(leave: Leave | None = None) -> Iterator[None]:
    """End a command as its caller expects: by an exit code, and one line if it is not a bug.

    The code is 2 for bad input, 130 for an interruption, and 1 for everything else: output that
    can't be written, a reader that closed the pipe, as in `mimetic configs | head`, or a bug, whose
    traceback is printed.

    >>> with reported():
    ...     raise InputError("batch 0 is not positive")
    Traceback (most recent call last):
    SystemExit: 2

    `leave` is called once the error is printed, except for a closed pipe.
    """
    _open_streams()
    try:
        try:
            yield
        except EarlyExit as answer:
            print(answer)
        finally:
            sys.stdout.flush()  # Python's own at exit would report a full disk by a traceback
    except InputError as error:
        code, text = 2, f"error: {error}"
    except KeyboardInterrupt:
        code, text = 130, "interrupted"
    except BrokenPipeError:
        _drop_output()
        sys.exit(1)
    except OSError as error:
        _drop_output()
        code, text = 1, f"error: {innermost(error)}"
    except Exception:
        code, text = 1, traceback.format_exc().rstrip()
    else:
        return
    print(text, file=sys.stderr)
    if leave:
        leave(code)
    sys.exit(code)


def _open_streams() -> None:
    """Let stdout and stderr take any text, and nowhere if the caller closed them."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - for the whole process
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # an ASCII terminal has no Δ


def _drop_output() -> None:
    """Send what is left to print nowhere: stdout takes no more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
