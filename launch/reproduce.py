"""The papers' tables and figures, published beside ours, and your own tables. From the root:

    python launch/reproduce.py
    python launch/reproduce.py attention/table1 --row=3 --data_dir=DIR
    python launch/reproduce.py attention/table6 --small --data_dir=DIR
    python launch/reproduce.py attention/table1 --data_dir=DIR --to=slurm --launcher="--gpus=1"
    python launch/reproduce.py attention/table2 --row=10 --file=FILE.npz --data_dir=DIR
    python launch/reproduce.py attention/figure7
    python launch/reproduce.py configs/cifar10_vit.py --row=width=96 --row=width=192 \
        --data_dir=DIR --workdir=runs/widths -- --config.model.dtype=bfloat16

Without a name: every table and row, its published numbers, and how many seeds are done. With the
name of a table, of a figure or of a paper: train what the results lack, then show published and
ours side by side, or draw the figure. With a config file: the same for rows of your own, each with
arguments of that file; their lines are in WORKDIR/results, unless --results names another folder.
--small scales rows to what one CPU trains in minutes; such runs stay apart. --file names what a row
starts from: pretrained weights, or the workdir of a first stage.

It may be stopped at any moment. The same command skips what the results contain and resumes the
interrupted run from its checkpoint. Each finished run appends one line to RESULTS/*.jsonl, and the
tables in docs/ are of these lines alone (--docs). Rows whose data
is missing are left out and named; the others go on.

Runs are trained one after the other in this process. --to=slurm submits them as one array of
launch/slurm.sbatch, with the options of sbatch in --launcher; the same command with --to=table,
given later, adds the lines of finished runs.

Exit code: 0 if everything asked for was done or submitted, 1 if runs failed or lacked data (the
others still ran), 2 for bad input, 75 if it was stopped.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import pathlib
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

# On a cluster the package may not be installed.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
# For each program that it loads from the cache on a CPU, jaxlib logs two errors of 3,000
# characters, though nothing is wrong: the features that it misses are hints to its own compiler.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from launch.listing import listing
from launch.registry import Entry, entries, own_entries, scaled_entries, with_weights
from launch.results import Results
from mimetic_jax.base.errors import InputError, check_given, unknown
from mimetic_jax.base.exits import reported
from mimetic_jax.train.store.places import Place
from papers import FIGURES, PAPERS, TABLES

if TYPE_CHECKING:
    from launch.runs import Queue

Say = Callable[[str], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks for; returns the exit code, or exits with that of an error."""
    say = functools.partial(print, flush=True)  # a log is complete even after a kill
    with reported():
        return run(parse(sys.argv[1:] if arguments is None else arguments), say)


@dataclasses.dataclass(frozen=True)
class Request:
    """What a command line asks for; `parse` says what each option means."""

    name: str
    row: tuple[str, ...]
    arms: tuple[str, ...]
    seeds: str
    small: bool
    to: str
    data_dir: str
    workdir: Place
    results: str
    launcher: str
    file: str
    dry_run: bool
    docs: bool
    flags: tuple[str, ...]

    @property
    def command(self) -> str:
        """The command to record; folders are DIR, which change no result, files FILE."""
        parts = ["python launch/reproduce.py", self.name]
        parts += [f"--row={row}" for row in self.row]
        parts += [f"--arms={','.join(self.arms)}"] if self.arms else []
        parts += ["--small"] if self.small else []
        parts += [f"--seeds={self.seeds}"] if self.seeds else []
        parts += ["--file=FILE"] if self.file else []
        parts += ["--data_dir=DIR"] if self.data_dir else []
        parts += ["--", *self.flags] if self.flags else []
        return " ".join(parts)


