"""The papers' tables and figures, published beside ours. From the root:

    python launch/reproduce.py
    python launch/reproduce.py attention/table1 --list
    python launch/reproduce.py attention/table1 --row=3 --data_dir=DIR
    python launch/reproduce.py attention/table6 --small --data_dir=DIR
    python launch/reproduce.py attention/table2 --row=10 --file=FILE.npz --data_dir=DIR
    python launch/reproduce.py attention/figure7 --file=FILE.npz --heads=12

Without a name: every table and figure. With the name of a table and --list: its rows, their
published numbers, what is doubtful in them, and how many seeds are done. With the name of a table,
of a figure or of a paper: train what the results lack, then show published and ours side by side,
or draw the figure. --small scales rows to what one CPU trains in minutes; such runs stay apart.
--file names the pretrained weights that a row starts from. A configuration of your own is trained
by `mimetic train`.

It may be stopped at any moment. The same command skips what the results contain and resumes the
interrupted run from its checkpoint. The records of finished runs are in RESULTS/TABLE/ROW.jsonl. A
second command, with --docs, writes the open tables in docs/ from these files alone; --close ends a
table: it then stands in results/closed/ as it is. Rows whose data is missing are left out and
named; the others go on.

Runs are trained one after the other in this process. --share=0/8 trains an eighth of the arms,
beside seven other processes that share the folders; an array of launch/slurm.sbatch passes it to
each of its tasks. --dry-run shows what is left, and the table.

Exit code: 0 if everything asked for was done, 1 if runs failed or lacked data (the others still
ran), 2 for bad input, 75 if it was stopped.
"""

from __future__ import annotations

import argparse
import functools
import os
import pathlib
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

# On a cluster the package may not be installed.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
# For each program that it loads from the cache on a CPU, jaxlib logs two errors of 3,000
# characters, though nothing is wrong: the features that it misses are hints to its own compiler.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax

from launch import listing, tables
from launch.results import ResultStore
from launch.runner import RowRunner
from mimetic_jax.base.errors import InputError, check_given, unknown
from mimetic_jax.base.exits import reported
from mimetic_jax.command.assign import parse_seeds
from mimetic_jax.data.paths import check_exists, local_path
from mimetic_jax.host.memory import keep_freed_memory
from mimetic_jax.train.cluster import preemption
from mimetic_jax.train.store import files
from mimetic_jax.train.store.files import path_of
from papers import FIGURES, PAPERS, TABLES, rows_of
from papers.record import Row

