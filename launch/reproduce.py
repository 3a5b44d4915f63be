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


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse and check the flags."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="reproduce.py [NAME] [OPTIONS] [-- --config.FIELD=VALUE …]",
    )
    parser.add_argument(
        "name", nargs="?", default="", help="PAPER, PAPER/tableN, PAPER/figureN or a config file"
    )
    parser.add_argument(
        *("--row",),
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
        *("--data_dir", "--data-dir", "-d"),
        action="append",
        default=[],
        metavar="[SET=]DIR",
        help="folder of the data sets, or of one of them; repeatable",
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
    flags = parser.parse_args(arguments[:end])
    flags.flags = list(arguments[end + 1 :])
    for name in ("workdir", "results", "file"):
        check_given(f"--{name}", getattr(flags, name))
    flags.own = flags.name.endswith(".py")
    if flags.results is None:
        folder = "runs" if "://" in flags.workdir else flags.workdir
        flags.results = f"{folder}/results" if flags.own else "results"
    if "://" in flags.results:
        raise InputError(f"--results={flags.results}: lines are files of this machine")
    if flags.flags and not flags.own:
        raise InputError(
            f"{flags.flags[0]}: fields are set for a config file, not for {flags.name}"
        )
    flags.workdir, flags.file = Place.of(flags.workdir), flags.file or ""
    return flags


def run(flags: argparse.Namespace, say: Say) -> int:
    """Run the command; returns the exit code."""
    if not pathlib.Path("main.py").is_file():  # configs and launch scripts are found from there
        raise InputError("run this from the root of the repository: there is no main.py here")
    results = Results(flags.results)
    if flags.docs:
        return _write_docs(results, say)
    if not flags.name:
        for line in listing(results, flags.workdir):
            say(line)
        return 0
    if flags.own:
        wanted = own_entries(flags.name, flags.row, flags.flags)
    else:
        wanted = _entries(flags.name, _numbers(flags.row), flags.small)
    if flags.file and flags.name not in FIGURES:
        wanted = with_weights(wanted, flags.file)
    leagues = {
        name: [entry for entry in wanted if entry.table == name]
        for name in _tables(wanted)
        if name in TABLES and TABLES[name].trials
    }
    if flags.row and leagues:
        raise InputError(f"--row={flags.row[0]}: arms of {flags.name} choose among all its rows")
    compared = [entry for entry in wanted if entry.table not in leagues]
    code = 0
    if compared or not leagues:
        code = _reproduce(compared, results, flags, say)
    for name, rows in leagues.items():
        if code in (0, 1):  # not stopped
            code = max(code, _choose(name, rows, results, flags, say))
    return code


def _numbers(rows: Sequence[str]) -> list[int]:
    """The numbers of rows of a table, each once."""
    for row in rows:
        if not re.fullmatch("[0-9]{1,4}", row):
            raise InputError(f"--row={row} is not the number of a row of a table")
    return list(dict.fromkeys(map(int, rows)))


def _entries(name: str, rows: Sequence[int], small: bool) -> list[Entry]:
    """The rows that a name means; of several tables those that exist in the form asked for.

    Raises:
        InputError: the name, the row or its scaled form is unknown.
    """
    if name in TABLES or name in FIGURES:
        return [entry for row in rows or (None,) for entry in entries(name, row, small)]
    if name and name not in PAPERS:
        raise unknown("paper, table or figure", name, [*PAPERS, *TABLES, *FIGURES])
    if rows:
        raise InputError(f"--row={rows[0]} is for one table, such as attention/table1")
    chosen = [table for table in TABLES if table.startswith(f"{name}/" if name else "")]
    return [e for table in chosen for e in (scaled_entries(table) if small else entries(table))]


def _tables(rows: Sequence[Entry]) -> list[str]:
    return list(dict.fromkeys(entry.table for entry in rows))


def _choose(
    name: str,
    rows: Sequence[Entry],
    results: Results,
    flags: argparse.Namespace,
    say: Say,
) -> int:
    """A table in which arms choose their row: the trials, then the runs that are compared.

    Those of the default come first, since their spread tells what the others can show.
    """
    from launch import league
    from mimetic_jax.train.cluster import preemption

    code, wanted = 0, league.trials(rows, results)
    tried: list[Entry] = []
    while code == 0 and wanted != tried:  # an arm whose best is at an end tries the next row
        tried = wanted
        _, code = _train(tried, [], results, flags, say)
        wanted = league.trials(rows, results)
    seeds, picked = _seeds(flags.seeds), league.chosen(rows, results)
    with_default = "default" in league.choices(rows, results) and "default" in (
        flags.arms.split(",") if flags.arms else ("default",)
    )
    if code != preemption.EXIT_CODE and flags.to == "local" and with_default:
        _, of_default = _train(picked, seeds, results, flags, say, only=["default"])
        code = max(code, of_default)
        say(league.sensitivity(name, results))
    if code != preemption.EXIT_CODE and picked:
        _, of_picked = _train(picked, seeds, results, flags, say)
        code = max(code, of_picked)
    if flags.to != "slurm":
        say(f"\n{name}: {TABLES[name].title}\n\n{league.task_table(name, results)}")
    return code


def _train(
    wanted: Sequence[Entry],
    seeds: Sequence[int],
    results: Results,
    flags: argparse.Namespace,
    say: Say,
    only: Sequence[str] = (),
) -> tuple[Queue, int]:
    """Train, submit or list what is missing, of some arms only; the queue and an exit code."""
    # Importing JAX's training code takes seconds, which the list and a typo shouldn't cost.
    from launch import slurm
    from launch.runs import Queue
    from mimetic_jax.host.memory import keep_freed_memory
    from mimetic_jax.train.cluster import preemption

    keep_freed_memory()
    if flags.launcher and flags.to != "slurm":
        raise InputError(f"--launcher is for slurm, not for {flags.to}")
    queue = Queue(
        wanted,
        seeds,
        only or [arm for arm in flags.arms.split(",") if arm],
        results,
        flags.workdir,
        folders(flags.data_dir),
        command(flags),
        say,
    )
    if added := queue.collect():
        say(f"{added} finished runs of {flags.workdir} have their lines now")
    jobs = queue.jobs()
    code = 0
    if flags.to == "slurm":
        calls = queue.calls(jobs)
        if calls:
            say(slurm.submit(calls, flags.workdir, flags.launcher, dry_run=flags.dry_run))
        else:
            say("every run has its line")
        return queue, 0
    if flags.dry_run:
        for job in jobs:
            say(str(job))
        return queue, 0
    if flags.to == "local" and jobs:
        _cache_compilations(flags.workdir)
        try:
            failures = queue.train(jobs)
        except preemption.Preempted as stopped:
            say(f"{stopped}: the same command continues")
            code = preemption.EXIT_CODE
        else:
            code = 1 if failures else 0
            for failure in failures:
                say(f"not done: {failure}")
    return queue, code


def _reproduce(
    wanted: Sequence[Entry],
    results: Results,
    flags: argparse.Namespace,
    say: Say,
) -> int:
    """Rows that are compared each on its own, and figures."""
    queue, code = _train(wanted, _seeds(flags.seeds), results, flags, say)
    if flags.dry_run or flags.to == "slurm":
        return code
    from launch.tables import table

    for name in _tables(wanted):
        rows = [entry for entry in wanted if entry.table == name]
        shown = TABLES.get(name) or FIGURES.get(name)
        text = table(rows, results, queue.marks)
        say(f"\n{name}{f': {shown.title}' if shown else ''}\n\n{text}")
        if flags.own:
            (flags.workdir / "table.md").write(f"{text}\n")
    if flags.name in FIGURES and not code:
        from launch.draw import draw

        folder = pathlib.Path(flags.results) / "figures"
        for path in draw(flags.name, queue, wanted, folder, flags.file, small=flags.small):
            say(f"drawn: {path}")
    return code


def _write_docs(results: Results, say: Say) -> int:
    from launch import docs

    for path, text in docs.pages(results).items():
        Place.of(path).write(text)
        say(f"written: {path}")
    return 0


def _cache_compilations(workdir: Place) -> None:
    """So that a call of a few minutes doesn't spend one of them compiling again."""
    import jax

    jax.config.update("jax_compilation_cache_dir", str(workdir / "compiled"))


def command(flags: argparse.Namespace) -> str:
    """The command to record; folders are DIR, which change no result, files FILE."""
    parts = ["python launch/reproduce.py", flags.name]
    parts += [f"--row={row}" for row in flags.row]
    parts += [f"--arms={flags.arms}"] if flags.arms else []
    parts += ["--small"] if flags.small else []
    parts += [f"--seeds={flags.seeds}"] if flags.seeds else []
    parts += ["--file=FILE"] if flags.file else []
    parts += ["--data_dir=DIR"] if flags.data_dir else []
    parts += ["--", *flags.flags] if flags.flags else []
    return " ".join(filter(None, parts))


def _seeds(text: str) -> list[int]:
    """The seeds of the command line; none for those of the rows."""
    if not text:
        return []
    seeds: list[int] = []
    for part in text.split(","):
        found = re.fullmatch("([0-9]{1,10})(?:-([0-9]{1,10}))?", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, -1)
        if not first <= last < 2**32:
            raise InputError(
                f"--seeds={text} is not a list of integers below 2^32, such as 0,1,2 or 0-63"
            )
        seeds += range(first, last + 1)
    if len(set(seeds)) < len(seeds):
        raise InputError(f"--seeds={text} names a seed twice")
    return seeds


def folders(given: Sequence[str]) -> dict[str, str]:
    """Folder by data set, "" for the others, of values [SET=]DIR.

    >>> folders(["~/data", "cifar10=~/cifar"])
    {'': '~/data', 'cifar10': '~/cifar'}

    Raises:
        InputError: for a folder that is empty, or an unknown data set.
    """
    from mimetic_jax.data import names
    from mimetic_jax.data.text import corpus

    known, found = (*names(), *corpus.names()), {}
    for value in given:
        name, equals, folder = value.partition("=")
        if not equals or "/" in name:  # a path that has the sign in it
            name, folder = "", value
        check_given(f"--data_dir={value}", folder)
        if name and name not in known:
            raise unknown("data set", name, known)
        found[name] = folder
    return found


if __name__ == "__main__":
    sys.exit(main())
