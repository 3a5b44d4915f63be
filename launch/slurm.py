"""Calls of main.py as an array of Slurm."""

from __future__ import annotations

import hashlib
import shlex
import subprocess
from collections.abc import Sequence

from mimetic_jax.base.errors import InputError
from mimetic_jax.train.store.places import Place


def submit(
    calls: Sequence[Sequence[str]], folder: Place, launcher: str, *, dry_run: bool = False
) -> str:
    """Submit an array, a call per job; returns what sbatch prints.

    Args:
        calls: flags of main.py.
        folder: that keeps the list of calls.
        launcher: options of sbatch, quoted as for a shell.
        dry_run: return the command and the list instead.

    Raises:
        InputError: a flag that a line can't hold, a folder in a bucket, or an error of sbatch.
    """
    if not calls:
        return "every run has its line"
    for flag in (flag for call in calls for flag in call):
        if "\t" in flag or "\n" in flag:
            raise InputError(f"flag {flag!r} has a tab or a newline, which a job file can't hold")
    if folder.in_bucket:
        raise InputError(f"--workdir={folder}: --to=slurm needs a folder")
    try:
        options = shlex.split(launcher)
    except ValueError as error:
        raise InputError(f"--launcher={launcher!r}: {error}") from error
    lines = "".join("\t".join(call) + "\n" for call in calls)
    # Named by its content: a queued array reads its file only when it starts.
    path = folder / f"jobs_{hashlib.sha256(lines.encode()).hexdigest()[:8]}.tsv"
    array = f"--array=0-{len(calls) - 1}"
    command = ["sbatch", array, *options, "launch/slurm.sbatch", str(path)]
    if dry_run:
        return f"{shlex.join(command)}\n# contents of {path}:\n{lines.rstrip()}"
    folder.make()
    path.write(lines)
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise InputError("sbatch is not installed here: --dry-run prints the call") from error
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise InputError(f"sbatch: {said[-1].removeprefix('sbatch: error: ')}")
    return done.stdout.rstrip()
