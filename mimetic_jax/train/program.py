"""What a run executes on the devices, compiled once for all arms and seeds that share it."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from ml_collections import ConfigDict

from mimetic_jax import data as datasets
from mimetic_jax import models
from mimetic_jax.rewrite import rewrite
from mimetic_jax.schemes import Scheme
from mimetic_jax.train import mesh as meshes
from mimetic_jax.train.optimizer import adamw
from mimetic_jax.train.schedule import make_schedule
from mimetic_jax.train.state import TrainState, stream
from mimetic_jax.train.step import Metrics, count_batch, make_train_step

Arrays: TypeAlias = tuple[jax.Array, jax.Array]  # images uint8 [N, h, w, C], labels int32 [N]


@dataclasses.dataclass(frozen=True)
class DeviceData:
    """A data set on the mesh, every device holding all of it."""

    train: Arrays
    test: Arrays
    eval_indices: jax.Array  # [S, B]
    eval_weights: jax.Array  # [S, B], 0 for padding


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What a test of parameters gave."""

    accuracy: float
    loss: float
    count: int

    def __str__(self) -> str:
        return (
            f"test accuracy {100 * self.accuracy:5.2f} %  loss {self.loss:.4f}  "
            f"({self.count:,} examples)"
        )


class Program:
    """Model, optimiser, shardings and the three compiled functions of a configuration.

    Nothing here depends on the scheme or the seed: arms that differ in nothing else share one
    program and its compilations.

    Attributes:
        model: the Linen model.
        steps: total optimiser steps.
        steps_per_epoch: full batches in an epoch.
        schedule: learning rate of a step.
        shapes: the state's shapes and dtypes, with shardings: what a checkpoint restores into.
    """

    def __init__(self, config: ConfigDict, info: datasets.DatasetInfo, mesh: Mesh) -> None:
        self.info, self.mesh = info, mesh
        self.batch, self.eval_batch = config.batch, config.eval.batch
        self.max_dispatch = config.max_dispatch
        fields = config.model.to_dict()
        self.model = models.ViT(
            num_classes=info.num_classes, **{**fields, "dtype": jnp.dtype(fields["dtype"])}
        )
        self.steps_per_epoch = info.num_train // config.batch
        self.steps = config.steps or round(config.epochs * self.steps_per_epoch)
        rates = config.optimizer
        self.schedule = make_schedule(
            rates.schedule,
            rates.learning_rate,
            self.steps,
            warmup=rates.warmup,
            final=rates.learning_rate * rates.final_fraction,
        )
        self.optimizer = adamw(
            self.schedule,
            weight_decay=rates.weight_decay,
            betas=rates.betas,
            eps=rates.eps,
            clip=rates.clip,
            decay_rules=rates.decay_rules,
            rate_rules=rates.rate_rules,
        )
        self.augmentation = datasets.Augmentation(**config.data.augment)
        self._step = make_train_step(
            self.model,
            self.optimizer,
            label_smoothing=config.label_smoothing,
            accumulate=config.accumulate,
        )
        shapes = jax.eval_shape(self._init, jax.random.key(0))
        placed = meshes.shardings(shapes, mesh, config.mesh.rules)
        self.shapes = jax.tree.map(
            lambda shape, where: jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=where),
            shapes,
            placed,
        )
        everywhere, batched = NamedSharding(mesh, P()), NamedSharding(mesh, meshes.BATCH)
        self._everywhere, self._batched = everywhere, batched
        self._init_params = jax.jit(lambda key: self._init(key).params, out_shardings=placed.params)
        self._init_optimizer = jax.jit(self.optimizer.init, out_shardings=placed.opt_state)
        self.run_steps = jax.jit(
            self._run_steps, donate_argnums=0, out_shardings=(placed, everywhere)
        )
        self._count = jax.jit(self._evaluate, out_shardings=everywhere)

    def initial_state(self, seed: int, scheme: Scheme | tuple[Scheme, ...]) -> TrainState:
        """The state before the first step: the model's own draw, rewritten by the scheme."""
        params = self._init_params(stream(seed, "init"))
        height, width, _ = self.info.image_shape
        grid = (height // self.model.patch, width // self.model.patch)
        params = rewrite(stream(seed, "scheme"), params, scheme, grid=grid)
        step = meshes.place(np.zeros((), np.int32), self._everywhere)
        return TrainState(step=step, params=params, opt_state=self._init_optimizer(params))

    def place(self, dataset: datasets.ImageDataset) -> DeviceData:
        """The data set's arrays and the batches of its evaluation on the mesh."""
        put = functools.partial(meshes.place, sharding=self._everywhere)
        batches = datasets.padded_batches(len(dataset.test_labels), self.eval_batch)
        cut = NamedSharding(self.mesh, P(None, *meshes.BATCH))
        indices, weights = (meshes.place(array, cut) for array in batches)
        return DeviceData(
            train=(put(dataset.train_images), put(dataset.train_labels)),
            test=(put(dataset.test_images), put(dataset.test_labels)),
            eval_indices=indices,
            eval_weights=weights,
        )

    def test(self, params: Any, data: DeviceData) -> Evaluation:
        """Accuracy and mean loss over the test set, every example counted once."""
        sums = self._count(params, data.test, data.eval_indices, data.eval_weights)
        sums = jax.device_get(sums)
        count = int(sums["count"])
        return Evaluation(int(sums["correct"]) / count, float(sums["loss"]) / count, count)

    def describe(self) -> dict[str, Any]:
        """Parameters, FLOPs of a step and bytes per device, without compiling or computing."""
        step = jax.ShapeDtypeStruct((), jnp.int32)
        images = jax.ShapeDtypeStruct((self.batch, *self.info.image_shape), jnp.float32)
        labels = jax.ShapeDtypeStruct((self.batch,), jnp.int32)
        state = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), self.shapes)
        state = state.replace(step=step)
        key = jax.eval_shape(lambda: jax.random.key(0))
        # Counted by the CPU backend: those of GPUs and TPUs tell nothing before compiling.
        with jax.default_device(_cpu()):
            cost = jax.jit(self._step).lower(state, (images, labels), key).cost_analysis() or {}

        def bytes_per_device(tree: Any) -> int:
            return sum(
                int(np.prod(leaf.sharding.shard_shape(leaf.shape))) * leaf.dtype.itemsize
                for leaf in jax.tree.leaves(tree)
            )

        pixels = int(np.prod(self.info.image_shape))
        return {
            "parameters": sum(leaf.size for leaf in jax.tree.leaves(self.shapes.params)),
            "flops_per_step": float(cost.get("flops", float("nan"))),
            "parameter_bytes": bytes_per_device(self.shapes.params),
            "optimizer_bytes": bytes_per_device(self.shapes.opt_state),
            "data_bytes": (self.info.num_train + self.info.num_test) * (pixels + 4),
        }

    def _init(self, key: jax.Array) -> TrainState:
        images = jnp.zeros((1, *self.info.image_shape))
        params = self.model.init(key, images)["params"]
        return TrainState(
            step=jnp.zeros((), jnp.int32), params=params, opt_state=self.optimizer.init(params)
        )

    def _run_steps(
        self,
        state: TrainState,
        data: Arrays,
        data_key: jax.Array,
        dropout_key: jax.Array,
        count: jax.Array,
    ) -> tuple[TrainState, Metrics]:
        """`count` ≤ max_dispatch steps in one dispatch; metrics [max_dispatch], NaN beyond count.

        The count is traced: chunks of any length share one compilation.
        """
        images, labels = data
        first_epoch = state.step // self.steps_per_epoch
        permutations = datasets.epoch_permutations(
            jax.random.fold_in(data_key, 0),
            first_epoch,
            self.max_dispatch // self.steps_per_epoch + 2,
            len(labels),
        )
        augment_key = jax.random.fold_in(data_key, 1)

        def one(index: jax.Array, carry: tuple[TrainState, Metrics]) -> tuple[TrainState, Metrics]:
            state, history = carry
            chosen = datasets.batch_indices(permutations, first_epoch, state.step, self.batch)
            chosen = jax.lax.with_sharding_constraint(chosen, self._batched)
            keys = datasets.example_keys(augment_key, state.step, self.batch)
            keys = jax.lax.with_sharding_constraint(keys, self._batched)
            pixels = datasets.augment(
                self.augmentation, keys, images[chosen], self.info.mean, self.info.std
            )
            dropout = jax.random.fold_in(dropout_key, state.step)
            state, metrics = self._step(state, (pixels, labels[chosen]), dropout)
            return state, jax.tree.map(lambda h, m: h.at[index].set(m), history, metrics)

        names = ("loss", "accuracy", "grad_norm")
        history = {name: jnp.full(self.max_dispatch, jnp.nan) for name in names}
        return jax.lax.fori_loop(0, count, one, (state, history))

    def _evaluate(
        self, params: Any, data: Arrays, indices: jax.Array, weights: jax.Array
    ) -> Metrics:
        images, labels = data

        def add(total: Metrics, batch: tuple[jax.Array, jax.Array]) -> tuple[Metrics, None]:
            chosen, weight = batch
            pixels = datasets.normalize(images[chosen], self.info.mean, self.info.std)
            sums = count_batch(self.model, params, (pixels, labels[chosen]), weight)
            return jax.tree.map(jnp.add, total, sums), None

        zero = {
            "correct": jnp.zeros((), jnp.int32),
            "count": jnp.zeros((), jnp.int32),
            "loss": jnp.zeros(()),
        }
        return jax.lax.scan(add, zero, (indices, weights))[0]


def _cpu() -> jax.Device | None:
    try:
        return jax.devices("cpu")[0]
    except RuntimeError:  # JAX_PLATFORMS leaves it out
        return None
