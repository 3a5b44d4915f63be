"""Modeling text: the model, its loss, and its windows."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any, Self

import jax
import jax.numpy as jnp
import optax
import scipy.sparse
from jax.sharding import Mesh, NamedSharding
from ml_collections import ConfigDict

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.kept import kept_with_first
from mimetic_jax.data.feed.feed import Examples, Sums
from mimetic_jax.data.feed.rows import TokenRows
from mimetic_jax.data.text import corpus as texts
from mimetic_jax.data.text.counted import cached_counts
from mimetic_jax.schemes import Scheme
from mimetic_jax.schemes.base import used_by
from mimetic_jax.schemes.first_layer import counted_for
from mimetic_jax.train.cluster.mesh import BATCH
from mimetic_jax.train.record import BITS, BYTES, PERPLEXITY
from mimetic_jax.train.step import Metrics
from mimetic_jax.train.tasks.cross_entropy import token_losses
from mimetic_jax.train.tasks.task import Evaluation, Task
from mimetic_jax.weights.counts import following


class TextTask(Task):
    """A causal language model, scored on the last `valid` tokens of each window.

    The model is tokens [B, N] → logits [B, N, V]; or, with the trait `output`, hidden states
    [B, N, D].
    """

    unit = "tokens"

    def __init__(self, config: ConfigDict, info: texts.TextInfo, mesh: Mesh | None = None) -> None:
        super().__init__(config, (config.data.length,), jnp.int32, mesh, vocab=info.vocabulary)
        self.info = info
        self.length, self.valid = config.data.length, config.data.valid
        self.per_step = config.batch * config.data.valid
        self.score = {"char": BITS, "bpe": BYTES}.get(info.level, PERPLEXITY)
        self.chunk_bytes = 2**27  # of logits on a device

    @classmethod
    def describe(cls, config: ConfigDict, dataset: texts.Corpus | None = None) -> texts.TextInfo:
        """Describe the text of a configuration: as published, or as loaded; a user's as it is."""
        data = config.data
        info = texts.describe(data.name, data.dir, dataset, data.vocabulary)
        if info.vocabulary == 1:
            raise InputError(f"{info.name} has one token alone, which leaves nothing to learn")
        if dataset is not None:
            return info
        return dataclasses.replace(info, num_train=round(data.subset * info.num_train))

    @classmethod
    def load(cls, config: ConfigDict, given: Any = None) -> texts.Corpus:
        """Return the text of a configuration."""
        data = config.data
        text = texts.load_text(data.name, data.dir, data.vocabulary)
        return text.part(data.subset)

    @classmethod
    def build(cls, config: ConfigDict, info: texts.TextInfo, mesh: Mesh) -> tuple[Self, TokenRows]:
        """Return the task, and the feed of the text's windows."""
        feed = TokenRows(
            info,
            config.batch,
            config.eval.batch,
            config.data.length,
            config.data.valid,
            config.data.shuffled,
            config.max_dispatch,
            NamedSharding(mesh, BATCH),
        )
        return cls(config, info, mesh), feed

    def data_statistics(
        self, schemes: Iterable[Scheme], load: Callable[[], texts.Corpus] | None = None
    ) -> dict[str, Any]:
        """Return the counts of tokens near each other in the training text, and of next tokens."""
        # A plan has no text, and counts without any are refused.
        none = scipy.sparse.csr_array(([1.0], ([0], [0])), 2 * (self.info.vocabulary,))
        found: dict[str, Any] = {}
        if (how := counted_for(schemes)) is not None:
            found["counts"] = none if load is None else _counts(load(), *how)
        if "following" in used_by(schemes):
            found["following"] = none if load is None else _following(load())
        return found

    def loss(
        self, params: Any, model_state: Any, batch: Examples, key: jax.Array
    ) -> tuple[jax.Array, tuple[Metrics, Any]]:
        """Mean cross-entropy, in nats, of the targets that count: all are among the last."""
        inputs, targets, weights = batch
        output, model_state = self.outputs({"params": params, **model_state}, inputs, key)
        tail = slice(self.length - self.valid, None)
        losses = self._losses(params, output[:, tail], targets[:, tail])
        weights = weights[:, tail]
        value = (losses * weights).sum() / jnp.maximum(weights.sum(), 1)
        return value, ({"loss": value}, model_state)

    def sums(self, variables: Any, examples: Examples, weights: jax.Array) -> Sums:
        """Return the summed `loss`, and the `count` of targets as int32."""
        inputs, targets = examples
        output, _ = self.outputs(variables, inputs)
        losses = self._losses(variables["params"], output, targets)
        return {
            "loss": (losses * weights).sum(),
            "count": (weights > 0).sum(dtype=jnp.int32),
        }

    def evaluation(self, sums: dict[str, Any]) -> Evaluation:
        """From sums over the validation text and, named with "test_", the test text."""
        values: dict[str, float] = {}
        for prefix, of_bytes in (("", self.info.valid_bytes), ("test_", self.info.test_bytes)):
            total, tokens = float(sums[f"{prefix}loss"]), int(sums[f"{prefix}count"])
            values[f"{prefix}loss"] = loss = total / tokens
            values[f"{prefix}{self._unit_name}"] = self._units(loss)
            if of_bytes:  # those of the counted tokens
                values[f"{prefix}bpb"] = total / math.log(2) / of_bytes
        names = ["bpb", self._unit_name] if self.info.valid_bytes else [self._unit_name]
        text = ", ".join(f"{name} {values[name]:.3f}" for name in names)
        tested = ", ".join(f"{values[f'test_{name}']:.3f}" for name in names)
        count = int(sums["test_count"])
        text += f" on the validation text, {tested} on the test text  ({count:,} tokens)"
        return Evaluation(values, count, text)

    def batch_shapes(self) -> Any:
        tokens = jax.ShapeDtypeStruct((self.batch, self.length), jnp.int32)
        return tokens, tokens, jax.ShapeDtypeStruct(tokens.shape, jnp.float32)

    def unrolled(self) -> Self:
        task = super().unrolled()
        task.chunk_bytes = 2**62
        return task

    def progress(self, means: dict[str, float]) -> str:
        return f"loss {means['loss']:.4f}  {self._unit_name} {self._units(means['loss']):.3f}"

    def _losses(self, params: Any, output: jax.Array, targets: jax.Array) -> jax.Array:
        if self.model.traits.output is None:
            return optax.softmax_cross_entropy_with_integer_labels(
                output.astype(jnp.float32), targets
            )
        embedding, bias = self.model.traits.output(params)
        dtype = getattr(self.model.module, "dtype", None) or output.dtype
        losses = token_losses(
            output.reshape(-1, output.shape[-1]).astype(dtype),
            embedding,
            bias,
            targets.ravel(),
            chunk_bytes=self.chunk_bytes,
            mesh=self._mesh if self._mesh is not None and self._mesh.size > 1 else None,
        )
        return losses.reshape(targets.shape)

    @property
    def _unit_name(self) -> str:
        return {"char": "bpc", "bpe": "bpt"}.get(self.info.level, "perplexity")

    def _units(self, loss: float) -> float:
        if self._unit_name == "perplexity":
            return math.exp(min(loss, 700))
        return loss / math.log(2)


@kept_with_first  # all seeds and arms of a comparison share them
def _counts(corpus: texts.Corpus, window: int, contexts: int) -> scipy.sparse.csr_array:
    return cached_counts(corpus.train, len(corpus.vocabulary), window, contexts)


@kept_with_first
def _following(corpus: texts.Corpus) -> scipy.sparse.csr_array:
    return following(corpus.train, len(corpus.vocabulary))
