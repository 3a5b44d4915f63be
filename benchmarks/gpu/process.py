"""Call a function in its own process, because GPU memory is released only when a process ends."""

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


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a function in another process, which ends before this returns or raises.

    Args:
        function: of an importable module; its output is shown.
        arguments: picklable, as is the result.

    Raises:
        InputError: if the function raised anything or the process died, as without enough memory.
    """
    sent = pickle.dumps(sys.path) + pickle.dumps((function, arguments))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "answer"
        # A file and not stdout, because libraries print there.
        done = subprocess.run([sys.executable, "-c", _CHILD, str(path)], input=sent)
        if done.returncode or not path.exists():
            raise InputError(f"its process ended with exit code {done.returncode}")
        result, failure = pickle.loads(path.read_bytes())
    if failure:
        raise InputError(failure.splitlines()[0].removeprefix("InputError: "))
    return result
