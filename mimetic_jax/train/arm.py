"""An arm of a comparison, and the data that arms share."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Hashable
from typing import Any

from ml_collections import ConfigDict

from mimetic_jax.data.feed.feed import Feed
from mimetic_jax.train.program import Program
from mimetic_jax.train.tasks import TASKS


class ArmData:
    """The data set that arms train on, described until it is loaded, or given as an object."""

    def __init__(self, config: ConfigDict, given: Any = None) -> None:
        self._task, self._config = TASKS[config.task], config
        self._dataset = None if given is None else self._task.load(config, given)
        self.info = self._task.describe(config, self._dataset)
        self._placed: dict[Hashable, Any] = {}

    def load(self) -> Any:
        """The data set, loaded once; from then on `info` has its own numbers."""
        if self._dataset is None:
            self._dataset = self._task.load(self._config)
            self.info = self._task.describe(self._config, self._dataset)
        return self._dataset

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
    """An arm, with what it shares: `dataset` with all arms on the same data, `program` with all
    that differ in their starts alone."""

    name: str
    config: ConfigDict
    dataset: ArmData
    program: Program

    @property
    def data(self) -> Any:
        """The arm's data where its program wants it."""
        return self.dataset.placed(self.program.feed)
