"""Several processes that train as one: joining, agreeing, and failing together."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import threading
import time
from typing import Any, NoReturn

import jax
import numpy as np
from jax.experimental import multihost_utils

from mimetic_jax.base.errors import InputError, error_text

_FAILED, _HEARD = "mimetic/failed", "mimetic/heard"
_leaving = threading.Event()


def join(
    coordinator: str | None, num_processes: int | None, process_id: int | None, automatic: bool
) -> None:
    """Make this process one of several. Call it before anything asks JAX for a device.

    Args:
        coordinator: HOST:PORT of process 0, to join by hand; it needs the two numbers.
        num_processes: P.
        process_id: from 0 to P − 1.
        automatic: let JAX find the others: on a TPU pod, under Slurm, on GKE, under MPI.

    Raises:
        InputError: if the arguments contradict each other, or no process answers.
    """
    by_hand = (coordinator, num_processes, process_id)
    if automatic:
        if any(value is not None for value in by_hand):
            raise InputError("give --distributed, or --coordinator and its two numbers, not both")
        _initialize({})
    elif any(value is not None for value in by_hand):
        if coordinator is None or num_processes is None or process_id is None:
            raise InputError(
                "joining by hand needs all of --coordinator, --num_processes and --process_id: "
                f"given are {coordinator}, {num_processes} and {process_id}"
            )
        if not re.fullmatch(r"[^\s:]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}", coordinator):
            raise InputError(f"coordinator {coordinator!r} is not HOST:PORT")
        if not 0 <= process_id < num_processes:
            raise InputError(f"process_id {process_id} is not one of {num_processes} processes")
        _initialize(
            {
                "coordinator_address": coordinator,
                "num_processes": num_processes,
                "process_id": process_id,
            }
        )


def _initialize(arguments: dict[str, Any]) -> None:
    # JAX waits for five minutes unless given a number, without a message.
    timeout = int(os.environ.get("MIMETIC_JOIN_SECONDS", "300"))
    try:
        jax.distributed.initialize(**arguments, initialization_timeout=timeout)
    except (RuntimeError, ValueError) as error:
        raise InputError(f"couldn't join the other processes ({error_text(error)})") from error
    threading.Thread(target=_listen, daemon=True).start()


def is_first() -> bool:
    """Whether this process writes files and prints: process 0 does."""
    return jax.process_index() == 0


def agreed(value: bool) -> bool:
    """The value of process 0, on every process."""
    if jax.process_count() == 1:
        return value
    return bool(multihost_utils.broadcast_one_to_all(np.int32(value)))


def wait_for_all(name: str) -> None:
    """Return once every process has called this."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


def check_processes_agree(**things: Any) -> None:
    """Check that all processes have the same config, code and data.

    Raises:
        InputError: on every process; names what differs, and the processes that differ from 0.
    """
    if jax.process_count() == 1:
        return
    texts = [json.dumps(thing, sort_keys=True, default=str) for thing in things.values()]
    digests = [int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) for text in texts]
    everyone = multihost_utils.process_allgather(np.array(digests, np.uint32))
    for index, name in enumerate(things):
        differing = np.flatnonzero(everyone[:, index] != everyone[0, index])
        if differing.size:
            raise InputError(
                f"the {name} of process {', '.join(map(str, differing))} differs from that of "
                f"process 0, among {len(everyone)} processes"
            )


def leave(code: int, reason: str, text: str) -> NoReturn:
    """End this process and all others, which would otherwise wait for it, some for minutes.

    Args:
        code: the exit code of all processes.
        reason: one line that the others print.
        text: what this one prints.
    """
    several = jax.distributed.is_initialized()
    if several and _leaving.is_set():  # what fails now fails because another process ends
        threading.Event().wait()
    _leaving.set()
    print(text, file=sys.stderr)
    if several:
        _end(code, reason)
    sys.exit(code)


def _listen() -> None:
    """End this process when another one fails."""
    while not _leaving.wait(1):
        try:
            failures = _joined().client.key_value_dir_get(_FAILED)
        except Exception:  # the store closed: with the run, or with process 0, which JAX reports
            return
        if failures and not _leaving.is_set():
            _leaving.set()
            code, reason = json.loads(failures[0][1])
            print(f"error: {reason}", file=sys.stderr)
            _end(code)


def _end(code: int, reason: str = "") -> NoReturn:
    """End this process once all have read the message: JAX reports a lost process at length."""
    sys.stdout.flush()
    sys.stderr.flush()
    deadline = time.monotonic() + 10
    try:
        joined = _joined()
        if reason:
            message = json.dumps([code, f"process {joined.process_id} failed: {reason}"])
            joined.client.key_value_set(f"{_FAILED}/{joined.process_id}", message)
        joined.client.key_value_set(f"{_HEARD}/{joined.process_id}", "")
        while time.monotonic() < deadline:
            if len(joined.client.key_value_dir_get(_HEARD)) == joined.num_processes:
                break
            time.sleep(0.1)
        if joined.process_id == 0:  # which keeps the store
            time.sleep(1)
    finally:
        os._exit(code)


def _joined() -> Any:
    """JAX's key-value store, and process numbers that don't wait for the devices."""
    # JAX has no public function for its store.
    return multihost_utils.distributed.global_state
