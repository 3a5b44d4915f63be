"""A model with its loss: what every task has in common."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Self

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from ml_collections import ConfigDict

from mimetic_jax.base.errors import InputError, error_text
from mimetic_jax.data.feed.feed import Examples, Feed, Sums
from mimetic_jax.models import Model
from mimetic_jax.schemes import PositionalHeads, Scheme
from mimetic_jax.schemes.base import inside
from mimetic_jax.train.cluster.mesh import sharded_activations
from mimetic_jax.train.record import Score
from mimetic_jax.train.step import Metrics


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Means over `count` test examples, of a text its test tokens, each counted once."""

    values: dict[str, float]
    count: int
    text: str


class Task:
    """A model with its loss. Subclasses give the data, the loss, the test and their words.

    Attributes:
        score: the number that is compared.
        unit: what a rate counts: images, tokens.
        per_step: how many of these a step trains on.

    Args:
        input_shape, input_dtype: of one example.
        mesh: the mesh of devices; None for one.
        outputs: the model's field for the number of its outputs, with that number.
    """

    score: Score
    unit: str
    per_step: int

    def __init__(
        self,
        config: ConfigDict,
        input_shape: tuple[int, ...],
        input_dtype: Any,
        mesh: Mesh | None,
        **outputs: int,
    ) -> None:
        fields = config.model.to_dict()
        self.model = Model.of(fields.pop("name"), fields, **outputs)
        self.input_shape, self._input_dtype, self._mesh = input_shape, input_dtype, mesh
        (self._outputs,) = outputs.values()
        self.batch = config.batch

    @classmethod
    def describe(cls, config: ConfigDict, dataset: Any = None) -> Any:
        """Describe the data set of a configuration, as published or as loaded."""
        raise NotImplementedError

    @classmethod
    def load(cls, config: ConfigDict, given: Any = None) -> Any:
        """Return the data set, or what is given instead; its `fingerprint()` differs if examples
        do."""
        raise NotImplementedError

    @classmethod
    def of_seed(cls, config: ConfigDict, dataset: Any, seed: int) -> Any:
        """Return what a seed trains and tests on, of the data set that was loaded."""
        return dataset

    @classmethod
    def build(cls, config: ConfigDict, info: Any, mesh: Mesh) -> tuple[Self, Feed]:
        """Return the task and the feed that belong together."""
        raise NotImplementedError

    def counts(self) -> dict[str, int]:
        """Return numbers of what it trains on, which a run's `Record` has."""
        return {}

    def prepare(self, key: jax.Array, step: jax.Array, examples: Examples) -> Any:
        """Make the batch that `loss` takes; if it is augmented, by a key per step and example."""
        return examples

    def loss(
        self, params: Any, model_state: Any, batch: Any, key: jax.Array
    ) -> tuple[jax.Array, tuple[Metrics, Any]]:
        """Mean loss of a batch, with (means by name, new model state); the key is for dropout."""
        raise NotImplementedError

    def sums(self, variables: Any, examples: Examples, weights: jax.Array) -> Sums:
        """Return sums over test examples, each counted by its weight, and the `count` of them."""
        raise NotImplementedError

    def evaluation(self, sums: dict[str, Any]) -> Evaluation:
        """Return the means that `sums` over the test set give."""
        raise NotImplementedError

    def batch_shapes(self) -> Any:
        """Return shapes of a batch as `prepare` returns it."""
        raise NotImplementedError

    def progress(self, means: dict[str, float]) -> str:
        """Return the loss's metrics in words."""
        raise NotImplementedError

    def init(self, key: jax.Array) -> dict[str, Any]:
        """Return the model's variables, by its own initialization; its output must fit the loss."""
        name, shape = self.model.name, (1, *self.input_shape)
        try:
            variables, output = self.model.init(key, jnp.zeros(shape, self._input_dtype))
        except InputError:
            raise
        except Exception as error:  # a user's module may raise anything
            raise InputError(
                f"model {name} fails on input of shape {shape}: {error_text(error)}"
            ) from error
        if self.model.traits.output is None:
            tokens = self.input_shape if len(self.input_shape) == 1 else ()  # each has logits
            returned, expected = jnp.shape(output), (1, *tokens, self._outputs)
            if returned != expected:
                raise InputError(
                    f"model {name} returns shape {returned} for an input of shape {shape}, "
                    f"expected {expected}"
                )
        return variables

    def check_positions(self, schemes: Iterable[Scheme]) -> None:
        """Refuse schemes by which positions turn otherwise than in the model, or whose heads look
        further than its context. Models that don't say how their positions turn take any."""
        if (rotary_of := self.model.traits.rotary) is None:
            return
        rotary = rotary_of(self.model.module)
        for scheme in (x for x in inside(schemes) if isinstance(x, PositionalHeads)):
            if rotary is None:
                raise InputError(
                    f"PositionalHeads is for rotary positions, which model "
                    f"{self.model.name} doesn't have: set those, or use Mimetic, which makes "
                    "attention local if positions are added"
                )
            if scheme.rotary != rotary:
                raise InputError(f"the model turns by {rotary}, but the scheme by {scheme.rotary}")
            reach = self.grid() or self.input_shape
            for offset in scheme.every_offset():
                for distance, size in zip(offset, reach, strict=True):
                    if abs(distance) >= size:
                        raise InputError(
                            f"offset {distance:g} is beyond the {size} tokens of the context"
                        )

    def grid(self) -> tuple[int, int] | None:
        """Return (h, w) of the patches, if the model has a grid."""
        return self.model.grid(self.input_shape)

    def data_statistics(
        self, schemes: Iterable[Scheme], load: Callable[[], Any] | None = None
    ) -> dict[str, Any]:
        """Return what schemes take from the training data, as arguments of `rewrite`: `load` gives
        the data, if it is needed; without it a stand-in, for `plan`."""
        return {}

    def unrolled(self) -> Self:
        """Return the same arithmetic on one device without a loop over layers, for counting it."""
        task = copy.copy(self)
        task.model, task._mesh = self.model.with_fields(scan=False), None
        return task

    def outputs(
        self, variables: Any, inputs: jax.Array, key: jax.Array | None = None
    ) -> tuple[Any, Any]:
        """Return the model's outputs and new state; with a key for dropout in training."""
        if self._mesh is None:
            return self.model(variables, inputs, key)
        with sharded_activations(self._mesh):
            return self.model(variables, inputs, key)
