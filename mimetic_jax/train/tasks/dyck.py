"""Restoring masked brackets: a task without images, from which a ViT's blocks can start."""

from __future__ import annotations

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from mimetic_jax.data.feed.generated import Generated
from mimetic_jax.data.recall.dyck import Dyck
from mimetic_jax.errors import unknown
from mimetic_jax.train.record import ACCURACY
from mimetic_jax.train.tasks.recall import AnswersTask, generated


class DyckTask(AnswersTask):
    """A model of tokens that restores masked brackets.

    Attributes:
        model: tokens [B, N], 2k where masked → logits [B, N, 2k].
        words: their distribution.
    """

    score, name = ACCURACY, "masked accuracy"

    def __init__(self, config: ConfigDict, words: Dyck, mesh: Mesh | None = None) -> None:
        super().__init__(config, words.vocabulary, words.length, mesh)
        self.words = words

    def asked(self, inputs: jax.Array, targets: jax.Array) -> jax.Array:
        """Masked tokens alone."""
        return inputs == self.words.vocabulary


def describe(config: ConfigDict, dataset: Dyck | None = None) -> Dyck:
    """The words of a configuration.

    Raises:
        InputError: for another data set, or sizes that no word has.
    """
    fields = config.data.to_dict()
    if (name := fields.pop("name")) != "dyck":
        raise unknown("data", name, ["dyck"])
    return Dyck(**fields)


def load(config: ConfigDict) -> Dyck:
    """The words of a configuration: nothing is read."""
    return describe(config)


def build(config: ConfigDict, info: Dyck, mesh: Mesh) -> tuple[DyckTask, Generated]:
    """The task, and the feed that draws its words."""
    words = describe(config)  # of this arm, where `info` may be another's
    return DyckTask(config, words, mesh), generated(config, words, mesh)
