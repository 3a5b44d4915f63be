"""Calls of main.py, done by processes of this machine, an array of Slurm or pods of GKE.

A queue gives a list of calls, whatever they train. Each executor is one function of that list.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from launch.gke import manifest, parse
from mimetic_jax.errors import InputError, blaming
from mimetic_jax.train.cluster.preemption import EXIT_CODE
from mimetic_jax.train.store.places import Place

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of main.py.

    Attributes:
        title: its comparison and run, for people.
        flags: of main.py.
    """

    title: str
    flags: tuple[str, ...]

    @property
    def name(self) -> str:
        """A valid name of Kubernetes, unique per call.

        >>> Call("width96 norm_matched/0", ()).name
        'width96-norm-matched-0-e3b0c4'
        """
        words = re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")
        mark = hashlib.sha256("\t".join(self.flags).encode()).hexdigest()[:6]
        return f"{'' if words[0].isalpha() else 'run-'}{words[:28].strip('-')}-{mark}"


def options_of(launcher: str) -> list[str]:
    """The options of --launcher, split as by a shell.

    Raises:
        InputError: a quote in it is never closed.
    """
    try:
        return shlex.split(launcher)
    except ValueError as error:
        raise InputError(f"--launcher={launcher!r}: {error}") from error


def slurm(
    calls: Sequence[Call],
    folder: Place,
    options: Sequence[str],
    at_once: int | None,
    dry_run: bool,
) -> str:
    """Submit an array of Slurm, a call per job; returns what sbatch prints.

    Args:
        calls: to submit.
        folder: that keeps the list of calls.
        options: of launch/slurm.sbatch and sbatch.
        at_once: jobs that run at a time; no limit if None.
        dry_run: return the command and the list instead.

    Raises:
        InputError: a flag that a line can't hold, a folder in a bucket, or an error of the script.
    """
    for flag in (flag for call in calls for flag in call.flags):
        if "\t" in flag or "\n" in flag:
            raise InputError(f"flag {flag!r} has a tab or a newline, which a job file can't hold")
    if folder.in_bucket:
        raise InputError(f"--workdir={folder}: --to=slurm needs a folder")
    lines = "".join("\t".join(call.flags) + "\n" for call in calls)
    # Named by its content: a queued array reads its file only when it starts.
    path = folder / f"jobs_{hashlib.sha256(lines.encode()).hexdigest()[:8]}.tsv"
    limit = [f"--limit={at_once}"] if at_once else []
    command = ["bash", "launch/slurm.sbatch", f"--array={path}", *limit, *options]
    if dry_run:
        return f"{shlex.join(command)}\n# contents of {path}:\n{lines.rstrip()}"
    folder.make()
    path.write(lines)
    return _output(command)


def gke(calls: Sequence[Call], options: Sequence[str]) -> str:
    """Manifests to pipe into kubectl, one per call.

    Raises:
        InputError: for options that launch/gke.py refuses.
    """
    with blaming("launch/gke.py"):
        given = [[f"--name={call.name}", *options, "--", *call.flags] for call in calls]
        return "\n".join(manifest(parse(arguments)) for arguments in given)


def local(calls: Sequence[Call], logs: Place, at_once: int, say: Say = print) -> int:
    """Run calls on this machine, each with a log.

    If CUDA_VISIBLE_DEVICES lists several GPUs, each process gets one. SIGTERM and Ctrl-C send
    SIGTERM to every running process, and no further one starts.

    Args:
        calls: in this order.
        logs: folder of the logs.
        at_once: processes at a time.
        say: prints a line.

    Returns:
        0 if all finished, 75 if some were stopped and none failed, else 1.
    """
    waiting, stopping = list(enumerate(calls, 1)), False
    running: dict[int, _Running] = {}
    codes: list[int] = []

    def stop(number: int, frame: object) -> None:
        nonlocal stopping
        stopping = True
        for process in running.values():
            process.popen.terminate()

    before = {sign: signal.signal(sign, stop) for sign in (signal.SIGTERM, signal.SIGINT)}
    try:
        while running or (waiting and not stopping):
            for slot in range(at_once):
                if slot not in running and waiting and not stopping:
                    number, call = waiting.pop(0)
                    label = f"[{number}/{len(calls)}] {call.title}"
                    running[slot] = _start(call, slot, logs, label, say)
                    if stopping:  # the signal arrived before the process existed
                        running[slot].popen.terminate()
            for slot, process in list(running.items()):
                if process.popen.poll() is not None:
                    codes.append(_ended(running.pop(slot), say))
            time.sleep(0.05)
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)
    if any(code not in (0, EXIT_CODE) for code in codes):
        return 1
    return EXIT_CODE if stopping or EXIT_CODE in codes else 0


@dataclasses.dataclass(frozen=True)
class _Running:
    popen: subprocess.Popen[bytes]
    label: str
    log: pathlib.Path
    began: float


def _start(call: Call, slot: int, logs: Place, label: str, say: Say) -> _Running:
    log = pathlib.Path(str(logs / f"{call.name}.log"))
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ)
    if devices := [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]:
        environment["CUDA_VISIBLE_DEVICES"] = devices[slot % len(devices)]
    say(f"{label}: starts, {log}")
    with log.open("ab") as file:
        popen = subprocess.Popen(
            [sys.executable, "main.py", *call.flags],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # Ctrl-C reaches only the queue, which sends SIGTERM
        )
    return _Running(popen, label, log, time.perf_counter())


def _ended(process: _Running, say: Say) -> int:
    code, seconds = process.popen.returncode, time.perf_counter() - process.began
    if code == -signal.SIGTERM:  # before main.py handles SIGTERM: nothing to save
        code = EXIT_CODE
    if code == 0:
        say(f"{process.label}: done in {seconds:.1f} s")
    elif code == EXIT_CODE:
        say(f"{process.label}: stopped")
    else:
        lines = process.log.read_text(errors="replace").strip().splitlines()
        say(f"{process.label}: failed with {code}: {lines[-1] if lines else 'no output'}")
    return code


def _output(command: Sequence[str]) -> str:
    """The output of a launch script, whose own message is the error if it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise InputError(f"{command[1]}: {lines[-1].removeprefix('error: ')}")
    return done.stdout.rstrip()
