"""Restoring masked brackets: a task without images, from which a ViT's blocks can start."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding
from ml_collections import ConfigDict

from mimetic_jax.data.feed.feed import Examples, Sums
from mimetic_jax.data.feed.generated import Generated
from mimetic_jax.data.text.dyck import Dyck
from mimetic_jax.errors import unknown
from mimetic_jax.models import Model
from mimetic_jax.train.cluster.mesh import BATCH
from mimetic_jax.train.score import ACCURACY
from mimetic_jax.train.step import Metrics
from mimetic_jax.train.tasks.task import Evaluation, Task

STEPS_PER_EPOCH = 1000
"""Words are drawn anew forever: so many steps count as an epoch."""


class DyckTask(Task):
    """A model of tokens that restores masked brackets.

    Attributes:
        model: tokens [B, N], 2k where masked → logits [B, N, 2k].
        words: their distribution.
    """

    score, unit = ACCURACY, "tokens"

    def __init__(self, config: ConfigDict, words: Dyck, mesh: Mesh | None = None) -> None:
        fields = config.model.to_dict()
        model = Model.of(fields.pop("name"), fields, vocab=words.vocabulary)
        super().__init__(model, (words.length,), jnp.int32, words.vocabulary, mesh)
        self.words, self.batch = words, config.batch
        self.per_step = config.batch * words.length

    def prepare(self, key: jax.Array, step: jax.Array, examples: Examples) -> Examples:
        return examples

    def loss(
        self, params: Any, model_state: Any, batch: Examples, key: jax.Array
    ) -> tuple[jax.Array, tuple[Metrics, Any]]:
        """Mean cross-entropy of the masked tokens, in nats, and their accuracy."""
        inputs, tokens = batch
        logits, model_state = self.outputs({"params": params, **model_state}, inputs, key)
        losses, right, hidden = self._restored(logits, inputs, tokens)
        count = jnp.maximum(hidden.sum(), 1)
        value = jnp.where(hidden, losses, 0).sum() / count
        accuracy = (right & hidden).sum() / count
        return value, ({"loss": value, "accuracy": accuracy}, model_state)

    def count(self, variables: Any, examples: Examples, weights: jax.Array) -> Sums:
        """Over masked tokens: `correct` and `count` as int32, and the sum of `loss`."""
        inputs, tokens = examples
        logits, _ = self.outputs(variables, inputs)
        losses, right, hidden = self._restored(logits, inputs, tokens)
        hidden &= weights[:, None] > 0
        return {
            "correct": (right & hidden).sum(dtype=jnp.int32),
            "count": hidden.sum(dtype=jnp.int32),
            "loss": jnp.where(hidden, losses, 0).sum(),
        }

    def evaluation(self, sums: dict[str, Any]) -> Evaluation:
        return Evaluation.of_counts(sums, "masked accuracy", "tokens")

    def batch_shapes(self) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
        tokens = jax.ShapeDtypeStruct((self.batch, self.words.length), jnp.int32)
        return tokens, tokens

    def output_shape(self) -> tuple[int, ...]:
        return 1, self.words.length, self.words.vocabulary

    def progress(self, means: dict[str, float]) -> str:
        return f"loss {means['loss']:.4f}  masked accuracy {100 * means['accuracy']:5.1f} %"

    def _restored(
        self, logits: jax.Array, inputs: jax.Array, tokens: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Losses, whether the guess is right, and whether the token is masked: all [B, N]."""
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, tokens)
        return losses, logits.argmax(-1) == tokens, inputs == self.words.vocabulary


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
    feed = Generated(
        words.example,
        config.batch,
        words.num_test,
        config.eval.batch,
        STEPS_PER_EPOCH,
        config.max_dispatch,
        NamedSharding(mesh, BATCH),
    )
    return DyckTask(config, words, mesh), feed
