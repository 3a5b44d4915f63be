"""Call a function in its own process, because GPU memory is released only when a process ends."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from mimetic_jax.base.errors import InputError, error_text


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of an importable function in another process, which ends before this returns.

    Whatever it raises becomes an InputError, and so does its death, as without enough memory.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(function, *arguments).result()
        except InputError:
            raise
        except BrokenProcessPool as error:
            raise InputError("its process died, as without enough memory") from error
        except Exception as error:
            traceback.print_exception(error)
            raise InputError(error_text(error)) from error
