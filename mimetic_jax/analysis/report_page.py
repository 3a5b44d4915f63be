"""WORKDIR/report.html: one file with the table, the pictures and the origin of a comparison."""

from __future__ import annotations

import argparse
import base64
import json
import pathlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax

from mimetic_jax.analysis import curves, starts
from mimetic_jax.base.errors import InputError
from mimetic_jax.base.extras import need
from mimetic_jax.schemes import from_dict
from mimetic_jax.schemes.base import call_of
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.config import from_json, recorded_arms
from mimetic_jax.train.rates import format_rate
from mimetic_jax.train.record import ACCURACY
from mimetic_jax.train.report import grid, remarks
from mimetic_jax.train.store import files
from mimetic_jax.train.store.files import AnyPath, path_of
from mimetic_jax.train.verdicts import ArmResult, conclusions, controls_of

NAME = "report.html"

_STARTS = "starts"
"""The folder of the pictures of the arms' starts in a workdir."""
_SHOWN = {
    starts.PATCHES: "The first filters of the patch embedding; gray is 0.",
    starts.POSITIONS: "The table of positions; red is positive, blue negative.",
    starts.PRODUCTS: "How closely W_Q W_Kᵀ of each head and W_V W_out of each layer are aligned "
    "with the identity: 1 is the identity itself, −1 its negative, and noise stays in the gray "
    "band.",
}
"""What the pictures of the arms' starts show."""
_COMMANDS = "commands.txt"
"""The commands that trained in a workdir, one a line."""
_TEMPLATE = pathlib.Path(__file__).with_name("report.html")


def analyze(comparison: Comparison, workdir: AnyPath, command: str) -> str:
    """Draw what the arms start from, remember the command that trained, and write the page."""
    need("a report", "plot")
    commands = workdir / _COMMANDS
    if command not in _lines(commands):
        files.append_line(commands, command)
    return write(workdir, comparison)


def _draw_starts(
    arms: Iterable[str], seed: int, workdir: AnyPath, comparison: Comparison | str
) -> dict[str, list[str]]:
    """Draw what the first seed of each arm starts from, unless it is drawn.

    `comparison` may be why there is none. Returns the arms that can't be drawn, by the reason.
    """
    reasons: dict[str, list[str]] = defaultdict(list)
    for name in (name for name in arms if not _pictures(workdir, name, seed)):
        if jax.process_count() > 1:  # all of them would have to draw
            reason = f"several processes trained it; mimetic report {workdir} draws it"
        elif isinstance(comparison, str):
            reason = comparison
        else:
            try:
                starts.draw(comparison, comparison.arms[name], workdir / _STARTS)
                continue
            except InputError as error:
                reason = str(error)
        reasons[reason].append(name)
    return reasons


def _pictures(workdir: AnyPath, arm: str, seed: int) -> dict[str, str]:
    """Find the pictures of an arm's initialization, by kind."""
    paths = {what: starts.path_of_start(workdir / _STARTS, arm, seed, what) for what in _SHOWN}
    return {what: _inline(path) for what, path in paths.items() if path.exists()}


def _of_workdir(config: Mapping[str, Any], comparison: Comparison | None) -> Comparison | str:
    """A comparison with all arms and the first seed of a workdir, or why there is none."""
    if (
        comparison
        and comparison.arms.keys() >= recorded_arms(config).keys()
        and comparison.config.seeds[0] == config["seeds"][0]
    ):
        return comparison
    try:
        return Comparison(from_json(config), say=lambda line: None)
    except InputError as error:
        return str(error)


def write(workdir: AnyPath, comparison: Comparison | None = None) -> str:
    """Write the page of a workdir, with the curves of what is finished so far, and name it.

    The comparison defaults to that of the workdir.
    """
    need("a report", "plot")
    import jinja2

    config, results = curves.read(workdir)
    curves.draw_workdir(workdir)
    every = _of_workdir(config, comparison)
    arms, seed = recorded_arms(config), config["seeds"][0]
    undrawn = _draw_starts(arms, seed, workdir, every)
    shown: dict[str, dict[str, list[str]]] = {}
    for arm in arms:
        for what, picture in _pictures(workdir, arm, seed).items():
            shown.setdefault(what, {}).setdefault(picture, []).append(arm)
    template = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    ).from_string(_TEMPLATE.read_text(encoding="utf-8"))
    (header, *rows), page = grid(results), workdir / NAME
    rates = {arm: format_rate(own["optimizer"]["learning_rate"]) for arm, own in arms.items()}
    files.write(
        page,
        template.render(
            name=config["name"],
            header=(header[0], "learning rate", *header[1:]),
            rows=[(arm, rates[arm], *cells) for arm, *cells in rows],
            conclusions=list(conclusions(results)),
            lacking=_lacking(config["seeds"], arms, results),
            controls=controls_of(results),
            remarks=remarks(results),
            score=results[0].score,
            curves=_inline(workdir / "curves.png"),
            starts=[(text, shown[what]) for what, text in _SHOWN.items() if what in shown],
            seed=seed,
            undrawn=undrawn,
            facts=_facts(config, every) | _counts(results[0]),
            arms=_arms(config),
            config=json.dumps(config, indent=2, ensure_ascii=False),
            origins=_origins(results),
            commands=_lines(workdir / _COMMANDS),
        ),
    )
    return f"report: {page}"


