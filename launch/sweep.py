"""Train rows of a config as separate runs, locally or on a cluster. From the repository's root:

    python launch/sweep.py --config=configs/cifar10_vit.py --workdir=runs/sizes --to=local \
        --row=width=96,depth=6,heads=3 --row=width=192,depth=12,heads=3 --data_dir=DIR
    python launch/sweep.py --config=configs/cifar10_vit.py --workdir=runs/sizes --to=slurm \
        --row=width=96,depth=6,heads=3 --row=width=192,depth=12,heads=3 --data_dir=DIR \
        --launcher="--gpus=1 --partition=gpu --time=4:00:00" -- --config.model.dtype=bfloat16

The rows of the papers' tables, with their published numbers, are launch/reproduce.py's.

Each (row, arm, seed) is one job: `main.py --only=ARM/SEED` in the row's workdir, a subfolder of
WORKDIR. The same command may be given again at any time: it skips finished runs and resumes stopped
ones. The table of all rows is printed and written to WORKDIR/table.md.

--to=local runs the jobs on this machine, --jobs at a time; if CUDA_VISIBLE_DEVICES lists several
GPUs, each job gets one. --to=slurm submits one array (launch/slurm.sbatch), --to=gke prints one
manifest per run (launch/gke/run.sh) to pipe into kubectl, --to=table only makes the table. Flags
after -- go to main.py, for all jobs.

Exit code: 0 if every job finished or was submitted, 1 if runs failed (the others still ran), 2 for
bad input, 75 if the sweep was stopped.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
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

# On a cluster the package may not be installed.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from ml_collections import ConfigDict

from launch.fields import set_field
from mimetic_jax.command import shipped
from mimetic_jax.errors import InputError, check_given, unknown
from mimetic_jax.train import config as configs
from mimetic_jax.train import report
from mimetic_jax.train.loop import Run
from mimetic_jax.train.tasks.task import ACCURACY, Score, score_of
from mimetic_jax.train.workdir.documents import read_config
from mimetic_jax.train.workdir.paths import AnyPath, as_path, write_atomically

STOPPED = 75
"""Exit code of a run that was stopped and should be started again (EX_TEMPFAIL)."""

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Job:
    """One run: its row's workdir, arm, seed, and the main.py flags that train it."""

    workdir: str
    arm: str
    seed: int
    flags: tuple[str, ...]

    @property
    def row(self) -> str:
        return self.workdir.rpartition("/")[2]

    @property
    def slug(self) -> str:
        """A valid Kubernetes name, unique per job.

        >>> Job("runs/sizes/width96", "norm_matched", 0, ()).slug
        'width96-norm-matched-0-8d580a'
        """
        words = re.sub(r"[^a-z0-9]+", "-", f"{self.row} {self.arm} {self.seed}".lower()).strip("-")
        mark = hashlib.sha256(f"{self.workdir} {self.arm} {self.seed}".encode()).hexdigest()[:6]
        return f"{'' if words[0].isalpha() else 'run-'}{words[:28].strip('-')}-{mark}"

    def finished(self) -> bool:
        """Whether the run is known to be finished; runs in a bucket are not checked."""
        return Run.of(pathlib.Path(self.workdir), self.arm, self.seed).finished()


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Rows of a config × arms × seeds, validated.

    Attributes:
        config: its file.
        rows: arguments of the config, one text for each row.
        workdir: folder or bucket URL; each row has a subfolder.
        arms: of every row.
        seeds: of every arm.
        flags: of main.py, for all jobs.
    """

    config: str
    rows: tuple[str, ...]
    workdir: str
    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    flags: tuple[str, ...]

    @classmethod
    def of(
        cls,
        config: str,
        rows: Sequence[str],
        workdir: str,
        arms: Sequence[str] = (),
        seeds: Sequence[int] = (),
        data_dir: str | None = None,
        flags: Sequence[str] = (),
    ) -> Sweep:
        """Build a sweep; arms and seeds default to those of the config, in its order.

        Raises:
            InputError: for unknown or duplicate rows, arms or seeds, fields that there aren't, or a
                population.
        """
        folders = [row_folder(row) for row in rows]
        for name, values in (("rows", folders), ("seeds", seeds), ("arms", arms)):
            if len(set(values)) < len(values):
                raise InputError(f"{name} must be different: {', '.join(map(str, values))}")
        if any(re.match(r"--?config\.seeds\b", flag) for flag in flags):
            raise InputError("set the seeds with --seeds, not --config.seeds")
        if seeds:
            configs.check_seeds(seeds)
        check_given("--workdir", workdir)
        check_given("--data_dir", data_dir)
        # All jobs of a row have the same config, because they share a workdir.
        every = [f"--config.seeds={tuple(seeds)!r}".replace(" ", "")] if seeds else []
        every += [f"--config.data.dir={data_dir}"] if data_dir else []
        read = [_config(config, row, (*every, *flags)) for row in rows]
        for one in read:
            if one.members:
                raise InputError(
                    f"members {one.members}: a population is one job, which main.py trains"
                )
            known = list(configs.arms(one))
            for arm in arms:
                if arm not in known:
                    raise unknown("arm", arm, known)
        if any((tuple(c.seeds), list(configs.arms(c))) != _axes(read[0]) for c in read[1:]):
            raise InputError("the rows have different arms or seeds: sweep them separately")
        return cls(
            config,
            tuple(rows),
            workdir.rstrip("/"),
            tuple(arms) or tuple(configs.arms(read[0])),
            tuple(seeds) or tuple(read[0].seeds),
            (*every, *flags),
        )

    def row_workdir(self, row: str) -> str:
        return f"{self.workdir}/{row_folder(row)}"

    def check_workdirs(self) -> None:
        """Check that what was trained in these folders was trained with these flags.

        Raises:
            InputError: names the first field that differs.
        """
        for row in self.rows:
            workdir = pathlib.Path(self.row_workdir(row))
            if (path := workdir / "config.json").is_file():
                here = configs.to_json(_config(self.config, row, self.flags))
                configs.check_same(f"workdir {workdir}", read_config(path), here)

    def jobs(self) -> list[Job]:
        """All jobs, seeds outermost: the table is complete with n = 1 before any n is 2."""
        return [
            self._job(row, arm, seed)
            for seed in self.seeds
            for row in self.rows
            for arm in self.arms
        ]

    def _job(self, row: str, arm: str, seed: int) -> Job:
        workdir = self.row_workdir(row)
        config = f"{self.config}:{row}" if row else self.config
        flags = (f"--config={config}", *self.flags, f"--workdir={workdir}", f"--only={arm}/{seed}")
        return Job(workdir, arm, seed, flags)


def row_folder(arguments: str) -> str:
    """The name of a row's subfolder.

    >>> row_folder("width=96,depth=6"), row_folder("")
    ('width96_depth6', 'default')
    """
    return re.sub(r"[^\w.+-]", "", arguments.replace(",", "_")) or "default"


def _config(file: str, arguments: str, flags: Sequence[str]) -> ConfigDict:
    """The configuration of a row, as its jobs read it."""
    if not (path := pathlib.Path(file)).is_file():
        raise InputError(f"there is no config file {file!r}")
    config = shipped.read(path, arguments)
    for flag in flags:
        if (dashed := f"--{flag.lstrip('-')}").startswith("--config."):
            set_field(config, dashed)
    return config


def _axes(config: ConfigDict) -> tuple[tuple[int, ...], list[str]]:
    return tuple(config.seeds), list(configs.arms(config))


def run_local(jobs: Sequence[Job], at_once: int, say: Say = print) -> int:
    """Run jobs on this machine, each with a log in its row's workdir.

    SIGTERM and Ctrl-C send SIGTERM to every running job, and no further job starts.

    Returns:
        0 if all finished, 75 if some were stopped and none failed, else 1.
    """
    waiting, stopping = list(enumerate(jobs, 1)), False
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
                    number, job = waiting.pop(0)
                    label = f"[{number}/{len(jobs)}] {job.row} {job.arm} seed {job.seed}"
                    running[slot] = _start(job, slot, label, say)
                    if stopping:  # the signal arrived before the process existed
                        running[slot].popen.terminate()
            for slot, process in list(running.items()):
                if process.popen.poll() is not None:
                    codes.append(_ended(running.pop(slot), say))
            time.sleep(0.05)
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)
    if any(code not in (0, STOPPED) for code in codes):
        return 1
    return STOPPED if stopping or STOPPED in codes else 0


@dataclasses.dataclass(frozen=True)
class _Running:
    popen: subprocess.Popen[bytes]
    label: str
    log: pathlib.Path
    began: float


def _start(job: Job, slot: int, label: str, say: Say) -> _Running:
    log = pathlib.Path(job.workdir) / "logs" / f"{job.arm}_{job.seed}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ)
    if devices := [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]:
        environment["CUDA_VISIBLE_DEVICES"] = devices[slot % len(devices)]
    say(f"{label}: starts, {log}")
    with log.open("ab") as file:
        popen = subprocess.Popen(
            [sys.executable, "main.py", *job.flags],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # Ctrl-C reaches only the sweep, which sends SIGTERM
        )
    return _Running(popen, label, log, time.perf_counter())


def _ended(process: _Running, say: Say) -> int:
    code, seconds = process.popen.returncode, time.perf_counter() - process.began
    if code == -signal.SIGTERM:  # before main.py handles SIGTERM: nothing to save
        code = STOPPED
    if code == 0:
        say(f"{process.label}: done in {seconds:.1f} s")
    elif code == STOPPED:
        say(f"{process.label}: stopped")
    else:
        lines = process.log.read_text(errors="replace").strip().splitlines()
        say(f"{process.label}: failed with {code}: {lines[-1] if lines else 'no output'}")
    return code


def array_file(jobs: Sequence[Job]) -> str:
    """The job file that launch/slurm.sbatch reads: one line per job, flags separated by tabs.

    Raises:
        InputError: for a flag with a tab or a newline.
    """
    for flag in (flag for job in jobs for flag in job.flags):
        if "\t" in flag or "\n" in flag:
            raise InputError(f"flag {flag!r} has a tab or a newline, which a job file can't hold")
    return "".join("\t".join(job.flags) + "\n" for job in jobs)


def options_of(launcher: str) -> list[str]:
    """The options of --launcher, split as by a shell.

    Raises:
        InputError: a quote in it is never closed.
    """
    try:
        return shlex.split(launcher)
    except ValueError as error:
        raise InputError(f"--launcher={launcher!r}: {error}") from error


def slurm_command(path: str, launcher: Sequence[str], at_once: int | None) -> list[str]:
    """The launch/slurm.sbatch command that submits a job file."""
    limit = [f"--limit={at_once}"] if at_once else []
    return ["bash", "launch/slurm.sbatch", f"--array={path}", *limit, *launcher]


def gke_command(job: Job, launcher: Sequence[str]) -> list[str]:
    """The launch/gke/run.sh command that prints a job's manifest."""
    options = [f"--name={job.slug}", *launcher, "--dry-run"]
    return ["bash", "launch/gke/run.sh", *options, "--", *job.flags]


