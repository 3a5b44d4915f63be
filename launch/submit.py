"""Runs of a queue handed to a cluster, or to processes of this machine."""

from __future__ import annotations

import argparse
import pathlib
import shlex
from collections.abc import Callable, Sequence

from launch.call import Call

from launch import gke, local, slurm
from mimetic_jax.errors import InputError
from mimetic_jax.train.store.places import Place


def submit(
    calls: Sequence[Call], workdir: Place, flags: argparse.Namespace, say: Callable[[str], None]
) -> int:
    """Hand over runs; returns the exit code.

    Args:
        calls: of main.py.
        workdir: of all, where an array of Slurm keeps its list.
        flags: `to`, `launcher`, `jobs` and `dry_run` of the command line.
        say: prints a line.

    Raises:
        InputError: for options that an executor doesn't know, or an executor that fails.
    """
    options = shlex_split(flags.launcher)
    if not calls:
        say("every run has its line")
        return 0
    if flags.to == "local":
        return local.run(calls, flags.jobs, say)
    if flags.to == "gke":
        say(gke.manifests(calls, options))
        return 0
    if workdir.in_bucket:
        raise InputError(f"--workdir={workdir}: --to=slurm needs a folder")
    folder = pathlib.Path(str(workdir))
    say(slurm.submit(calls, options, folder, at_once=flags.jobs, dry_run=flags.dry_run))
    return 0


def shlex_split(launcher: str) -> list[str]:
    """The options of --launcher, split as by a shell.

    Raises:
        InputError: a quote in it is never closed.
    """
    try:
        return shlex.split(launcher)
    except ValueError as error:
        raise InputError(f"--launcher={launcher!r}: {error}") from error
