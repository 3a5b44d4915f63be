"""Classifying images: the model, its augmentation, its loss."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from mimetic_jax import data as datasets
from mimetic_jax import models
from mimetic_jax.errors import InputError
from mimetic_jax.models.vit import Block
from mimetic_jax.train.cluster import mesh as meshes
from mimetic_jax.train.feeds import image_feed
from mimetic_jax.train.step import Metrics
from mimetic_jax.train.tasks.task import ACCURACY, Evaluation, Examples, Feed


class ImageTask:
    """A classifier of images.

    Attributes:
        model: a Linen module: images [B, h, w, C] float32 → logits [B, classes].
        info: of the data, at the size that the model sees.
        augmentation, mixing: of training images.
    """

    score, unit = ACCURACY, "images"

    def __init__(
        self, config: ConfigDict, info: datasets.DatasetInfo, mesh: Mesh | None = None
    ) -> None:
        fields = config.model.to_dict()
        size, batch = config.data.size, config.batch
        shape = (size, size, info.image_shape[-1]) if size else info.image_shape
        self.info = dataclasses.replace(info, image_shape=shape)
        self.batch = self.per_step = batch
        self.model = models.ViT(
            num_classes=info.num_classes, **{**fields, "dtype": jnp.dtype(fields["dtype"])}
        )
        self.augmentation = device_augmentation(config, info)
        self.mixing = datasets.Mixing(**config.data.mix)
        self.smoothing, self.eval_fraction = config.label_smoothing, config.data.eval_fraction
        self._mesh = mesh

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return self.info.image_shape

    def init(self, key: jax.Array) -> Any:
        return self.model.init(key, jnp.zeros((1, *self.info.image_shape)))["params"]

    def grid(self) -> tuple[int, int]:
        height, width, _ = self.info.image_shape
        return height // self.model.patch, width // self.model.patch

    def prepare(
        self, key: jax.Array, step: jax.Array, examples: Examples
    ) -> tuple[jax.Array, jax.Array]:
        """Images [B, h, w, C] float32 and targets [B, classes], from pixels and labels."""
        pixels, labels = examples
        keys = datasets.example_keys(key, step, len(labels))
        images = datasets.augment(self.augmentation, keys, pixels, self.info.mean, self.info.std)
        return datasets.mix(
            self.mixing,
            # Where `example_keys` has the step there is a number that no step reaches.
            jax.random.fold_in(jax.random.fold_in(key, 2**32 - 1), step),
            images,
            labels,
            self.info.num_classes,
            self.smoothing,
        )

    def loss(
        self, params: Any, batch: tuple[jax.Array, jax.Array], key: jax.Array
    ) -> tuple[jax.Array, Metrics]:
        """Cross-entropy; the accuracy counts a mixed image's larger share."""
        images, targets = batch
        logits = self._logits(params, images, train=True, rngs={"dropout": key})
        value = optax.softmax_cross_entropy(logits, targets).mean()
        right = logits.argmax(-1) == targets.argmax(-1)
        return value, {"loss": value, "accuracy": right.mean()}

    def count(self, params: Any, examples: Examples, weights: jax.Array) -> Metrics:
        """`correct` and `count` as int32, exact for any number of examples; the sum of `loss`."""
        images, labels = examples
        logits = self._logits(params, self.view(images), train=False)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        counted = weights > 0
        return {
            "correct": ((logits.argmax(-1) == labels) & counted).sum(dtype=jnp.int32),
            "count": counted.sum(dtype=jnp.int32),
            "loss": jnp.where(counted, losses, 0).sum(),
        }

    def view(self, pixels: jax.Array) -> jax.Array:
        """Images as they are tested on: normalized, at the model's size."""
        if pixels.shape[1:] != self.info.image_shape:
            size = self.info.image_shape[0]
            pixels = datasets.central_view(pixels, size, self.eval_fraction, "bicubic")
        return datasets.normalize(pixels, self.info.mean, self.info.std)

    def evaluation(self, sums: dict[str, Any]) -> Evaluation:
        count = int(sums["count"])
        accuracy, loss = int(sums["correct"]) / count, float(sums["loss"]) / count
        return Evaluation(
            {"accuracy": accuracy, "loss": loss},
            count,
            f"test accuracy {100 * accuracy:5.2f} %  loss {loss:.4f}  ({count:,} examples)",
        )

    def batch_shapes(self) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
        return (
            jax.ShapeDtypeStruct((self.batch, *self.info.image_shape), jnp.float32),
            jax.ShapeDtypeStruct((self.batch, self.info.num_classes), jnp.float32),
        )

    def unrolled(self) -> ImageTask:
        task = copy.copy(self)
        task.model, task._mesh = self.model.clone(scan=False), None
        return task

    def zeros(self) -> Metrics:
        nothing = jnp.zeros((), jnp.int32)
        return {"correct": nothing, "count": nothing, "loss": jnp.zeros(())}

    def metric_names(self) -> tuple[str, ...]:
        return "loss", "accuracy"

    def progress(self, means: dict[str, float]) -> str:
        return f"loss {means['loss']:.4f}  accuracy {100 * means['accuracy']:5.1f} %"

    def _logits(self, params: Any, images: jax.Array, **how: Any) -> Any:
        with meshes.cut_by_example(self._mesh, Block):
            return self.model.apply({"params": params}, images, **how)


def device_augmentation(config: ConfigDict, info: datasets.DatasetInfo) -> datasets.Augmentation:
    """What is left for the device to do: images that stream are cropped where they are decoded."""
    fields = config.data.augment.to_dict()
    if info.streamed:
        fields |= {"crop_scale": ()}
    return datasets.Augmentation(size=config.data.size, **fields)


class Images:
    """Image data sets, as a comparison knows them."""

    def describe(self, config: ConfigDict) -> datasets.DatasetInfo:
        info = datasets.describe(config.data.name)
        if config.data.classes and not info.streamed:
            raise InputError(
                f"data.classes {config.data.classes}: {info.name} has {info.num_classes} classes"
            )
        if not 0 < config.data.subset <= 1:
            raise InputError(f"data.subset {config.data.subset} is not above 0 and at most 1")
        for name in ("mean", "std"):
            if (count := len(config.data[name])) not in (0, info.image_shape[-1]):
                raise InputError(
                    f"data.{name} has {count} numbers for {info.image_shape[-1]} channels"
                )
        return dataclasses.replace(
            info,
            mean=tuple(config.data.mean) or info.mean,
            std=tuple(config.data.std) or info.std,
            num_classes=config.data.classes or info.num_classes,
            num_train=round(config.data.subset * info.num_train),
        )

    def load(self, config: ConfigDict) -> Any:
        settings = config.data
        return datasets.load_dataset(settings.name, settings.dir, settings.subset, settings.classes)

    def sized(self, info: datasets.DatasetInfo, dataset: Any) -> datasets.DatasetInfo:
        return datasets.sized(info, dataset)

    def steps_per_epoch(self, config: ConfigDict, info: datasets.DatasetInfo) -> int:
        if config.batch > info.num_train:
            raise InputError(
                f"batch {config.batch} is larger than the {info.num_train} train images"
            )
        return info.num_train // config.batch

    def build(
        self, config: ConfigDict, info: datasets.DatasetInfo, mesh: Mesh
    ) -> tuple[ImageTask, Feed]:
        task = ImageTask(config, info, mesh)
        return task, image_feed(config, info, task, mesh)

    def summary(self, info: datasets.DatasetInfo) -> str:
        return (
            f"{info.name}, {info.num_train:,} train and {info.num_test:,} test images of "
            f"{info.image_shape}, {info.num_classes} classes"
        )
