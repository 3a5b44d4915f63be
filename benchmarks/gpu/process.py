"""A call in a process of its own, because the memory it takes of a GPU ends with it alone."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mimetic_jax.errors import InputError

_CHILD = """
import pickle, sys, traceback
sys.path[:] = pickle.load(sys.stdin.buffer)
function, arguments = pickle.load(sys.stdin.buffer)
try:
    answer = function(*arguments), None
except Exception as error:
    answer = None, f"{type(error).__name__}: {error}"
    if type(error).__name__ != "InputError":
        traceback.print_exc()
with open(sys.argv[1], "wb") as file:
    pickle.dump(answer, file)
"""


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns in another process, which is gone when this returns or is stopped.

    Args:
        function: of a module that can be imported; what it prints is seen.
        arguments: that can be pickled, as the result.

    Raises:
        InputError: if it raised anything, or died, as processes do that take too much memory.
    """
    sent = pickle.dumps(sys.path) + pickle.dumps((function, arguments))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "answer"
        # Not through stdout: libraries print there.
        done = subprocess.run([sys.executable, "-c", _CHILD, str(path)], input=sent)
        if done.returncode or not path.exists():
            raise InputError(f"its process ended with exit code {done.returncode}")
        result, failure = pickle.loads(path.read_bytes())
    if failure:
        raise InputError(failure.splitlines()[0].removeprefix("InputError: "))
    return result
