"""What `mimetic COMMAND --help` prints, and the page docs/commands.md, from one description."""

from __future__ import annotations

import argparse
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

_WIDTH = 96


class Flag(NamedTuple):
    """A flag as it is written, what it means, and the commands that it is for."""

    written: str
    meaning: str
    commands: tuple[str, ...]


EXPERIMENTS: Mapping[str, str] = {
    "train": "Train the runs that aren't finished, then print the table of all.",
    "plan": "Preview a training run: steps, memory, time, and the smallest visible difference.",
    "compare": "Rebuild the results table of a workdir.",
    "eval": "Test the newest checkpoints.",
    "analyze": "Draw what was trained, into the workdir.",
    "compile": "Compile the training step for other hardware; prints whether it fits.",
    "fields": "List the fields of a configuration, those that it changes first.",
}
"""The commands that take a configuration, and what they do."""

_ALL = tuple(EXPERIMENTS)
_RUN = ("train", "plan", "compare", "eval", "analyze")
_READ = ("train", "plan", "eval", "analyze", "compile", "compare")
FLAGS: Sequence[Flag] = (
    Flag("--data-dir=PATH", "your folder or file, or the folder of downloaded datasets", _READ),
    Flag(
        "--rates=A,B,…",
        "learning rates that each arm tries before the comparison; one rate trains all arms at it "
        "(default: the configuration's)",
        _READ,
    ),
    Flag(
        "--workdir=DIR",
        "folder of the runs, local or gs://BUCKET/FOLDER (default: runs/NAME)",
        _RUN,
    ),
    Flag(
        "--config.FIELD=VALUE",
        "set a field, such as --config.batch=64 or --config.seeds=0-4; "
        "`mimetic fields CONFIG` lists all",
        _ALL,
    ),
    Flag(
        "--config.arms.NAME.FIELD=VALUE",
        'set a field of one arm, such as --config.arms.mine.scheme="Mimetic(beta_qk=0.5)"',
        _ALL,
    ),
    Flag(
        "--tensorboard=DIR", "write TensorBoard files of the metrics, a folder per run", ("train",)
    ),
    Flag(
        "--target=CHIP",
        "hardware: v5e:4x4, v5p:2x2x2, v6e:2x4, h200:8 by chips, or a type of a cloud: "
        "v5litepod-16, v5p-8 (4 chips), … (default of plan: this machine)",
        ("plan", "compile"),
    ),
    Flag(
        "--what=NAME",
        "products (W_Q W_Kᵀ and W_V W_out of each arm), attention (attention maps) or curves "
        "(score by step), before and after training (default: products)",
        ("analyze",),
    ),
    Flag(
        "--distributed",
        "this is one of several processes; JAX finds the others (TPU pod, Slurm, GKE)",
        ("train", "eval", "analyze"),
    ),
    Flag(
        "--coordinator=HOST:PORT",
        "address of process 0, with --num-processes=N and --process-id=I (from 0), if JAX does "
        "not find the processes",
        ("train", "eval", "analyze"),
    ),
)


def flag(name: str) -> Flag:
    """Return the flag that is written --NAME.

    >>> flag("target").commands
    ('plan', 'compile')
    """
    return next(flag for flag in FLAGS if flag.written.partition("=")[0] == f"--{name}")


def of_experiment(command: str) -> str:
    """Return the help of a command that takes a configuration.

    >>> print(of_experiment("compile").splitlines()[0])
    usage: mimetic compile CONFIG[:ARGUMENT=VALUE,…] [FLAGS]
    """
    words = " [WORD …]" if command == "fields" else ""
    lines = [
        f"usage: mimetic {command} CONFIG[:ARGUMENT=VALUE,…]{words} [FLAGS]",
        "",
        EXPERIMENTS[command],
        "",
        *_entry(
            "CONFIG",
            "a name that `mimetic configs` lists, or the path of a file, FILE.py; CONFIG:help "
            "lists its arguments",
        ),
    ]
    if words:
        lines += _entry("WORD", "list only fields whose name or meaning has one of these words")
    for flag in FLAGS:
        if command in flag.commands:
            lines += _entry(flag.written, flag.meaning)
    return "\n".join(lines)


def of_main() -> str:
    """Return the help of main.py, which takes the command as --mode."""
    modes = "; ".join(f"{name}: {what.rstrip('.').lower()}" for name, what in EXPERIMENTS.items())
    lines = [
        *_entry("--config=CONFIG", "a name that `mimetic configs` lists, or FILE.py; arguments"),
        *_entry("--mode=COMMAND", f"{modes} (default: train)"),
    ]
    for flag in FLAGS:
        only = "" if set(_RUN) <= set(flag.commands) else f" [{', '.join(flag.commands)}]"
        lines += _entry(flag.written, flag.meaning + only)
    return "\n".join(lines)


def _entry(name: str, meaning: str) -> Iterator[str]:
    """A flag and its meaning, in two columns."""
    margin = " " * 26
    first, *rest = textwrap.wrap(meaning, _WIDTH - len(margin))
    if len(name) > len(margin) - 4:
        yield f"  {name}"
        yield f"{margin}{first}"
    else:
        yield f"  {name:<{len(margin) - 2}}{first}"
    yield from (f"{margin}{line}" for line in rest)


def page(parsers: Sequence[argparse.ArgumentParser]) -> Iterator[str]:
    """Yield the lines of docs/commands.md: all commands with their flags."""
    yield from ("## Commands with a configuration", "", "| command | what it does |", "|---|---|")
    yield from (f"| `mimetic {command} CONFIG` | {what} |" for command, what in EXPERIMENTS.items())
    yield from ("", "| flag | of | meaning |", "|---|---|---|")
    for flag in FLAGS:
        of = "all" if set(_ALL) <= set(flag.commands) else ", ".join(flag.commands)
        of = "all but fields" if set(_ALL) - set(flag.commands) == {"fields"} else of
        yield f"| `{flag.written}` | {of} | {flag.meaning} |"
    yield from ("", "## Other commands", "", "| command | what it does |", "|---|---|")
    yield from (f"| `{parser.prog}` | {parser.description} |" for parser in parsers)
    yield from ("", "| argument | of | meaning |", "|---|---|---|")
    commands = defaultdict[tuple[str, str], list[str]](list)
    for parser in parsers:
        for action in parser._actions:  # argparse has no public list of them
            if not isinstance(action, argparse._HelpAction):
                value = "" if action.nargs == 0 else f"={action.metavar or action.dest.upper()}"
                options = [name for name in action.option_strings if "_" not in name]
                name = f"{options[0]}{value}" if options else str(action.metavar)
                meaning = (action.help or "") % vars(action)
                commands[name, meaning].append(parser.prog.removeprefix("mimetic "))
    for (name, meaning), those in commands.items():
        yield f"| `{name}` | {', '.join(those)} | {meaning} |"
