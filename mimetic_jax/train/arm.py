"""An arm of a comparison, and the data that arms share."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Hashable
from typing import Any

from ml_collections import ConfigDict

from mimetic_jax.data.feed.feed import Feed
from mimetic_jax.train.config import peak_rate
from mimetic_jax.train.program import Program
from mimetic_jax.train.tasks import TASKS


class ArmData:
    """Where arms' examples come from: a data set, described until it is loaded, or an object."""

    def __init__(self, config: ConfigDict, given: Any = None) -> None:
        self._task, self._config = TASKS[config.task], config
        self._loaded = None if given is None else self._task.load(config, given)
        self.info = self._task.describe(config, self._loaded)
        self._placed: dict[Hashable, Any] = {}
        self._seed = -1  # whose images are placed, if seeds have their own

    @property
    def loaded(self) -> bool:
        """Whether it needn't be read any more."""
        return self._loaded is not None

    def load(self) -> Any:
        """The data set, loaded once; from then on `info` has its own numbers."""
        if self._loaded is None:
            self._loaded = self._task.load(self._config)
            self.info = self._task.describe(self._config, self._loaded)
        return self._loaded

    def of_seed(self, seed: int) -> Any:
        """What a seed trains and tests on."""
        return self._task.of_seed(self._config, self.load(), seed)

    def placed(self, feed: Feed, seed: int) -> Any:
        """What a seed trains and tests on, where a feed wants it; placed at the first call."""
        if self._config.data.get("per_seed") and seed != self._seed:
            self._placed, self._seed = {}, seed  # one seed's at a time
        if feed.placement not in self._placed:
            self._placed[feed.placement] = feed.place(self.of_seed(seed))
        return self._placed[feed.placement]

    @property
    def rounding(self) -> int:
        """How far numbers of examples may be from those described: parts round in each class."""
        data = self._config.data
        parts = sum(data.get(name, whole) != whole for name, whole in _PARTS.items())
        return parts * getattr(self.info, "num_classes", 0)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Differs if examples do."""
        return self.load().fingerprint()


_PARTS = {"subset": 1, "held_out": 0, "per_seed": 0}
"""Fields of data of which images a run has, and what they are for all of them."""


@dataclasses.dataclass(frozen=True)
class Arm:
    """An arm, with what it shares: `source` with all arms on the same data, `program` with all
    that differ in their starts and rates alone."""

    name: str
    config: ConfigDict
    source: ArmData
    program: Program

    @property
    def peak(self) -> float:
        """The highest learning rate, which its program is called with."""
        return peak_rate(self.config)

    def on_device(self, seed: int | None = None) -> Any:
        """A seed's data where the arm's program wants it; the first seed's unless given."""
        return self.source.placed(self.program.feed, self.config.seeds[0] if seed is None else seed)
