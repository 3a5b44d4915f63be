"""A line when no step has ended for a while: a hung input or device raises no error."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Watch:
    """Prints a line whenever no step has ended for some seconds.

    Args:
        seconds: to wait before the line; 0: never.
        say: prints a line.
    """

    def __init__(self, seconds: float, say: Callable[[str], None]) -> None:
        self._seconds, self._say = seconds, say
        self._doing, self._quiet = "starting", 0.0
        self._woken, self._closed = threading.Event(), False
        if seconds:
            threading.Thread(target=self._wait, daemon=True).start()

    def now(self, doing: str) -> None:
        """Record progress, and what has begun, such as "waiting for data"."""
        self._doing = doing
        self._woken.set()

    def close(self) -> None:
        self._closed = True
        self._woken.set()

    def _wait(self) -> None:
        while not self._closed:
            if self._woken.wait(self._seconds):
                self._woken.clear()
                self._quiet = 0.0
            else:
                self._quiet += self._seconds
                self._say(f"nothing has happened for {self._quiet:.0f} s: {self._doing}")