if TYPE_CHECKING:
    from mimetic_jax.train.group import Say


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks for; returns the exit code, or exits with that of an error."""
    say = functools.partial(print, flush=True)  # a log is complete even after a kill
    with reported():
        return run(parse(sys.argv[1:] if arguments is None else arguments), say)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse and check a command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="reproduce.py [NAME] [OPTIONS]",
    )
    add = parser.add_argument
    add("name", nargs="?", default="", help="PAPER, PAPER/tableN or PAPER/figureN")
    add("--row", action="append", default=[], help="a row of the table, from 1; repeatable")
    add("--arms", default="", help="A,B: these alone")
    add("--seeds", default="", help="such as 0,1,2 or 0-63; default: the row's")
    add("--small", action="store_true", help="scaled to minutes of a CPU")
    add("--share", default="0/1", metavar="K/N", help="the K-th of N shares of the arms, from 0")
    add("-d", "--data-dir", "--data_dir", metavar="DIR", help="folder of the data sets")
    add("--workdir", default="runs/reproduce", help="default: %(default)s")
    add("--results", default="results", help="default: %(default)s")
    add("--file", help="weights that a row or a figure needs")
    add("--heads", type=int, help="of a figure's file, which may not tell how many")
    add("--kv-heads", "--kv_heads", type=int, help="of its keys and values, if they are fewer")
    add("--list", action="store_true", help="train nothing, print the rows of NAME")
    add("--dry-run", action="store_true", help="train nothing, print what would run")
    add("--docs", action="store_true", help="write the tables of results in docs/, and end")
    add("--close", action="store_true", help="write the table NAME to results/closed, and end")
    given = parser.parse_args(arguments)
    for name in ("workdir", "results", "file", "data_dir"):
        check_given(f"--{name}", getattr(given, name))
    if "://" in given.results:
        raise InputError(f"--results={given.results}: results are files of this machine")
    share = re.fullmatch("([0-9]{1,6})/([0-9]{1,6})", given.share)
    if not share or not int(share[1]) < int(share[2]):
        raise InputError(f"--share={given.share} is not a share such as 0/8 or 7/8")
    given.share = int(share[1]), int(share[2])
    given.command = _command(given)
    given.seeds = parse_seeds("--seeds", given.seeds) if given.seeds else ()
    given.arms = tuple(filter(None, given.arms.split(",")))
    given.workdir = path_of(given.workdir)
    given.file = str(check_exists(local_path(given.file).resolve())) if given.file else ""
    given.data_dir = given.data_dir or ""
    counts = {"num_heads": given.heads, "num_kv_heads": given.kv_heads}
    given.heads = {name: count for name, count in counts.items() if count is not None}
    if given.heads and not (given.file and given.name in FIGURES):
        raise InputError("--heads and --kv-heads are of the --file of a figure")
    return given


def _command(given: argparse.Namespace) -> str:
    """Write the command to record: folders, which change no result, as DIR, files as FILE."""
    parts = ["python launch/reproduce.py", given.name, *(f"--row={row}" for row in given.row)]
    options = {
        f"--arms={given.arms}": given.arms,
        "--small": given.small,
        f"--seeds={given.seeds}": given.seeds,
        "--file=FILE": given.file,
        "--data_dir=DIR": given.data_dir,
    }
    return " ".join([*parts, *(text for text, is_given in options.items() if is_given)])


def run(given: argparse.Namespace, say: Say) -> int:
    """Do what the options ask for; returns the exit code."""
    if not pathlib.Path("main.py").is_file():  # configs and launch scripts are found from there
        raise InputError("run this from the root of the repository: there is no main.py here")
    results = ResultStore(given.results)
    if given.docs:
        for path, text in tables.pages(results).items():
            files.write(path, text)
            say(f"written: {path}")
    elif not given.name:
        for line in listing.tables_and_figures(results):
            say(line)
    elif given.list or given.close:
        if given.name not in TABLES:
            raise unknown("table", given.name, TABLES)
        if given.close:
            path = tables.close(given.name, results)
            say(f"written: {path}; the table's rows in papers/ and its results can go")
            return 0
        for line in listing.rows(given.name, results):
            say(line)
    else:
        return reproduce(given, rows_named(given), results, say)
    return 0


def reproduce(
    given: argparse.Namespace, wanted: Sequence[Row], results: ResultStore, say: Say
) -> int:
    """Train rows and show their tables, or draw their figure; returns the exit code."""
    keep_freed_memory()
    runner = RowRunner(
        wanted,
        results,
        given.workdir,
        seeds=given.seeds,
        only=given.arms,
        file=given.file,
        data_dir=given.data_dir,
        command=given.command,
        say=say,
    )
    jobs = runner.jobs(*given.share)
    if done := len(every := runner.every(*given.share)) - len(jobs):
        say(f"{done} of {len(every)} arms are from {given.results}/; --results=DIR trains your own")
    for job in jobs if given.dry_run else ():
        say(str(job))
    try:
        if jobs and not given.dry_run:
            say(f"{len(jobs)} arms to train; --dry-run lists them and trains nothing")
            # A call of a few minutes shouldn't spend one of them compiling again.
            jax.config.update("jax_compilation_cache_dir", str(given.workdir / "compiled"))
            with preemption.listening():
                runner.train(jobs)
    except preemption.Preempted as stopped:
        say(f"{stopped}: the same command continues")
        return preemption.EXIT_CODE
    for reason, names in runner.failures.items():
        say("\n  ".join([f"not done, {reason}:", *names]))
    results = ResultStore(given.results)  # with the records of other processes
    for name in dict.fromkeys(row.place.table for row in runner.rows):
        listed = TABLES.get(name) or FIGURES.get(name)
        text = tables.table([row for row in runner.rows if row.place.table == name], results)
        say(f"\n{name}{f': {listed.title}' if listed else ''}\n\n{text}")
    if given.name in FIGURES and not (runner.failures or given.dry_run):
        from launch.draw import draw  # with all that trains, which lists don't need

        out = pathlib.Path(given.results) / "figures"
        for picture in draw(given.name, runner, out, small=given.small, heads=given.heads):
            say(f"drawn: {picture}")
    return 1 if runner.failures else 0


def rows_named(given: argparse.Namespace) -> list[Row]:
    """List the rows of a name, of several tables those that have the form asked for."""
    name, numbers = given.name, dict.fromkeys(given.row)
    if name not in PAPERS | TABLES | FIGURES:
        raise unknown("paper, table or figure", name, [*PAPERS, *TABLES, *FIGURES])
    names = [table for table in TABLES if table.startswith(f"{name}/")] or [name]
    if numbers and names != [name]:
        raise InputError(f"--row={given.row[0]} is for one table, such as attention/table1")
    named = [row for table in names for row in rows_of(table, given.small)]
    by_number = {str(row.place.number): row for row in named}
    for number in numbers:
        if number not in by_number:
            raise InputError(f"--row={number}: {name} has rows {', '.join(by_number)}")
    if given.small and not named and not (name in FIGURES and FIGURES[name].small):
        raise InputError(f"{name} has no form that a CPU trains in minutes: leave out --small")
    named = [by_number[number] for number in numbers] if numbers else named
    if given.file and name not in FIGURES and not any(row.needs for row in named):
        raise InputError(f"--file={given.file}: {name} needs no file")
    return named


if __name__ == "__main__":
    sys.exit(main())
