"""Classifying images: the model, its augmentation, its loss."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from ml_collections import ConfigDict

from mimetic_jax import data as datasets
from mimetic_jax.base.errors import InputError
from mimetic_jax.base.kept import kept_with_first
from mimetic_jax.data.feed.feed import Examples, Feed, Sums
from mimetic_jax.data.feed.resident import ResidentImages
from mimetic_jax.data.feed.streamed import StreamedImages
from mimetic_jax.schemes import Scheme
from mimetic_jax.schemes.base import used_by
from mimetic_jax.train.cluster.mesh import BATCH
from mimetic_jax.train.record import ACCURACY
from mimetic_jax.train.step import Metrics
from mimetic_jax.train.tasks.task import Evaluation, Task
from mimetic_jax.weights import patch_covariance


class ImageTask(Task):
    """A classifier of images: [B, h, w, C] float32 → logits [B, classes].

    Attributes:
        info: the description of the data, at the size that the model sees.
    """

    score, unit = ACCURACY, "images"

    def __init__(
        self, config: ConfigDict, info: datasets.DatasetInfo, mesh: Mesh | None = None
    ) -> None:
        size = config.data.size
        shape = (size, size, info.image_shape[-1]) if size else info.image_shape
        super().__init__(config, shape, jnp.float32, mesh, num_classes=info.num_classes)
        self.info = dataclasses.replace(info, image_shape=shape)
        self.per_step = self.batch
        self.augmentation = _device_augmentation(config, info)
        self.mixing = datasets.Mixing(**config.data.mix)
        self.smoothing, self.eval_fraction = config.label_smoothing, config.data.eval_fraction
        self._tested = "held-out" if config.data.held_out else "test"
        if self.eval_fraction < 1 and shape[0] != shape[1]:
            raise InputError(
                f"data.eval_fraction {self.eval_fraction} cuts a square, but images are "
                f"{shape[0]}x{shape[1]}: set data.size, or data.eval_fraction to 1"
            )

    def counts(self) -> dict[str, int]:
        return {"train_examples": self.info.num_train, "classes": self.info.num_classes}

    @classmethod
    def describe(cls, config: ConfigDict, dataset: Any = None) -> datasets.DatasetInfo:
        """Return the data set as the configuration uses it: as published, or as loaded."""
        own = config.data.name in datasets.OWN_SIDES
        if dataset is not None and not own and config.data.name not in datasets.names():
            info = datasets.info_of(dataset)
        elif own:
            info = datasets.describe_own(
                config.data.name, config.data.dir, config.data.size, dataset
            )
        else:
            info = datasets.describe(config.data.name, config.data.dir)
        if config.data.classes not in (0, info.num_classes) and (own or not info.streamed):
            raise InputError(
                f"data.classes {config.data.classes}: {info.name} has {info.num_classes} classes"
            )
        if (config.data.classes or info.num_classes) == 1:
            raise InputError(
                f"{info.name} has one class, which leaves nothing to learn; pass two or more (of a "
                "folder, the one that has a folder per class)"
            )
        for name in ("mean", "std"):
            if (count := len(config.data[name])) not in (0, info.image_shape[-1]):
                channels = info.image_shape[-1]
                raise InputError(f"data.{name} has {count} numbers for {channels} channels")
        sizes = _sizes(config, info)
        if dataset is not None:  # of which the published numbers may not be true
            sizes = cls.of_seed(config, dataset, config.seeds[0]).sizes
        return dataclasses.replace(
            info,
            mean=tuple(config.data.mean) or info.mean,
            std=tuple(config.data.std) or info.std,
            num_classes=config.data.classes or info.num_classes,
            num_train=sizes[0],
            num_test=sizes[1],
        )

    @classmethod
    def load(cls, config: ConfigDict, given: Any = None) -> Any:
        """Return the data set of a configuration, resident or streamed; or an `ImageDataset` given.

        With `data.held_out` the test images are a part of the training images; with
        `data.per_seed` it is the whole set, of which `of_seed` takes parts.
        """
        whole = _loaded(config, given)
        if config.data.per_seed:
            return whole
        return whole.part(config.data.subset).held_out(config.data.held_out)

    @classmethod
    def of_seed(cls, config: ConfigDict, dataset: Any, seed: int) -> Any:
        """Return the data set, or a seed's own part of it."""
        if config.data.per_seed:
            return dataset.of_seed(seed, config.data.per_seed, config.data.held_out)
        return dataset

    @classmethod
    def build(cls, config: ConfigDict, info: datasets.DatasetInfo, mesh: Mesh) -> tuple[Self, Feed]:
        """Return the task, and the feed of resident images or of streamed ones."""
        if config.batch > info.num_train:
            raise InputError(
                f"batch {config.batch} is larger than the {info.num_train} train images"
            )
        task = cls(config, info, mesh)
        sharding = NamedSharding(mesh, BATCH)
        sizes = config.batch, config.eval.batch
        if not info.streamed:
            if config.data.repeats > 1:
                raise InputError(
                    f"data.repeats {config.data.repeats}: repeated augmentation is for streamed "
                    f"images, and {info.name} is held in memory"
                )
            return task, ResidentImages(info, *sizes, config.max_dispatch, sharding)
        augment = config.data.augment
        whole = {"scale": (1.0, 1.0), "ratio": (1.0, 1.0)}
        view = datasets.CropSpec(
            task.info.image_shape[0],
            config.data.eval_fraction,
            **{"scale": tuple(augment.crop_scale)} if augment.crop_scale else whole,
            interpolation=augment.interpolation,
            upright=config.data.name in datasets.OWN_SIDES,
        )
        feed = StreamedImages(info.num_train, view, *sizes, sharding, config.data.repeats)
        return task, feed

    def prepare(
        self, key: jax.Array, step: jax.Array, examples: Examples
    ) -> tuple[jax.Array, jax.Array]:
        """Images [B, h, w, C] float32 and targets [B, classes], from pixels and labels."""

        def over_devices(augment: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
            """Loops over the images that drew an operation: each device's own."""
            if self._mesh is None or self._mesh.size == 1:
                return augment
            return jax.shard_map(
                augment, mesh=self._mesh, in_specs=(BATCH, BATCH), out_specs=BATCH, check_vma=False
            )

        images, labels = examples
        return datasets.augment_batch(
            self.augmentation,
            self.mixing,
            key,
            step,
            images,
            labels,
            self.info.mean,
            self.info.std,
            self.info.num_classes,
            self.smoothing,
            over_devices,
        )

    def data_statistics(
        self, schemes: Iterable[Scheme], load: Callable[[], Any] | None = None
    ) -> dict[str, Any]:
        """Return the covariance of the patches of training images, as the model gets them: of up to
        10,000 of them at 64 pixels, fewer of larger ones.

        Images that stream from disk have none: `Whitened` then takes that of natural images.
        """
        patch = getattr(self.model.module, "patch", None)
        if patch is None or self.info.streamed:
            return {}
        if "covariance" not in used_by(schemes):
            return {}
        if load is None:
            return {"covariance": np.eye(patch * patch * self.info.image_shape[-1])}
        return {"covariance": _covariance(load(), self, patch)}

    def loss(
        self, params: Any, model_state: Any, batch: tuple[jax.Array, jax.Array], key: jax.Array
    ) -> tuple[jax.Array, tuple[Metrics, Any]]:
        """Cross-entropy; the accuracy counts a mixed image's larger share."""
        images, targets = batch
        logits, model_state = self.outputs({"params": params, **model_state}, images, key)
        value = optax.softmax_cross_entropy(logits, targets).mean()
        right = logits.argmax(-1) == targets.argmax(-1)
        return value, ({"loss": value, "accuracy": right.mean()}, model_state)

    def sums(self, variables: Any, examples: Examples, weights: jax.Array) -> Sums:
        """Return `correct` and `count` as int32, exact for any number, and `loss`."""
        images, labels = examples
        logits, _ = self.outputs(variables, self.view(images))
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        is_real = weights > 0
        return {
            "correct": (is_real & (logits.argmax(-1) == labels)).sum(dtype=jnp.int32),
            "count": is_real.sum(dtype=jnp.int32),
            "loss": jnp.where(is_real, losses, 0).sum(),
        }

    def view(self, pixels: jax.Array) -> jax.Array:
        """Images as they are tested on: the central view at the model's size, normalized.

        Streamed images come as that view, cut where they are decoded.
        """
        cut = self.eval_fraction < 1 and not self.info.streamed
        if cut or pixels.shape[1:] != self.info.image_shape:
            size = self.info.image_shape[0]
            pixels = datasets.central_view(pixels, size, self.eval_fraction)
        return datasets.normalize(pixels, self.info.mean, self.info.std)

    def evaluation(self, sums: dict[str, Any]) -> Evaluation:
        count = max(int(sums["count"]), 1)
        accuracy, loss = int(sums["correct"]) / count, float(sums["loss"]) / count
        shown = f"{self._tested} accuracy {100 * accuracy:5.2f}%  loss {loss:.4f}"
        return Evaluation(
            {"accuracy": accuracy, "loss": loss}, count, f"{shown}  ({count:,} examples)"
        )

    def batch_shapes(self) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
        return (
            jax.ShapeDtypeStruct((self.batch, *self.info.image_shape), jnp.float32),
            jax.ShapeDtypeStruct((self.batch, self.info.num_classes), jnp.float32),
        )

    def progress(self, means: dict[str, float]) -> str:
        return f"loss {means['loss']:.4f}  accuracy {100 * means['accuracy']:5.1f}%"


def _device_augmentation(config: ConfigDict, info: datasets.DatasetInfo) -> datasets.Augmentation:
    """What is left for the device: images that stream are cropped where they are decoded."""
    fields = config.data.augment.to_dict()
    side = config.data.size or min(info.image_shape[:2])
    if fields["crop"] >= side:
        raise InputError(
            f"data.augment.crop {fields['crop']} pads images of {side} pixels by more than that"
        )
    augmentation = datasets.Augmentation(size=config.data.size, **fields)
    return dataclasses.replace(augmentation, crop_scale=()) if info.streamed else augmentation


_MOST_PIXELS = 10_000 * 64**2
"""Of the images whose patches are whitened, which are in memory as float32 several times."""


@kept_with_first  # all seeds of an arm share it
def _covariance(dataset: Any, task: ImageTask, patch: int) -> np.ndarray:
    images = dataset.train_images
    height, width = images.shape[1:3]
    most = max(256, min(10_000, _MOST_PIXELS // (height * width)))
    chosen = np.linspace(0, len(images) - 1, min(len(images), most)).astype(int)
    return patch_covariance(task.view(jnp.asarray(images[chosen])), patch)


def _sizes(config: ConfigDict, info: datasets.DatasetInfo) -> tuple[int, int]:
    """How many images a run trains on, and how many it is tested on."""
    data = config.data
    if data.per_seed:
        if data.subset < 1:
            raise InputError(
                f"data.per_seed {data.per_seed} and data.subset {data.subset} both choose what is "
                "trained on; pass one"
            )
        aside = data.held_out or datasets.HELD_OUT
        datasets.check_parts(info.num_train, config.seeds, data.per_seed, aside)
        return data.per_seed, round(data.held_out * info.num_train) or info.num_test
    num_train = round(data.subset * info.num_train)
    tested = round(data.held_out * num_train)
    return num_train - tested, tested or info.num_test


def _loaded(config: ConfigDict, given: Any) -> Any:
    settings = config.data
    if given is None:
        where = settings.name, settings.dir
        if settings.name in datasets.OWN_SIDES:
            return datasets.load_own(*where, settings.size)
        return datasets.load_dataset(*where, settings.classes)
    if not isinstance(given, datasets.ImageDataset):
        raise InputError(f"data given as arrays is an ImageDataset, not a {type(given).__name__}")
    if given.name in (*datasets.names(), *datasets.OWN_SIDES):
        raise InputError(f"{given.name} is a known data set; pass yours another name")
    return given
