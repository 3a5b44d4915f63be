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

    def placed(self, feed: Feed) -> Any:
        """The data set where a feed wants it; placed at the first call."""
        if feed.placement not in self._placed:
            self._placed[feed.placement] = feed.place(self.load())
        return self._placed[feed.placement]

    @property
    def rounding(self) -> int:
        """How far numbers of examples may be from those described: parts round in each class."""
        data = self._config.data
        parts = (data.get("subset", 1) < 1) + (data.get("held_out", 0) > 0)
        return parts * getattr(self.info, "num_classes", 0)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Differs if examples do."""
        return self.load().fingerprint()


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

    @property
    def on_device(self) -> Any:
        """The arm's data where its program wants it."""
        return self.source.placed(self.program.feed)
