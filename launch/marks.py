"""What runs must agree in to be compared, and what the arms of a row reached."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from typing import NamedTuple

from launch.registry import PLACEHOLDER, Entry, Spec, teacher_mark
from launch.results import Results
from mimetic_jax.base.errors import InputError
from mimetic_jax.train.config import arms_of, to_json
from mimetic_jax.train.controls import controls
from mimetic_jax.train.record import Record
from mimetic_jax.train.report import BASELINES, ArmResult, differences
from mimetic_jax.train.schema import affecting, digest
from mimetic_jax.train.statistics import Difference


class Mark(NamedTuple):
    """What the runs of an arm must agree in to be compared, and the arm's control.

    The results depend on what `result` is a digest of; arms that agree in `data` have the same.
    `weights` is the mark of what its runs start from, if the comparison starts from anything.
    """

    result: str
    data: str
    control: str
    weights: str = ""


@functools.cache
def marks(
    spec: Spec, init: tuple[str, ...], recorded: tuple[tuple[str, str], ...] = ()
) -> Mapping[str, Mark]:
    """The marks of a comparison's arms.

    Args:
        spec: of the comparison.
        init: its arms.
        recorded: (arm, mark of what its runs started from), the last one for all others, for a
            comparison that starts from something and isn't given it. The mark counts in place of
            the path.
    """
    found, records = {}, {name: to_json(arm) for name, arm in arms_of(spec.load(init)).items()}
    own = controls(records)
    paths = [spec.file] if spec.file else PLACEHOLDER.findall(spec.arguments)
    for name, record in records.items():
        del record["arms"]
        # Students of different teachers differ in nothing else.
        record["init_from"] = (record["init_from"] or "").replace("{arm}", name)
        mark = dict(recorded).get(name, recorded[-1][1] if recorded else "")
        if spec.file:
            mark = teacher_mark(spec.file, record["init_from"])
        for path in paths:
            record = json.loads(json.dumps(record).replace(json.dumps(path)[1:-1], mark))
        data = {k: v for k, v in affecting(record, "data").items() if k != "data.dir"}
        about = json.dumps(data, sort_keys=True), own.get(name, ""), mark
        found[name] = Mark(digest(record), *about)
    return found


@dataclasses.dataclass(frozen=True)
class Standing:
    """What an arm of a row reached, and what it is compared with.

    Attributes:
        entry: the row.
        result: its runs there.
        gain: over the default; None for the default, and without shared seeds.
        positions: over the default with sin-cos positions, where the row has that arm.
        structure: over noise of its norms; None for an arm without such a control.
        edge: of an arm that chose its row, whether it didn't try both rows next to that one: its
            best may be beyond.
    """

    entry: Entry
    result: ArmResult
    gain: Difference | None = None
    positions: Difference | None = None
    structure: Difference | None = None
    edge: bool = False


def reached(entry: Entry, results: Results) -> dict[str, Standing]:
    """What each arm of a row reached in its runs of today's configuration.

    Raises:
        InputError: some were trained on other data; lines of older versions don't know theirs.
    """
    found: dict[str, ArmResult] = {}
    first: dict[str, Record] = {}
    if not (lines := results.of(entry.spec)):
        return {}  # without the seconds that reading its configuration takes
    recorded = {line.arm: line.weights or "" for line in lines} | {"": lines[-1].weights or ""}
    for arm, mark in marks(entry.spec, entry.init, tuple(recorded.items())).items():
        runs = results.runs(entry.spec, arm, mark.result)
        for record in runs.values():
            one = first.setdefault(mark.data, record) if record.data else record
            if one.data != record.data:
                raise InputError(
                    f"{entry.spec.key}: {one.arm} seed {one.seed} was trained on data of "
                    f"fingerprint {one.data}, {record.arm} seed {record.seed} on {record.data}: "
                    "they can't be compared; delete the lines of one of them"
                )
        if runs:
            found[arm] = ArmResult(arm, runs, entry.row.label, control=mark.control)

    standings = {}
    for arm, own in found.items():
        gain, positions, structure = map(differences(own, [*found.values()]).get, BASELINES)
        standings[arm] = Standing(entry, own, gain, positions, structure)
    return standings