def parse(arguments: Sequence[str]) -> Request:
    """The request of a command line.

    Raises:
        InputError: a value is wrong.
    """
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="reproduce.py [NAME] [OPTIONS] [-- --config.FIELD=VALUE …]",
    )
    parser.add_argument(
        "name", nargs="?", default="", help="PAPER, PAPER/tableN, PAPER/figureN or a config file"
    )
    parser.add_argument(
        "--row",
        action="append",
        default=[],
        help="a row of the table, from 1; or arguments of the config file; repeatable",
    )
    parser.add_argument("--arms", default="", help="A,B: these alone")
    parser.add_argument(
        "--seeds", default="", help="such as 0,1,2 or 0-63; default: 0,1,2, or the config file's"
    )
    parser.add_argument("--small", action="store_true", help="scaled to minutes of a CPU")
    parser.add_argument("--to", choices=("local", "slurm", "table"), default="local")
    parser.add_argument(
        *("--data_dir", "--data-dir", "-d"), metavar="DIR", help="folder of the data sets"
    )
    parser.add_argument("--workdir", default="runs/reproduce", help="default: %(default)s")
    parser.add_argument("--results", help="default: results, or WORKDIR/results")
    parser.add_argument("--launcher", default="", help="options of sbatch")
    parser.add_argument("--file", help="weights that a row or a figure needs")
    parser.add_argument("--dry-run", action="store_true", help="print what would run")
    parser.add_argument(
        "--docs", action="store_true", help="write the tables of results in docs/, and end"
    )
    # argparse takes what follows -- for the name where an option stands between the two.
    end = arguments.index("--") if "--" in arguments else len(arguments)
    given = parser.parse_args(arguments[:end])
    for name in ("workdir", "results", "file", "data_dir"):
        check_given(f"--{name}", getattr(given, name))
    flags, own = tuple(arguments[end + 1 :]), given.name.endswith(".py")
    if given.results is None:
        folder = "runs" if "://" in given.workdir else given.workdir
        given.results = f"{folder}/results" if own else "results"
    if "://" in given.results:
        raise InputError(f"--results={given.results}: lines are files of this machine")
    if flags and not own:
        raise InputError(f"{flags[0]}: fields are set for a config file, not for {given.name}")
    seeds_of(given.seeds)
    if given.launcher and given.to != "slurm":
        raise InputError(f"--launcher is for slurm, not for {given.to}")
    parsed = {
        "row": tuple(given.row),
        "arms": tuple(filter(None, given.arms.split(","))),
        "workdir": Place.of(given.workdir),
        "file": given.file or "",
        "data_dir": given.data_dir or "",
    }
    return Request(**{**vars(given), **parsed}, flags=flags)


def run(request: Request, say: Say) -> int:
    """Do what a request asks for; returns the exit code."""
    if not pathlib.Path("main.py").is_file():  # configs and launch scripts are found from there
        raise InputError("run this from the root of the repository: there is no main.py here")
    results = Results(request.results)
    if request.docs:
        return write_docs(results, say)
    if not request.name:
        for line in listing(results):
            say(line)
        return 0
    rows = _rows(request)
    tables = list(dict.fromkeys(entry.table for entry in rows))
    leagues = [name for name in tables if name in TABLES and TABLES[name].trials]
    if request.row and leagues:
        raise InputError(f"--row={request.row[0]}: arms of {leagues[0]} choose among all its rows")
    code = 0
    if len(leagues) < len(tables) or request.name in FIGURES:
        rows = [entry for entry in rows if entry.table not in leagues]
        queue, code = train(request, rows, seeds_of(request.seeds), results, say)
        if not (request.dry_run or request.to == "slurm"):
            show(request, queue, rows, say)
            if request.name in FIGURES and not code:
                draw(request, queue, rows, say)
    for name in leagues:
        if code in (0, 1):  # not stopped
            code = max(code, choose(request, name, results, say))
    return code


def train(
    request: Request,
    rows: Sequence[Entry],
    seeds: Sequence[int],
    results: Results,
    say: Say,
    only: Sequence[str] = (),
) -> tuple[Queue, int]:
    """Train, submit or list what rows lack, of some arms only; the queue and an exit code."""
    # Importing JAX's training code takes seconds, which the list and a typo shouldn't cost.
    from launch import slurm
    from launch.runs import Queue
    from mimetic_jax.host.memory import keep_freed_memory
    from mimetic_jax.train.cluster import preemption

    keep_freed_memory()
    if request.file and request.name not in FIGURES:
        rows = with_weights(rows, request.file)
    arms = only or request.arms
    place = results, request.workdir, request.data_dir
    queue = Queue(rows, seeds, arms, *place, request.command, say)
    if added := queue.collect():
        say(f"{added} finished runs of {request.workdir} have their lines now")
    jobs = queue.jobs()
    if request.to == "slurm":
        calls = queue.calls(jobs)
        if calls:
            dry_run = request.dry_run
            say(slurm.submit(calls, request.workdir, request.launcher, dry_run=dry_run))
        else:
            say("every run has its line")
    elif request.dry_run:
        for job in jobs:
            say(str(job))
    elif request.to == "local" and jobs:
        import jax

        # A call of a few minutes shouldn't spend one of them compiling again.
        jax.config.update("jax_compilation_cache_dir", str(request.workdir / "compiled"))
        try:
            failures = queue.train(jobs)
        except preemption.Preempted as stopped:
            say(f"{stopped}: the same command continues")
            return queue, preemption.EXIT_CODE
        for reason, names in failures.items():
            say("\n  ".join([f"not done, {reason}:", *names]))
        return queue, 1 if failures else 0
    return queue, 0


