"""Runs of the registry as jobs of a cluster: a Slurm array, or GKE manifests."""

from __future__ import annotations

import argparse
import hashlib
import pathlib
import shlex
from collections.abc import Callable, Sequence

from launch import sweep
from launch.training import Job, Queue
from mimetic_jax.train.workdir.paths import write_atomically

Say = Callable[[str], None]


def jobs_of(queue: Queue, jobs: Sequence[Job]) -> list[sweep.Job]:
    """Each run as a call of main.py in its comparison's workdir."""
    return [_job(queue, job) for job in jobs]


def _job(queue: Queue, job: Job) -> sweep.Job:
    spec, workdir = job.spec, str(queue.folder(job.spec))
    folder = queue.configs[spec].data.dir
    flags = (
        # The members of a population are one job, each run of a comparison is another.
        f"--config={spec.config_argument([job.arm] if job.members else queue.init[spec])}",
        *spec.flags,
        f"--config.seeds={queue.seeds!r}".replace(" ", ""),
        *([f"--config.data.dir={folder}"] if folder else []),
        f"--workdir={workdir}",
        *([f"--config.members={job.members}"] if job.members else [f"--only={job.arm}/{job.seed}"]),
    )
    return sweep.Job(workdir, job.arm, job.seed, flags)


def submit(
    queue: Queue,
    jobs: Sequence[Job],
    to: str,
    launcher: Sequence[str],
    flags: argparse.Namespace,
    say: Say,
) -> int:
    """Submit an array to Slurm, or print manifests for kubectl; returns the exit code.

    Raises:
        InputError: if the launch script fails, with its message.
    """
    calls = jobs_of(queue, jobs)
    if to == "gke":
        for call in calls:
            say("---\n" + sweep.output(sweep.gke_command(call, launcher)))
        return 0
    if not calls:
        say("every run has its line")
        return 0
    lines = sweep.array_file(calls)
    # Named by its content: a queued array reads its file only when it starts.
    path = queue.workdir / f"jobs_{hashlib.sha256(lines.encode()).hexdigest()[:8]}.tsv"
    command = sweep.slurm_command(str(path), launcher, flags.jobs)
    if flags.dry_run:
        say(f"{shlex.join(command)}\n# contents of {path}:\n{lines.rstrip()}")
        return 0
    pathlib.Path(queue.workdir).mkdir(parents=True, exist_ok=True)
    write_atomically(path, lines)
    say(sweep.output(command))
    return 0
