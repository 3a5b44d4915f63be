"""Answers that are in what comes before: copying, associative recall."""

from __future__ import annotations

from typing import Any, Self

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding
from ml_collections import ConfigDict

from mimetic_jax.base.errors import unknown
from mimetic_jax.data.feed.feed import Examples, Sums
from mimetic_jax.data.feed.generated import Generated
from mimetic_jax.data.recall.sequences import SETS
from mimetic_jax.train.cluster.mesh import BATCH
from mimetic_jax.train.record import RECALL, Score
from mimetic_jax.train.step import Metrics
from mimetic_jax.train.tasks.task import Evaluation, Task, sums_where

STEPS_PER_EPOCH = 1000
"""Sequences are drawn anew forever: so many steps count as an epoch."""


class RecallTask(Task):
    """The sets of `data.recall`, tested at several lengths.

    The model is tokens [B, N] → logits [B, N, V]; or, with the trait `output`, hidden states
    [B, N, D].
    """

    unit = "tokens"
    score: Score = RECALL

    def __init__(self, config: ConfigDict, sequences: Any, mesh: Mesh | None = None) -> None:
        self.length = sequences.inputs()
        super().__init__(config, (self.length,), jnp.int32, mesh, vocab=sequences.tokens)
        self.sequences = sequences
        self.per_step = config.batch * self.length

    @classmethod
    def describe(cls, config: ConfigDict, dataset: Any = None) -> Any:
        """The sequences of a configuration, by the fields that its set has."""
        fields = config.data.to_dict()
        if (name := fields.pop("name")) not in SETS:
            raise unknown("data", name, SETS)
        known = SETS[name].__dataclass_fields__
        return SETS[name](**{field: value for field, value in fields.items() if field in known})

    @classmethod
    def load(cls, config: ConfigDict, given: Any = None) -> Any:
        """The sequences of a configuration: nothing is read."""
        return cls.describe(config)

    @classmethod
    def build(cls, config: ConfigDict, info: Any, mesh: Mesh) -> tuple[Self, Generated]:
        """The task, and the feed that draws its sequences."""
        sequences = cls.describe(config)  # of this arm, where `info` may be another's
        draws = {
            _named(times)[0]: lambda key, times=times: sequences.example(key, times)
            for times in sequences.times
        }
        feed = Generated(
            draws,
            config.batch,
            sequences.num_test,
            config.eval.batch,
            STEPS_PER_EPOCH,
            config.max_dispatch,
            NamedSharding(mesh, BATCH),
        )
        return cls(config, sequences, mesh), feed

    def init(self, key: jax.Array) -> dict[str, Any]:
        """As `Task.init`, after a check that the model takes the longest test sequences."""
        longest = jnp.zeros((1, self.sequences.inputs(self.sequences.times[-1])), jnp.int32)
        jax.eval_shape(self.model.init, key, longest)
        return super().init(key)

    def loss(
        self, params: Any, model_state: Any, batch: Examples, key: jax.Array
    ) -> tuple[jax.Array, tuple[Metrics, Any]]:
        """Mean cross-entropy of the answers, in nats, and their accuracy."""
        output, model_state = self.outputs({"params": params, **model_state}, batch[0], key)
        losses, right, asked = self._answers(params, output, batch)
        count = jnp.maximum(asked.sum(), 1)
        value = jnp.where(asked, losses, 0).sum() / count
        accuracy = (right & asked).sum() / count
        return value, ({"loss": value, "accuracy": accuracy}, model_state)

    def sums(self, variables: Any, examples: Examples, weights: jax.Array) -> Sums:
        """Over answers, see `sums_where`."""
        output, _ = self.outputs(variables, examples[0])
        losses, right, asked = self._answers(variables["params"], output, examples)
        return sums_where(asked & (weights[:, None] > 0), right, losses)

    def evaluation(self, sums: dict[str, Any]) -> Evaluation:
        """At the trained length `recall` and `loss`, and with "_x2" … those at multiples of it."""
        values: dict[str, float] = {}
        for times in self.sequences.times:
            prefix, suffix = _named(times)
            of = {name: sums[prefix + name] for name in ("correct", "count", "loss")}
            found = Evaluation.of_counts(of, "answers", self.unit).values
            values |= {f"recall{suffix}": found["accuracy"], f"loss{suffix}": found["loss"]}
        shown = "  ".join(
            f"{'answers' if times == 1 else f'x{times}'} {100 * values[name]:5.1f} %"
            for times in self.sequences.times
            for name in [f"recall{_named(times)[1]}"]
        )
        count = int(sums["count"])
        return Evaluation(values, count, f"{shown}  loss {values['loss']:.4f}  ({count:,} answers)")

    def batch_shapes(self) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
        tokens = jax.ShapeDtypeStruct((self.batch, self.length), jnp.int32)
        return tokens, tokens

    def progress(self, means: dict[str, float]) -> str:
        return f"loss {means['loss']:.4f}  answers {100 * means['accuracy']:5.1f} %"

    def _answers(
        self, params: Any, output: jax.Array, examples: Examples
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Losses, whether the guess is right, and whether it counts: all [B, N]."""
        _, targets = examples
        logits = output
        if self.model.traits.output is not None:
            embedding, bias = self.model.traits.output(params)
            logits = output @ embedding.T + bias
        # A target that isn't asked for is -1, which is none of the tokens.
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets.clip(min=0))
        return losses, logits.argmax(-1) == targets, targets >= 0


def _named(times: int) -> tuple[str, str]:
    """The prefix of the sums at a multiple of the length, and the suffix of its numbers."""
    return ("", "") if times == 1 else (f"x{times}_", f"_x{times}")