def choose(request: Request, name: str, results: Results, say: Say) -> int:
    """A table in which arms choose their row: the trials, then the runs that are compared.

    Those of the default come first, since their spread tells what the others can show.
    """
    from launch import league
    from mimetic_jax.train.cluster import preemption

    code, tried = 0, list[Entry]()
    # An arm whose best is at an end tries the next row.
    while code == 0 and (wanted := league.trials(name, results)) != tried:
        tried, (_, code) = wanted, train(request, wanted, (), results, say)
    rows, seeds = league.chosen(name, results), seeds_of(request.seeds)
    with_default = "default" in (request.arms or ("default",)) and any(
        "default" in row.init for row in rows
    )
    if code != preemption.EXIT_CODE and request.to == "local" and with_default:
        code = max(code, train(request, rows, seeds, results, say, ("default",))[1])
        say(league.sensitivity(name, results))
    if code != preemption.EXIT_CODE and rows:
        code = max(code, train(request, rows, seeds, results, say)[1])
    if request.to != "slurm":
        say(f"\n{name}: {TABLES[name].title}\n\n{league.task_table(name, results)}")
    return code


def show(request: Request, queue: Queue, rows: Sequence[Entry], say: Say) -> None:
    """The tables of rows, published and ours side by side."""
    from launch.tables import table

    for name in dict.fromkeys(entry.table for entry in rows):
        shown = TABLES.get(name) or FIGURES.get(name)
        text = table([entry for entry in rows if entry.table == name], queue.results)
        say(f"\n{name}{f': {shown.title}' if shown else ''}\n\n{text}")
        if not shown:
            (request.workdir / "table.md").write(f"{text}\n")


def draw(request: Request, queue: Queue, rows: Sequence[Entry], say: Say) -> None:
    """Draw a figure of these rows."""
    from launch import draw as figures

    folder = pathlib.Path(request.results) / "figures"
    for path in figures.draw(request.name, queue, rows, folder, request.file, small=request.small):
        say(f"drawn: {path}")


def write_docs(results: Results, say: Say) -> int:
    """Write the tables of results in docs/."""
    from launch import docs

    for path, text in docs.pages(results).items():
        Place.of(path).write(text)
        say(f"written: {path}")
    return 0


def _rows(request: Request) -> list[Entry]:
    """The rows that a name means; of several tables those that exist in the form asked for.

    Raises:
        InputError: the name, the row or its scaled form is unknown.
    """
    name = request.name
    if name.endswith(".py"):
        return own_entries(name, request.row, request.flags)
    for row in request.row:
        if not re.fullmatch("[0-9]{1,4}", row):
            raise InputError(f"--row={row} is not the number of a row of a table")
    if name in TABLES or name in FIGURES:
        numbers = dict.fromkeys(map(int, request.row)) or (None,)
        return [entry for number in numbers for entry in entries(name, number, request.small)]
    if name not in PAPERS:
        raise unknown("paper, table or figure", name, [*PAPERS, *TABLES, *FIGURES])
    if request.row:
        raise InputError(f"--row={request.row[0]} is for one table, such as attention/table1")
    chosen = [table for table in TABLES if table.startswith(f"{name}/")]
    rows = scaled_entries if request.small else entries
    return [entry for table in chosen for entry in rows(table)]


def seeds_of(text: str) -> tuple[int, ...]:
    """The seeds of the command line; none for those of the rows."""
    seeds: list[int] = []
    for part in text.split(",") if text else ():
        found = re.fullmatch("([0-9]{1,10})(?:-([0-9]{1,10}))?", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, -1)
        if not first <= last < 2**32:
            raise InputError(
                f"--seeds={text} is not a list of integers below 2^32, such as 0,1,2 or 0-63"
            )
        seeds += range(first, last + 1)
    if len(set(seeds)) < len(seeds):
        raise InputError(f"--seeds={text} names a seed twice")
    return tuple(seeds)


if __name__ == "__main__":
    sys.exit(main())
