"""What can be trained: the rows of tables and figures, complete, and their list."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ml_collections import ConfigDict

from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.command import shipped
from mimetic_jax.command.assign import assign
from mimetic_jax.train.config import recorded_arms, to_json
from mimetic_jax.train.controls import NOISE, control_of
from mimetic_jax.train.schema import digest
from mimetic_jax.train.store.claim import Claim
from papers import FIGURES, PAPERS, TABLES
from papers.record import FILE, FIRST_STAGE, Figure, Row, Table

if TYPE_CHECKING:
    from launch.runs import Results

SEEDS = (0, 1, 2)
"""Of each row unless others are asked for: the fewest that a claim takes."""


def rows(name: str, small: bool = False, of: Sequence[Row] = ()) -> list[Row]:
    """The rows of a table or of a figure, or `of` others of it such as its untrained networks.

    With `small` those that have a scaled form, in it.
    """
    shown, found = TABLES.get(name) or FIGURES[name], []
    table = TABLES.get(shown.table) if isinstance(shown, Figure) else shown
    shared, controls = (table.fields, table.controls) if table else ({}, ())
    for number, row in enumerate(of or shown.rows or (table.rows if table else ()), 1):
        arguments, fields = row.arguments, {**shared, **row.fields}
        if small:
            if (scale := row.small or shown.small) is None:
                continue
            arguments, fields = scale.scaled(arguments), {**fields, **scale.fields}
        found.append(
            dataclasses.replace(
                row,
                arguments=arguments,
                fields=fields,
                config=row.config or (table.config if table else None),
                arms=tuple(dict.fromkeys((*row.published, *row.arms, *controls))),
                table=name,
                number=number,
                seeds=(table.seeds if table else ()) or SEEDS,
                is_small=small,
            )
        )
    return found


def load(row: Row) -> ConfigDict:
    """The configuration of a row with its arms; with those of the config, if it names none."""
    given = {
        name: row.file if row.file and value in (FILE, FIRST_STAGE) else value
        for name, value in row.arguments.items()
    }
    assert row.config is not None
    config = shipped.configuration(row.config, given | ({"init": row.arms} if row.arms else {}))
    for name, value in row.fields.items():
        assign(config, name, value)
    return config


def folder(row: Row) -> str:
    """The workdir of a row, among those of other comparisons.

    >>> folder(rows("attention/table1")[1])
    'cifar10_vit_width=96_depth=12_heads=3_patch=2_1d42'
    """
    mark = hashlib.sha256(row.key.encode()).hexdigest()[:4]
    name = re.sub(r"[^\w=.+-]", "_", row.key.partition(" ")[0])
    found = f"{name[:80]}_{mark}{'_small' * row.is_small}"
    return f"{found}_from_{mark_of(row.file)}" if row.file else found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Made:
    """What makes a run, as fields of a line of the results.

    Runs of one `digest`, that of the arm's configuration, are compared. `control_of` has the
    digests of the arms whose control it is, `weights` the mark of the file or first stage that it
    started from. The others are fields of the configuration.
    """

    digest: str
    control_of: tuple[str, ...] = ()
    control: str = NOISE
    batch: int = 0
    dtype: str = "float32"
    base: str = ""
    weights: str | None = None


def made(row: Row, arms: Mapping[str, ConfigDict]) -> dict[str, Made]:
    """What makes the runs of each arm of a row, from its configuration."""
    found = {}
    for name, config in arms.items():
        config_json, weights = to_json(config), None
        del config_json["arms"]
        # Students of different teachers differ in nothing else.
        config_json["init_from"] = (config_json["init_from"] or "").replace("{arm}", name)
        if row.file:  # its content counts in place of its path
            weights = teacher_mark(row.file, config_json["init_from"])
            config_json["init_from"] = config_json["init_from"].replace(row.file, weights)
        control = control_of(config_json)
        found[name] = Made(
            digest=digest(config_json),
            control_of=control.of,
            control=control.kind,
            batch=config.batch,
            dtype=config.model.get("dtype", "float32"),
            base=config.model.get("base") or "",
            weights=weights,
        )
    return found


def teacher_mark(file: str, start: str) -> str:
    """`mark_of` what a run starts from; if `start` is FILE/runs/ARM/SEED, the mark of that arm."""
    named = re.match(re.escape(f"{file}/runs/") + "([^/]+)", start)
    if not named:
        return mark_of(file)
    arms = recorded_arms(Claim.of(pathlib.Path(file)).config)
    if named[1] not in arms:
        raise unknown(f"arm in --file={file}", named[1], arms)
    return digest({**arms[named[1]], "arms": {}})


@functools.cache
def mark_of(file: str) -> str:
    """12 hexadecimal digits of what runs start from; copies of a file have the same.

    A workdir's are those of its configuration without arms: more seeds and arms leave them.
    """
    path = pathlib.Path(file)
    if path.is_dir():
        return digest({**Claim.of(path).config, "arms": {}})
    if not path.is_file():
        raise InputError(f"--file={file}: there is no such file")
    if path.suffix not in (".npz", ".safetensors"):
        raise InputError(f"--file={file} is none of .npz, .safetensors")
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()[:12]


def listing(results: Results) -> Iterator[str]:
    """A line for each table and figure, with what the results have of it."""
    for name, paper in PAPERS.items():
        yield f"{name}: {(paper.__doc__ or '').strip().splitlines()[0]}"
        for key, table in paper.TABLES.items():
            full, small = rows(f"{name}/{key}"), rows(f"{name}/{key}", small=True)
            done = sum(bool(state(row, table, results)) for row in (*full, *small))
            about = [f"{len(full)} row{'s' * (len(full) > 1)}", "--small" * bool(small)]
            about += [f"{done} with runs" * bool(done)]
            yield f"  {key}: {table.title} ({', '.join(filter(None, about))})"
        for key, figure in FIGURES.items():
            if key.startswith(f"{name}/"):
                needs = f" (needs {figure.needs})" * bool(figure.needs)
                yield f"  {key.partition('/')[2]}: {figure.title}{needs}"
        yield ""


def rows_listed(name: str, results: Results) -> Iterator[str]:
    """A line for each row of a table: its published numbers, and what the results have of it."""
    table = TABLES[name]
    scores = " or ".join(dict.fromkeys(row.score or table.score for row in table.rows))
    hardware = f"; {table.hardware}" * bool(table.hardware)
    yield f"{name}: {table.title} ({scores}{hardware})"
    small = {row.number: state(row, table, results) for row in rows(name, small=True)}
    for row in rows(name):
        published = (*row.published.items(), *row.others.items())
        parts = (
            ", ".join(f"{arm} {value:g}" for arm, value in published) or "no number",
            state(row, table, results) or (f"needs {row.needs}" if row.needs else "not run"),
            f"small: {small[row.number].removeprefix('done, ')}" if small.get(row.number) else "",
        )
        yield f"  {row.number:>2} {row.label}: {'; '.join(filter(None, parts))}"


def state(row: Row, table: Table, results: Results) -> str:
    """How many runs of a row have their lines, for as many seeds as a claim takes; empty for none.

    Lines of an earlier configuration count too: telling them apart takes longer than the list.
    """
    trained = results.trained(row)
    if table.trials:  # arms choose among the rows: no row has all
        return f"{len(trained)} runs" if trained else ""
    seeds = [{seed for arm, seed in trained if arm == name} for name in row.arms]
    done, every = sum(min(len(SEEDS), len(of)) for of in seeds), len(seeds) * len(SEEDS)
    if done == every:
        return f"done, {len(set.intersection(*seeds))} seeds"
    return f"{done} of {every} runs" if done else ""
