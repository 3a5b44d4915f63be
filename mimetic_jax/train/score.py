"""The number that a comparison is about."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

Evaluations = Sequence[tuple[int, Mapping[str, float]]]
"""(step, means by name) of every test of a run, in order."""


@dataclasses.dataclass(frozen=True)
class Score:
    """A number of an evaluation, as tables show it.

    Attributes:
        name: of the number in an evaluation.
        label: of the table's column, with its unit.
        scale: from the number to the column: 100 for percent.
        higher: whether more is better.
        chosen_by: the number whose lowest value selects the evaluation that counts, such as the
            loss on a validation text; the last one counts where this is empty.
        digits: of a table, after the point.
        goal: a value of the column, the steps to which a table shows; None: no such column.
    """

    name: str
    label: str
    scale: float = 1.0
    higher: bool = True
    chosen_by: str = ""
    digits: int = 2
    goal: float | None = None

    def goodness(self, values: Mapping[str, float]) -> float:
        """How good an evaluation is: more is better.

        >>> Score("error", "errors %", higher=False).goodness({"error": 2.5})
        -2.5
        """
        if self.chosen_by:
            return -values[self.chosen_by]
        return values[self.name] if self.higher else -values[self.name]

    def curve(self, evaluations: Evaluations) -> list[tuple[int, float]]:
        """(step, score) of each evaluation."""
        return [(step, self.scale * values[self.name]) for step, values in evaluations]

    def value(self, evaluations: Evaluations) -> float:
        """The score of a run: that of its last evaluation, or of the one that counts.

        >>> BITS.value([(0, {"bpc": 4, "test_bpc": 5}), (9, {"bpc": 3, "test_bpc": 6})])
        6.0
        """
        counts = -1
        if self.chosen_by:
            chosen = [values[self.chosen_by] for _, values in evaluations]
            counts = chosen.index(min(chosen))
        return self.curve(evaluations)[counts][1]

    def elsewhere(self, evaluations: Evaluations) -> dict[str, float]:
        """The last score on other test sets, by what their numbers add to its name.

        >>> RECALL.elsewhere([(9, {"recall": 0.5, "loss": 1.0, "recall_x2": 0.25})])
        {'x2': 25.0}
        """
        return {
            name.removeprefix(f"{self.name}_"): self.scale * value
            for name, value in evaluations[-1][1].items()
            if name.startswith(f"{self.name}_")
        }


ACCURACY = Score("accuracy", "accuracy %", scale=100.0)
PERPLEXITY = Score("test_perplexity", "test perplexity", higher=False, chosen_by="perplexity")
BITS = Score("test_bpc", "test bits/char", higher=False, chosen_by="bpc", digits=3)
RECALL = Score("recall", "answers %", scale=100.0, goal=95.0)

SCORES = {score.name: score for score in (ACCURACY, PERPLEXITY, BITS, RECALL)}