def table(sweep: Sweep) -> str:
    """The table of the finished runs, a line for each row and arm, and how many are finished."""
    results = []
    for row in sweep.rows:
        workdir = as_path(sweep.row_workdir(row))
        score = _score(workdir, sweep)
        for arm in sweep.arms:
            result = report.ArmResult.read(workdir, arm, sweep.seeds, score)
            results.append(dataclasses.replace(result, row=row or "default"))
    total = len(results) * len(sweep.seeds)
    done = sum(len(result.reached) for result in results)
    status = f"{done} of {total} runs are finished."
    return f"{report.table(results)}\n\n{status}" if done else status


def _score(workdir: AnyPath, sweep: Sweep) -> Score:
    """The score that compares a row's runs, inferred from their evaluations."""
    for arm in sweep.arms:
        for seed in sweep.seeds:
            for record in Run.of(workdir, arm, seed).evaluations():
                return score_of(record)
    return ACCURACY


def run(flags: argparse.Namespace, say: Say = print) -> int:
    """Run or submit the unfinished jobs, then make the table; returns the exit code."""
    if not pathlib.Path("main.py").is_file():  # the launch scripts run there too
        raise InputError("run this from the root of the repository: there is no main.py here")
    sweep = Sweep.of(
        flags.config,
        flags.row or [""],
        flags.workdir,
        [arm for arm in flags.arms.split(",") if arm],
        _seeds(flags.seeds),
        flags.data_dir,
        flags.flags,
    )
    if flags.jobs is not None and flags.jobs < 1:
        raise InputError(f"--jobs {flags.jobs} is not positive")
    launcher = options_of(flags.launcher)
    if launcher and flags.to not in ("slurm", "gke"):
        raise InputError(f"--launcher is for slurm and gke, not {flags.to}")
    remote = "://" in flags.workdir
    if remote and flags.to not in ("gke", "table"):
        raise InputError(f"--workdir={flags.workdir}: --to={flags.to} needs a folder")
    if not remote:
        sweep.check_workdirs()
    jobs = sweep.jobs()
    # The bucket may not be readable here. The job of a finished run ends at once.
    left = jobs if remote else [job for job in jobs if not job.finished()]
    code = 0
    if flags.to == "gke":  # print manifests only: the output is piped into kubectl
        for job in left:
            say("---\n" + output(gke_command(job, launcher)))
        return code
    if len(left) < len(jobs):
        say(f"{len(jobs) - len(left)} of {len(jobs)} runs finished before")
    if flags.to == "slurm" and left:
        code = _to_slurm(sweep, left, launcher, flags, say)
    elif flags.to == "local" and flags.dry_run:
        for job in left:
            say(shlex.join(["python", "main.py", *job.flags]))
    elif flags.to == "local":
        code = run_local(left, flags.jobs or 1, say)
    if flags.dry_run:
        return code
    text = table(sweep)
    if (folder := as_path(sweep.workdir)).is_dir():
        write_atomically(folder / "table.md", text + "\n")
    say(f"\n{text}")
    return code


