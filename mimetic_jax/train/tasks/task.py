"""What a program trains and where its examples come from, as the two interfaces it knows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar, Protocol, TypeAlias

import jax

from mimetic_jax.train.step import Metrics

Examples: TypeAlias = tuple[jax.Array, ...]


@dataclasses.dataclass(frozen=True)
class Score:
    """The number that a comparison is about.

    Attributes:
        name: of the record in metrics.jsonl, after "eval_".
        label: of the table's column, with its unit.
        scale: from the record to the column: 100 for percent.
        higher: whether more is better.
        chosen_by: the record whose lowest value says which evaluation counts, such as the loss on
            a validation text; the last one counts where this is empty.
        digits: of a table, after the point.
    """

    name: str
    label: str
    scale: float = 1.0
    higher: bool = True
    chosen_by: str = ""
    digits: int = 2

    def goodness(self, values: dict[str, float]) -> float:
        """How good an evaluation is: more is better.

        >>> Score("error", "errors %", higher=False).goodness({"error": 2.5})
        -2.5
        """
        if self.chosen_by:
            return -values[self.chosen_by]
        return values[self.name] if self.higher else -values[self.name]


ACCURACY = Score("accuracy", "accuracy %", scale=100.0)


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What a test of parameters gave: means over `count` examples, each counted once."""

    values: dict[str, float]
    count: int
    text: str

    def __str__(self) -> str:
        return self.text


class Task(Protocol):
    """A model and its loss."""

    score: Score
    unit: str  # of what a rate counts: images, tokens
    per_step: int  # how many of these a step trains on

    def init(self, key: jax.Array) -> Any:
        """Parameters, by the model's own initialization."""

    def grid(self) -> tuple[int, int] | None:
        """(h, w) of the patches, where there are any."""

    def prepare(self, key: jax.Array, step: jax.Array, examples: Examples) -> Any:
        """The batch that `loss` takes: augmented by a key a step and an example."""

    def loss(self, params: Any, batch: Any, key: jax.Array) -> tuple[jax.Array, Metrics]:
        """Mean loss of a batch, with means by name; the key is for dropout."""

    def count(self, params: Any, examples: Examples, weights: jax.Array) -> Metrics:
        """Sums over examples to test on, each counted by its weight, and the `count` of them."""

    def evaluation(self, sums: dict[str, Any]) -> Evaluation:
        """The means that sums of `count` give."""

    def batch_shapes(self) -> Any:
        """Shapes of a batch as `prepare` returns it."""

    def unrolled(self) -> Task:
        """The same arithmetic without loops, for counting it."""

    def zeros(self) -> Metrics:
        """The sums of no examples."""

    def metric_names(self) -> tuple[str, ...]:
        """The names in the loss's metrics."""

    def progress(self, means: dict[str, float]) -> str:
        """The loss's metrics for a person."""


class ImageTask(Task, Protocol):
    """A task on images."""

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels that the model sees."""


class Feed(Protocol):
    """Where a step's examples come from."""

    steps_per_epoch: int
    max_dispatch: int

    def begin(self, arrays: Any, key: jax.Array, step: jax.Array) -> Any:
        """What a dispatch's steps share, such as the order of an epoch; traced."""

    def examples(self, arrays: Any, shared: Any, step: jax.Array) -> Examples:
        """The examples of a step; traced."""

    def place(self, dataset: Any) -> Any:
        """The data set where training and testing want it."""

    def sample(self, data: Any) -> jax.Array:
        """One example to test on, as it is stored."""

    def session(self, data: Any, seed: int, first_step: int, steps: int) -> Session:
        """The arrays that dispatches from a step on are called with."""

    def test(self, params: Any, data: Any) -> dict[str, Any]:
        """Sums over the test set, on the host."""

    def describe_step(self, data: Any, seed: int, step: int) -> str:
        """Which examples a step saw, for an error message."""

    def data_bytes(self) -> int:
        """Bytes of data on every device."""


class Session(Protocol):
    """The data of one run's training, dispatch by dispatch."""

    @property
    def waits(self) -> bool:
        """Whether `arrays` may have to wait for data."""

    def arrays(self) -> Any:
        """What the next dispatch is called with; may wait for it."""

    def notes(self) -> Iterator[str]:
        """What a person should know since the last call: damaged images passed over."""

    def close(self) -> None:
        """Let go of threads."""


@dataclasses.dataclass(frozen=True)
class Unchanging:
    """A session whose every dispatch is called with the same arrays."""

    held: Any
    waits: ClassVar[bool] = False

    def arrays(self) -> Any:
        return self.held

    def notes(self) -> Iterator[str]:
        return iter(())

    def close(self) -> None:
        return None
