"""A finished run: what its metrics end in, a line of results/*.jsonl holds, and tables show."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Annotated, Any

from mimetic_jax.errors import unknown
from mimetic_jax.train.origin import Origin
from mimetic_jax.train.score import SCORES, Evaluations, Score
from mimetic_jax.typed import NOT_NEGATIVE, check_fields, from_json


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record(Origin):
    """A finished run.

    Attributes:
        arm, seed: which run.
        score: the name of its score.
        value: what it reached, in the units of tables.
        curve: (step, value) of every evaluation; empty for a member of a large population.
        elsewhere: the last value on other test sets, by name, such as that at twice the length.
        loss: of the last evaluation.
        examples: on which each evaluation tests.
        steps: taken.
        seconds: of training, without compilation.
        data: the fingerprint of the data; None in lines that are older than it.
        source: the digest of the weights that `init_from` names, if any.
    """

    arm: str
    seed: Annotated[int, NOT_NEGATIVE]
    score: str
    value: float
    curve: tuple[tuple[int, float], ...] = ()
    elsewhere: Mapping[str, float] = dataclasses.field(default_factory=dict)
    loss: float | None = None
    examples: int = 0
    steps: int = 0
    seconds: Annotated[float, NOT_NEGATIVE] = 0.0
    data: str | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.score not in SCORES:
            raise unknown("score", self.score, SCORES)

    @classmethod
    def of(cls, score: Score, evaluations: Evaluations, origin: Origin, **fields: Any) -> Record:
        """The record of a run with these evaluations.

        >>> from mimetic_jax.train.score import ACCURACY
        >>> last = (10, {"accuracy": 0.5, "loss": 1.0})
        >>> Record.of(ACCURACY, [last], Origin(), arm="default", seed=0).value
        50.0
        """
        steps, values = evaluations[-1]
        return cls(
            score=score.name,
            value=score.value(evaluations),
            curve=tuple(score.curve(evaluations)),
            elsewhere=score.elsewhere(evaluations),
            loss=values["loss"],
            steps=steps,
            **dataclasses.asdict(origin),
            **fields,
        )

    def to_json(self) -> dict[str, Any]:
        """The record as JSON holds it.

        >>> record = Record(arm="default", seed=0, score="accuracy", value=93.8)
        >>> Record.from_json(record.to_json(), "here") == record
        True
        """
        return json.loads(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def from_json(cls, data: Any, where: str) -> Record:
        """The record of parsed JSON; fields that it doesn't have are ignored.

        Raises:
            InputError: a field is missing or of another type; the error starts with `where`.
        """
        return from_json(cls, data, where, unknown_fields=True)
