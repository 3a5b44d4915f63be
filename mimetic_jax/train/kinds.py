"""The kinds of data there are: what a comparison must know of each to describe, load and train."""

from __future__ import annotations

from typing import Any, Protocol

from jax.sharding import Mesh
from ml_collections import ConfigDict

from mimetic_jax.errors import unknown
from mimetic_jax.train.tasks.images import Images
from mimetic_jax.train.tasks.task import Feed, Task
from mimetic_jax.train.tasks.text import Texts


class Kind(Protocol):
    """A kind of data, by functions of a configuration."""

    def describe(self, config: ConfigDict) -> Any:
        """What is known of the data set without opening it, with `num_train` and `num_test`."""

    def load(self, config: ConfigDict) -> Any:
        """The data set, whose `fingerprint()` differs where examples do."""

    def sized(self, info: Any, dataset: Any) -> Any:
        """The info with the numbers that the data set really has."""

    def steps_per_epoch(self, config: ConfigDict, info: Any) -> int:
        """Steps of an epoch; raises InputError where there is none."""

    def build(self, config: ConfigDict, info: Any, mesh: Mesh) -> tuple[Task, Feed]:
        """The task and the feed that belong together."""

    def summary(self, info: Any) -> str:
        """A line for a person."""


_KINDS: dict[str, Kind] = {"images": Images(), "text": Texts()}


def kind_of(config: ConfigDict) -> Kind:
    """The kind of a configuration's data.

    Raises:
        InputError: for a name that isn't known.
    """
    if config.task not in _KINDS:
        raise unknown("task", config.task, _KINDS)
    return _KINDS[config.task]
