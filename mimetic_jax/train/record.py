"""A finished run: where it was trained, what it reached, and the score that this is.

Metrics end in a `Record`; the files of results/ hold them, and tables show them.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import operator
import os
import pathlib
import subprocess
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

import jax

from mimetic_jax.base.errors import unknown
from mimetic_jax.base.typed import NOT_NEGATIVE, check_fields, from_json
from mimetic_jax.base.version import source_version

ROOT = pathlib.Path(__file__).resolve().parents[2]
_CODE = ("mimetic_jax", "configs", "launch", "benchmarks", "papers", "main.py")

Evaluations = Sequence[tuple[int, Mapping[str, float]]]
"""(step, means by name) of every test of a run, in order."""


@dataclasses.dataclass(frozen=True)
class Score:
    """A number of an evaluation, as tables show it.

    Attributes:
        name: the number's name in an evaluation.
        label: the heading of the table's column, with its unit.
        scale: the factor from the number to the column: 100 for percent.
        chosen_by: the number whose lowest value selects the evaluation that counts, such as the
            loss on a validation text; the last one counts if this is empty.
        digits: how many digits a table shows after the point.
    """

    name: str
    label: str
    scale: float = 1.0
    higher: bool = True
    chosen_by: str = ""
    digits: int = 2

    def curve(self, evaluations: Evaluations) -> list[tuple[int, float]]:
        """Return (step, score) of each evaluation."""
        return [(step, self.scale * values[self.name]) for step, values in evaluations]

    def counted(self, evaluations: Evaluations) -> Mapping[str, float]:
        """Return the evaluation that counts for a run.

        >>> BITS.counted([(0, {"bpc": 4, "test_bpc": 5}), (9, {"bpc": 3, "test_bpc": 6})])
        {'bpc': 3, 'test_bpc': 6}
        """
        every = [values for _, values in evaluations]
        return min(every, key=operator.itemgetter(self.chosen_by)) if self.chosen_by else every[-1]


ACCURACY = Score("accuracy", "accuracy %", scale=100.0)
PERPLEXITY = Score("test_perplexity", "test perplexity", higher=False, chosen_by="perplexity")
BITS = Score("test_bpc", "test bits/char", higher=False, chosen_by="bpc", digits=3)
BYTES = Score("test_bpb", "test bits/byte", higher=False, chosen_by="bpb", digits=3)

NOISE, PERMUTED, SCATTERED = "noise", "permuted", "scattered"
CONTROLS = {NOISE: "norm_matched_", PERMUTED: "permuted_", SCATTERED: "scattered_"}
"""The kinds of controls, and what stands before the name of an arm in that of its control.

Noise has the norms of the arm's kernels; permuted is the arm without its alignment alone; scattered
has impulses at random tokens instead of neighbors. All else is the same, so that a difference is
due to structure, to alignment, or to locality.
"""

SCORES = {score.name: score for score in (ACCURACY, PERPLEXITY, BITS, BYTES)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a result was computed; the devices are those of all processes.

    Attributes:
        platform, device_kind: JAX's names.
        code: the version of this package.
        commit: this code's commit, with "-dirty" if it differs; None without git.
        xla_flags: the environment's XLA_FLAGS, which may change the last digits; None in records
            that are older than it.
    """

    platform: str = ""
    device_kind: str = ""
    devices: int = 0
    jax: str = ""
    code: str = ""
    commit: str | None = None
    xla_flags: str | None = None

    @classmethod
    def here(cls) -> Origin:
        """This process and those that compute with it; asking takes the devices."""
        return Origin(
            platform=jax.default_backend(),
            device_kind=jax.devices()[0].device_kind,
            devices=jax.device_count(),
            jax=jax.__version__,
            code=source_version(),
            commit=commit(),
            xla_flags=os.environ.get("XLA_FLAGS", ""),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trained:
    """Which run it is, and what it is trained on: in its checkpoints and in its record.

    Attributes:
        data: the fingerprint of the data; None in records that are older than it.
        source: the digest of the weights that `init_from` names, if any.
    """

    arm: str
    seed: Annotated[int, NOT_NEGATIVE]
    data: str | None = None
    source: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record(Origin, Trained):
    """A finished run.

    Attributes:
        value: what it reached, in the units of tables.
        curve: (step, value) of every evaluation.
        loss: that of the evaluation that counts, by which trials of texts choose a rate.
        examples: the number of test examples, of a text its test tokens.
        train_examples, classes: the numbers of images that it trained on and of their classes; 0
            for other data, and in records that are older than these numbers.
        seconds: the time of training, without compilation.
        diverged: whether a trial's loss ceased to be finite: `value` is 0 then, and says nothing.
    """

    score: str
    value: float
    curve: tuple[tuple[int, float], ...] = ()
    loss: float | None = None
    examples: int = 0
    train_examples: int = 0
    classes: int = 0
    steps: int = 0
    seconds: Annotated[float, NOT_NEGATIVE] = 0.0
    diverged: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if self.score not in SCORES:
            raise unknown("score", self.score, SCORES)

    @classmethod
    def of(
        cls, score: Score, evaluations: Evaluations, origin: Origin, trained: Trained, **fields: Any
    ) -> Record:
        """Return the record of a run with these evaluations.

        >>> last = (10, {"accuracy": 0.5, "loss": 1.0})
        >>> Record.of(ACCURACY, [last], Origin(), Trained(arm="default", seed=0)).value
        50.0
        """
        counted = score.counted(evaluations)
        return cls(
            score=score.name,
            value=score.scale * counted[score.name],
            curve=tuple(score.curve(evaluations)),
            loss=counted["loss"],
            steps=evaluations[-1][0],
            **_origin_fields(origin, trained),
            **fields,
        )

    @classmethod
    def lost(cls, score: Score, origin: Origin, trained: Trained) -> Record:
        """Return the record of a trial that diverged."""
        return cls(score=score.name, value=0.0, diverged=True, **_origin_fields(origin, trained))

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON holds it.

        >>> record = Record(arm="default", seed=0, score="accuracy", value=93.8)
        >>> Record.from_json(record.to_json(), "here") == record
        True
        """
        return json.loads(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def from_json(cls, data: Any, where: str) -> Self:
        """Read the record of parsed JSON; ignores unknown fields, and errors start with `where`."""
        return from_json(cls, data, where, unknown_fields=True)


def _origin_fields(origin: Origin, trained: Trained) -> dict[str, Any]:
    about = {field.name: getattr(trained, field.name) for field in dataclasses.fields(Trained)}
    return {**dataclasses.asdict(origin), **about}


@functools.cache
def commit() -> str | None:
    """Return the commit of this code, with "-dirty" if the code differs, or "-unknown" if git
    doesn't say it in time; None without git."""
    if not (head := _git("rev-parse", "HEAD")):
        return None
    changed = _git("status", "--porcelain", "--", *_CODE)
    return head + ("-unknown" if changed is None else "-dirty" if changed else "")


_PATIENCE = 20.0
"""Seconds for git, which on a disk of a network may wait forever."""


def _git(*arguments: str) -> str | None:
    if not (ROOT / ".git").exists():  # installed: a repository above it is another project's
        return None
    try:
        command = ["git", "-C", str(ROOT), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
