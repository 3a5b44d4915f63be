"""Several processes that train as one: joining, agreeing, and ending."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
from typing import Any, NoReturn

import jax
import numpy as np
from jax.experimental import multihost_utils

from mimetic_jax.base.errors import InputError, error_text


def join(
    coordinator: str | None, num_processes: int | None, process_id: int | None, automatic: bool
) -> None:
    """Make this process one of several. Call it before anything asks JAX for a device.

    `coordinator` is HOST:PORT of process 0. If it is automatic, JAX finds the others: on a TPU pod,
    under Slurm, on GKE, under MPI.
    """
    by_hand = any(value is not None for value in (coordinator, num_processes, process_id))
    if automatic and by_hand:
        raise InputError("pass --distributed, or --coordinator and its two numbers, not both")
    if not automatic and not by_hand:
        return
    if by_hand:
        if coordinator is None or num_processes is None or process_id is None:
            raise InputError(
                "joining by hand needs all of --coordinator, --num_processes and --process_id: "
                f"given are {coordinator}, {num_processes} and {process_id}"
            )
        if not re.fullmatch(r"[^\s:]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}", coordinator):
            raise InputError(f"coordinator {coordinator!r} is not HOST:PORT")
        if not 0 <= process_id < num_processes:
            raise InputError(f"process_id {process_id} is not one of {num_processes} processes")
    try:
        jax.distributed.initialize(coordinator, num_processes, process_id)
    except (RuntimeError, ValueError) as error:
        raise InputError(f"couldn't join the other processes ({error_text(error)})") from error


def is_first() -> bool:
    """Tell whether this process writes files and prints: process 0 does."""
    return jax.process_index() == 0


def agreed(value: bool) -> bool:
    """Return the value of process 0, on every process."""
    if jax.process_count() == 1:
        return value
    return bool(multihost_utils.broadcast_one_to_all(np.int32(value)))


def wait_for_all(name: str) -> None:
    """Return once every process has called this."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


def check_processes_agree(**things: Any) -> None:
    """Check that all processes have the same config, code and data; all name those that differ."""
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


def leave(code: int) -> NoReturn:
    """End this process, and by that all others: JAX's coordination service ends those that miss it.

    It finds a lost process 0 at once and another one within 100 seconds; a process whose collective
    fails ends earlier, by that error. At the ordinary end of Python, JAX would wait for five
    minutes for the others, which wait for this one.
    """
    if jax.distributed.is_initialized():
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(1)  # what fails in all processes is then reported by all
        os._exit(code)
    sys.exit(code)
