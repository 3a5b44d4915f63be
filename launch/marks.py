"""What runs must agree in to be compared: digits of their configuration and of their data."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence

from ml_collections import ConfigDict

from launch.registry import Entry, Spec
from launch.results import Results
from launch.weights import PLACEHOLDERS, Weights
from mimetic_jax.base.errors import InputError
from mimetic_jax.train.config import arms_of, to_json
from mimetic_jax.train.controls import controls
from mimetic_jax.train.record import Record
from mimetic_jax.train.report import ArmResult
from mimetic_jax.train.schema import affecting, digest


@dataclasses.dataclass(frozen=True)
class Mark:
    """What the runs of an arm must agree in.

    Attributes:
        result: of all on which its results depend: lines of other digits aren't compared.
        data: of what names its data: arms that agree in it have the same.
        control: the arm that is its control, if the comparison has one.
    """

    result: str
    data: str
    control: str = ""


Marks = Mapping[Spec, Mapping[str, Mark]]
"""By comparison and arm."""


def marks_of(config: ConfigDict, weights: Weights | None) -> dict[str, Mark]:
    """The marks of a comparison's arms.

    Args:
        config: of the comparison.
        weights: that `init_from` or a scheme names, if any; their content counts in place of their
            path.
    """
    found, records = {}, {name: to_json(arm) for name, arm in arms_of(config).items()}
    own = controls(records)
    for name, record in records.items():
        del record["arms"]
        # Students of different teachers differ in nothing else.
        record["init_from"] = (record["init_from"] or "").replace("{arm}", name)
        if weights:
            path = json.dumps(weights.path)[1:-1]
            record = json.loads(json.dumps(record).replace(path, weights.mark))
        data = {k: v for k, v in affecting(record, "data").items() if k != "data.dir"}
        mark = json.dumps(data, sort_keys=True)
        found[name] = Mark(digest(record), mark, own.get(name, ""))
    return found


def marks_of_lines(rows: Sequence[Entry], results: Results) -> dict[Spec, dict[str, Mark]]:
    """The marks of those comparisons that have lines; the others need none."""
    wanted: dict[Spec, dict[str, None]] = {}
    for entry in rows:
        if results.of(entry.spec):
            wanted.setdefault(entry.spec, {}).update(dict.fromkeys(entry.init))
    return {
        spec: marks_of(spec.load(list(names)), _recorded(spec, results))
        for spec, names in wanted.items()
    }


def _recorded(spec: Spec, results: Results) -> Weights | None:
    """The weights that the last run of a comparison started from, if it starts from any."""
    for placeholder in PLACEHOLDERS:
        if placeholder in spec.arguments:
            return Weights(placeholder, results.of(spec)[-1].weights or "", placeholder)
    return None


def reached(
    spec: Spec, results: Results, marks: Mapping[str, Mark], row: str = ""
) -> dict[str, ArmResult]:
    """What each arm of a comparison reached in its runs of today's configuration.

    Raises:
        InputError: some were trained on other data; lines of older versions don't know theirs.
    """
    found: dict[str, ArmResult] = {}
    first: dict[str, Record] = {}
    for arm, mark in marks.items():
        runs = results.runs(spec, arm, mark.result)
        for record in runs.values():
            one = first.setdefault(mark.data, record) if record.data else record
            if one.data != record.data:
                raise InputError(
                    f"{spec.key}: {one.arm} seed {one.seed} was trained on data of fingerprint "
                    f"{one.data}, {record.arm} seed {record.seed} on {record.data}: they can't be "
                    "compared; delete the lines of one of them"
                )
        if runs:
            found[arm] = ArmResult(arm, runs, row, control=mark.control)
    return found


def counted(rows: Sequence[Entry], results: Results) -> list[tuple[Entry, dict[str, ArmResult]]]:
    """Rows, each with what its arms reached; see `reached`."""
    marks = marks_of_lines(rows, results)
    return [(row, reached(row.spec, results, marks.get(row.spec, {}))) for row in rows]
