"""WORKDIR/report.html: one file with the table, the pictures and the origin of a comparison."""

from __future__ import annotations

import argparse
import base64
import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from mimetic_jax.analysis import curves, style
from mimetic_jax.analysis.capture import initial
from mimetic_jax.base.errors import InputError
from mimetic_jax.base.extras import need
from mimetic_jax.schemes import Scheme, from_dict
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.config import from_json, recorded_arms
from mimetic_jax.train.report import grid, remarks
from mimetic_jax.train.store import files
from mimetic_jax.train.store.files import AnyPath, path_of
from mimetic_jax.train.verdicts import ArmResult, conclusions, controls_of
from mimetic_jax.trained.check import check

NAME = "report.html"

_STARTS = "starts"
"""The folder of the pictures of the arms' starts, ARM.png, in a workdir."""
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
    config: Mapping[str, Any], workdir: AnyPath, comparison: Comparison | None
) -> dict[str, str]:
    """Draw what `check` says of the first seed of each arm before training, unless it is drawn.

    Returns why it isn't drawn, by arm.
    """
    lacking = [name for name in recorded_arms(config) if not _start(workdir, name).exists()]
    if lacking and jax.process_count() > 1:  # all of them would have to draw
        alone = f"several processes trained it; mimetic report {workdir} draws it"
        return dict.fromkeys(lacking, alone)
    reasons = {}
    for name in lacking:
        try:
            if comparison is None or name not in comparison.arms:
                comparison = Comparison(from_json(config), say=lambda line: None)
            arm = comparison.arms[name]
            params = jax.device_get(initial(comparison, arm).variables["params"])
            checked = check(params, **arm.program.rewrite_options)
        except InputError as error:
            reasons[name] = str(error)
            continue
        if checked:
            style.save(checked.plot(), _start(workdir, name))
        else:
            reasons[name] = "the model has no attention"
    return reasons


def _start(workdir: AnyPath, arm: str) -> AnyPath:
    return workdir / _STARTS / f"{arm}.png"


def write(workdir: AnyPath, comparison: Comparison | None = None) -> str:
    """Write the page of a workdir, with the curves of what is finished so far, and name it.

    The comparison is read from the workdir unless given.
    """
    need("a report", "plot")
    import jinja2

    config, results = curves.read(workdir)
    curves.draw_workdir(workdir)
    undrawn = _draw_starts(config, workdir, comparison)
    pictures = {name: _inline(_start(workdir, name)) for name in recorded_arms(config)}
    template = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    ).from_string(_TEMPLATE.read_text(encoding="utf-8"))
    (header, *rows), page = grid(results), workdir / NAME
    files.write(
        page,
        template.render(
            name=config["name"],
            header=header,
            rows=rows,
            conclusions=list(conclusions(results)),
            controls=controls_of(results),
            remarks=remarks(results),
            score=results[0].score,
            curves=_inline(workdir / "curves.png"),
            starts={name: picture for name, picture in pictures.items() if picture},
            undrawn=undrawn,
            facts=_facts(config) | _counts(results[0]),
            arms=_arms(config),
            config=json.dumps(config, indent=2, ensure_ascii=False),
            origins=_origins(results),
            commands=_lines(workdir / _COMMANDS),
        ),
    )
    return f"report: {page}"


def _facts(config: Mapping[str, Any]) -> dict[str, str]:
    """What a comparison trains, in a few lines."""
    optimizer = config["optimizer"]
    length = f"{config['epochs']:g} epochs" if config["epochs"] else f"{config['steps']:,} steps"
    model = ", ".join(f"{k} {v}" for k, v in config["model"].items() if k != "name" and v)
    seeds = ", ".join(map(str, config["seeds"]))
    return {
        "data": " from ".join(filter(None, (config["data"]["name"], config["data"].get("dir")))),
        "model": f"{config['model']['name']} ({model})" if model else config["model"]["name"],
        "training": f"{length} of {config['batch']} examples; seeds {seeds}",
        "optimizer": f"{optimizer['name']}, learning rate {optimizer['learning_rate']:g}, "
        f"{optimizer['schedule']}, weight decay {optimizer['weight_decay']:g}",
    }


def _counts(result: ArmResult) -> dict[str, str]:
    """On how many examples an arm was trained and tested, and what one of them is in its score."""
    runs = result.runs.values()
    examples, images, classes = (
        max((getattr(run, name) for run in runs), default=0)
        for name in ("examples", "train_examples", "classes")
    )
    counts = {"images": f"{images:,} to train on, of {classes:,} classes"} if images else {}
    if examples:
        counts["tests"] = f"on {examples:,} examples"
        if result.score.scale == 100:
            counts["tests"] += f"; one of them is {100 / examples:.2g} points"
    return counts


def _arms(config: Mapping[str, Any]) -> dict[str, str]:
    """What each arm overrides, on a line."""
    return {
        name: ", ".join(f"{field}: {_override(value)}" for field, value in own.items()) or "–"
        for name, own in config["arms"].items()
    }


def _override(value: Any) -> str:
    """A value of a configuration as text; schemes as their calls."""
    try:
        every = [from_dict(scheme) for scheme in (value if isinstance(value, list) else [value])]
    except InputError:  # no scheme, or one of a module that isn't imported here
        return json.dumps(value, ensure_ascii=False)
    return " then ".join(map(_call, every)) or "as the model draws them"


def _call(scheme: Scheme) -> str:
    """The call that makes a scheme, without what it leaves at its default.

    >>> from mimetic_jax.schemes import Mimetic, NormMatched
    >>> _call(NormMatched(Mimetic(beta_vo=-0.2)))
    'NormMatched(like=Mimetic(beta_vo=-0.2))'
    """
    own = [
        f"{field.name}={_call(value) if isinstance(value, Scheme) else repr(value)}"
        for field in dataclasses.fields(scheme)
        if (value := getattr(scheme, field.name)) != field.default
    ]
    return f"{type(scheme).__name__}({', '.join(own)})"


def _origins(results: Sequence[ArmResult]) -> list[str]:
    """Where the runs were trained, each combination once."""
    return list(
        dict.fromkeys(
            f"{run.devices} × {run.device_kind or run.platform}, mimetic_jax {run.code}, "
            f"JAX {run.jax}, commit {run.commit or 'unknown'}"
            for result in results
            for run in result.runs.values()
        )
    )


def _inline(picture: AnyPath) -> str:
    """A picture as a data URI; empty if there is none."""
    if not picture.exists():
        return ""
    return f"data:image/png;base64,{base64.b64encode(files.read(picture)).decode()}"


def _lines(path: AnyPath) -> list[str]:
    return files.read(path).decode().splitlines() if path.exists() else []


def main(arguments: Sequence[str]) -> None:
    """`mimetic report WORKDIR`."""
    parser = argparse.ArgumentParser(
        prog="mimetic report",
        description="Write WORKDIR/report.html: table, curves, start and origin in one file.",
    )
    parser.add_argument("workdir", metavar="WORKDIR", help="a folder or gs://BUCKET/…")
    print(write(path_of(parser.parse_args(arguments).workdir)))