def _to_slurm(
    sweep: Sweep, jobs: Sequence[Job], launcher: Sequence[str], flags: argparse.Namespace, say: Say
) -> int:
    lines = array_file(jobs)
    # Named by its content: a queued array reads its file only when it starts.
    mark = hashlib.sha256(lines.encode()).hexdigest()[:8]
    path = pathlib.Path(sweep.workdir) / f"jobs_{mark}.tsv"
    command = slurm_command(str(path), launcher, flags.jobs)
    if flags.dry_run:
        say(f"{shlex.join(command)}\n# contents of {path}:\n{lines.rstrip()}")
        return 0
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lines)
    say(output(command))
    return 0


def output(command: Sequence[str]) -> str:
    """The output of a launch script.

    Raises:
        InputError: with the script's own message, if it fails.
    """
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise InputError(f"{command[1]}: {lines[-1].removeprefix('error: ')}")
    return done.stdout.rstrip()


def _seeds(text: str) -> list[int]:
    try:
        return [int(seed) for seed in text.split(",") if seed]
    except ValueError:
        raise InputError(f"--seeds={text} is not a list of integers such as 0,1,2") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sweep given on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", required=True, help="a config file")
    parser.add_argument("--row", action="append", help="config arguments of a row; repeatable")
    parser.add_argument("--arms", default="", help="A,B (default: the config's)")
    parser.add_argument("--seeds", default="", help="0,1,2 (default: the config's)")
    parser.add_argument("--workdir", required=True, help="folder of the rows' workdirs")
    parser.add_argument("--data_dir", help="the data folder")
    parser.add_argument("--to", required=True, choices=("local", "slurm", "gke", "table"))
    parser.add_argument("--jobs", type=int, help="jobs at a time (default: 1; slurm: no limit)")
    parser.add_argument("--launcher", default="", help="options of the launch script")
    parser.add_argument("--dry-run", action="store_true", help="print the jobs, run nothing")
    parser.add_argument("flags", nargs="*", help="main.py flags, after --")
    try:
        # Flushed, so that a log is complete even if the process is killed.
        return run(parser.parse_args(arguments), functools.partial(print, flush=True))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