def _lacking(seeds: Sequence[int], arms: Iterable[str], results: Sequence[ArmResult]) -> str:
    """The arms and seeds without a result, as "default (seeds 1, 2)"; "" if there is none."""
    ended = {result.arm: result.runs for result in results}
    left = {arm: [seed for seed in seeds if seed not in ended.get(arm, ())] for arm in arms}
    return ", ".join(
        f"{arm} (seed{'s' * (len(lacked) > 1)} {', '.join(map(str, lacked))})"
        for arm, lacked in left.items()
        if lacked
    )


def _facts(config: Mapping[str, Any], comparison: Comparison | str) -> dict[str, str]:
    """What a comparison trains, in a few lines."""
    optimizer = config["optimizer"]
    length = f"{config['epochs']:g} epochs" if config["epochs"] else f"{config['steps']:,} steps"
    model = ", ".join(f"{k} {v}" for k, v in config["model"].items() if k != "name" and v)
    seeds = ", ".join(map(str, config["seeds"]))
    every = [] if isinstance(comparison, str) else comparison.arms.values()
    of_text = config["task"] == "text"  # of images the records have the numbers
    infos = [arm.source.info for arm in every]
    notes = dict.fromkeys(str(x) if of_text else getattr(x, "notes", "") for x in infos)
    data = " from ".join(filter(None, (config["data"]["name"], config["data"].get("dir"))))
    return {
        "data": "; ".join((data, *filter(None, notes))),
        "model": f"{config['model']['name']} ({model})" if model else config["model"]["name"],
        "training": f"{length} of {config['batch']} examples; seeds {seeds}",
        "optimizer": f"{optimizer['name']}, {optimizer['schedule']}, "
        f"weight decay {optimizer['weight_decay']:g}",
    }


def _counts(result: ArmResult) -> dict[str, str]:
    """On how many examples an arm was trained and tested, and what one of them is in its score."""
    runs = result.runs.values()
    examples, images, classes = (
        max((getattr(run, name) for run in runs), default=0)
        for name in ("examples", "train_examples", "classes")
    )
    counts = {"images": f"{images:,} to train on, of {classes:,} classes"} if images else {}
    if examples and result.score is ACCURACY:
        counts["tests"] = f"on {examples:,} images; one of them is {100 / examples:.2g} points"
    elif examples:
        counts["tests"] = f"on {examples:,} tokens"
    return counts


def _arms(config: Mapping[str, Any]) -> dict[str, str]:
    """What each arm overrides beside its learning rate, on a line."""
    arms = {}
    for name, own in config["arms"].items():
        optimizer = {x: y for x, y in own.get("optimizer", {}).items() if x != "learning_rate"}
        fields = {**own, "optimizer": optimizer}
        shown = (f"{x}: {_override(y)}" for x, y in fields.items() if y != {})
        arms[name] = ", ".join(shown) or "–"
    return arms


def _override(value: Any) -> str:
    """A value of a configuration as text; schemes as their calls."""
    try:
        every = [from_dict(scheme) for scheme in (value if isinstance(value, list) else [value])]
    except InputError:  # no scheme, or one of a module that isn't imported here
        return json.dumps(value, ensure_ascii=False)
    return " then ".join(map(call_of, every)) or "as the model draws them"


def _origins(results: Sequence[ArmResult]) -> list[str]:
    """Where the runs were trained, each combination once."""
    return list(
        dict.fromkeys(
            f"{run.devices} × {run.device_kind or run.platform}, JAX {run.jax}, mimetic_jax "
            f"{run.code.partition('+')[0]} of commit {run.commit or 'unknown'}, whose code has the "
            f"digest {run.code.partition('+')[2] or 'unknown'}"
            for result in results
            for run in result.runs.values()
        )
    )


def _inline(picture: AnyPath) -> str:
    """A picture as a data URI."""
    return f"data:image/png;base64,{base64.b64encode(files.read(picture)).decode()}"


def _lines(path: AnyPath) -> list[str]:
    return files.read(path).decode().splitlines() if path.exists() else []


def make_parser() -> argparse.ArgumentParser:
    """Return the arguments of `mimetic report`."""
    parser = argparse.ArgumentParser(
        prog="mimetic report",
        description="Write WORKDIR/report.html: table, curves, initial weights and origin.",
    )
    parser.add_argument("workdir", metavar="WORKDIR", help="a folder or gs://BUCKET/…")
    return parser


def main(arguments: Sequence[str]) -> None:
    """Run `mimetic report WORKDIR`."""
    print(write(path_of(make_parser().parse_args(arguments).workdir)))
