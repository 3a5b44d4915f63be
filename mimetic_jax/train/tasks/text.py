"""Modeling text: the model, its loss, and where its tokens come from."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from ml_collections import ConfigDict

from mimetic_jax import models
from mimetic_jax.data.text import corpus as texts
from mimetic_jax.data.text.windows import (
    batchify,
    eval_windows,
    train_windows,
    window,
    windows_at,
)
from mimetic_jax.models.gpt import Block
from mimetic_jax.train.cluster import mesh as meshes
from mimetic_jax.train.step import Metrics
from mimetic_jax.train.tasks.cross_entropy import token_losses
from mimetic_jax.train.tasks.task import Evaluation, Examples, Score, Unchanging

PERPLEXITY = Score("test_perplexity", "test perplexity", higher=False, chosen_by="perplexity")
BITS = Score("test_bpc", "test bits/char", higher=False, chosen_by="bpc", digits=3)


class TextTask:
    """A causal language model, scored on the last `valid` tokens of each window.

    Attributes:
        model: a Linen module: tokens [B, N] → hidden states [B, N, D], with the leaves
            "embedding" and "decoder_bias" for the logits.
        info: of the text.
    """

    unit = "tokens"

    def __init__(self, config: ConfigDict, info: texts.TextInfo, mesh: Mesh) -> None:
        fields = config.model.to_dict()
        dtype = jnp.dtype(fields.pop("dtype"))
        self.model = models.GPT(vocab=info.vocabulary, dtype=dtype, **fields)
        self.info, self.batch = info, config.batch
        self.length, self.valid = config.data.length, config.data.valid
        self.per_step = config.batch * config.data.valid
        self.score = BITS if info.level == "char" else PERPLEXITY
        self.chunk_bytes = 2**27  # of logits on a device
        self._mesh = mesh if mesh.size > 1 else None

    def init(self, key: jax.Array) -> Any:
        return self.model.init(key, jnp.zeros((1, self.length), jnp.int32))["params"]

    def grid(self) -> None:
        return None

    def prepare(self, key: jax.Array, step: jax.Array, examples: Examples) -> Examples:
        return examples

    def loss(self, params: Any, batch: Examples, key: jax.Array) -> tuple[jax.Array, Metrics]:
        """Mean cross-entropy, in nats, of the targets that count: all are among the last."""
        inputs, targets, weights = batch
        hidden = self._hidden(params, inputs, train=True, rngs={"dropout": key})
        tail = slice(self.length - self.valid, None)
        losses = self._losses(params, hidden[:, tail], targets[:, tail])
        weights = weights[:, tail]
        value = (losses * weights).sum() / jnp.maximum(weights.sum(), 1)
        return value, {"loss": value}

    def count(self, params: Any, examples: Examples, weights: jax.Array) -> Metrics:
        """The summed `loss`, and the `count` of targets as int32."""
        inputs, targets = examples
        hidden = self._hidden(params, inputs, train=False)
        losses = self._losses(params, hidden, targets)
        return {
            "loss": (losses * weights).sum(),
            "count": (weights > 0).sum(dtype=jnp.int32),
        }

    def evaluation(self, sums: dict[str, Any]) -> Evaluation:
        """From sums over the validation text and, named with "test_", the test text."""
        values: dict[str, float] = {}
        for prefix in ("", "test_"):
            loss = float(sums[f"{prefix}loss"]) / int(sums[f"{prefix}count"])
            values |= {f"{prefix}loss": loss, f"{prefix}{self._unit_name}": self._units(loss)}
        shown = f"{self._unit_name} {values[self._unit_name]:.3f} on the validation text, "
        shown += f"{values[f'test_{self._unit_name}']:.3f} on the test text"
        count = int(sums["count"])
        return Evaluation(values, count, f"{shown}  ({count:,} tokens)")

    def batch_shapes(self) -> Any:
        tokens = jax.ShapeDtypeStruct((self.batch, self.length), jnp.int32)
        return tokens, tokens, jax.ShapeDtypeStruct(tokens.shape, jnp.float32)

    def unrolled(self) -> TextTask:
        task = copy.copy(self)
        task.model, task.chunk_bytes = self.model.clone(scan=False), 2**62
        task._mesh = None
        return task

    def zeros(self) -> Metrics:
        return {"loss": jnp.zeros(()), "count": jnp.zeros((), jnp.int32)}

    def metric_names(self) -> tuple[str, ...]:
        return ("loss",)

    def progress(self, means: dict[str, float]) -> str:
        return f"loss {means['loss']:.4f}  {self._unit_name} {self._units(means['loss']):.3f}"

    def _hidden(self, params: Any, tokens: jax.Array, **how: Any) -> Any:
        with meshes.cut_by_example(self._mesh, Block):
            return self.model.apply({"params": params}, tokens, **how)

    def _losses(self, params: Any, hidden: jax.Array, targets: jax.Array) -> jax.Array:
        losses = token_losses(
            hidden.reshape(-1, hidden.shape[-1]).astype(self.model.dtype),
            params["embedding"],
            params["decoder_bias"],
            targets.ravel(),
            chunk_bytes=self.chunk_bytes,
            mesh=self._mesh,
        )
        return losses.reshape(targets.shape)

    @property
    def _unit_name(self) -> str:
        return "bpc" if self.info.level == "char" else "perplexity"

    def _units(self, loss: float) -> float:
        return loss / math.log(2) if self.info.level == "char" else math.exp(min(loss, 700))


@dataclasses.dataclass(frozen=True)
class TextData:
    """A text on the mesh: rows to train on, cut over the devices, and tokens to test on."""

    rows: jax.Array  # [B, M]
    tests: dict[str, tuple[jax.Array, jax.Array, jax.Array]]  # prefix -> tokens, starts, weights


class TokenRows:
    """Windows over a text that is read in rows side by side, in order, epoch after epoch."""

    def __init__(
        self, config: ConfigDict, info: texts.TextInfo, task: TextTask, mesh: Mesh
    ) -> None:
        self.info, self.task = info, task
        self.batch, self.test_batch = config.batch, config.eval.batch
        self.length, self.valid = config.data.length, config.data.valid
        self.max_dispatch = config.max_dispatch
        self.steps_per_epoch = train_windows(info.num_train, self.batch, self.length, self.valid)
        self._rows = NamedSharding(mesh, P(*meshes.BATCH))
        self._everywhere = NamedSharding(mesh, P())
        self._cut = NamedSharding(mesh, P(None, *meshes.BATCH))
        self._count = jax.jit(self._sums, out_shardings=self._everywhere)

    def place(self, corpus: texts.Corpus) -> TextData:
        put = functools.partial(meshes.place, sharding=self._everywhere)
        tests = {}
        for prefix, tokens in (("", corpus.valid), ("test_", corpus.test)):
            starts, weights = eval_windows(len(tokens), self.test_batch, self.length, self.valid)
            place = functools.partial(meshes.place, sharding=self._cut)
            tests[prefix] = put(tokens), place(starts), place(weights)
        rows = meshes.place(batchify(corpus.train, self.batch), self._rows)
        return TextData(rows, tests)

    def begin(self, arrays: jax.Array, key: jax.Array, step: jax.Array) -> None:
        return None

    def examples(self, arrays: jax.Array, shared: None, step: jax.Array) -> Examples:
        return window(arrays, step % self.steps_per_epoch, self.length, self.valid)

    def session(self, data: TextData, seed: int, first_step: int, steps: int) -> Unchanging:
        return Unchanging(data.rows)

    def test(self, params: Any, data: TextData) -> dict[str, Any]:
        sums: dict[str, Any] = {}
        for prefix, arrays in data.tests.items():
            counted = jax.device_get(self._count(params, *arrays))
            for name, steps in counted.items():  # a sum of hundreds of thousands of losses
                exact = np.float64 if steps.dtype == np.float32 else np.int64
                sums[prefix + name] = steps.sum(dtype=exact)
        return sums

    def describe_step(self, data: TextData, seed: int, step: int) -> str:
        first = step % self.steps_per_epoch * self.valid
        return f" (tokens {first} to {first + self.length} of each of {self.batch} rows)"

    def sample(self, data: TextData) -> jax.Array:
        return data.tests[""][0][None, : self.length]

    def data_bytes(self) -> int:
        shards = self._rows.num_devices
        return 4 * (self.info.num_train // shards + self.info.num_valid + self.info.num_test)

    def _sums(
        self, params: Any, tokens: jax.Array, starts: jax.Array, weights: jax.Array
    ) -> Metrics:
        """Sums of each batch of windows, [S]."""

        def one(batch: tuple[jax.Array, jax.Array]) -> Metrics:
            return self.task.count(params, windows_at(tokens, batch[0], self.length), batch[1])

        return jax.lax.map(one, (starts, weights))


class Texts:
    """Texts, as a comparison knows them."""

    def describe(self, config: ConfigDict) -> texts.TextInfo:
        return texts.describe(config.data.name)

    def load(self, config: ConfigDict) -> texts.Corpus:
        return texts.load_text(config.data.name, config.data.dir)

    def sized(self, info: texts.TextInfo, dataset: texts.Corpus) -> texts.TextInfo:
        return dataclasses.replace(
            info,
            vocabulary=len(dataset.vocabulary),
            num_train=len(dataset.train),
            num_valid=len(dataset.valid),
            num_test=len(dataset.test),
        )

    def steps_per_epoch(self, config: ConfigDict, info: texts.TextInfo) -> int:
        return train_windows(info.num_train, config.batch, config.data.length, config.data.valid)

    def build(
        self, config: ConfigDict, info: texts.TextInfo, mesh: Mesh
    ) -> tuple[TextTask, TokenRows]:
        task = TextTask(config, info, mesh)
        return task, TokenRows(config, info, task, mesh)

    def summary(self, info: texts.TextInfo) -> str:
        return (
            f"{info.name}, {info.num_train:,} train, {info.num_valid:,} validation and "
            f"{info.num_test:,} test tokens, {info.vocabulary:,} different ones"
        )
