"""Image data sets, the order of their examples, and their augmentation.

Small sets are held in memory and augmented inside the step; large ones stream from disk. Everything
random is a pure function of a key and a step, so a resumed run sees the same images as one without
a break. Shape letters: B batch, N examples, C channels, E epochs, S steps, h and w pixels.
"""

from mimetic_jax.data.augment.geometry import central_view
from mimetic_jax.data.augment.mixing import Mixing, mix
from mimetic_jax.data.augment.pipeline import (
    Augmentation,
    augment_images,
    erase_mixed,
    example_keys,
    normalize,
)
from mimetic_jax.data.feed.order import TrainOrder, batch_indices, epoch_orders, padded_batches
from mimetic_jax.data.feed.stream import eval_batches, train_batches
from mimetic_jax.data.files.open import open_source
from mimetic_jax.data.files.sources import ImageSource, Subset
from mimetic_jax.data.sets.class_folders import SIDES as OWN_SIDES
from mimetic_jax.data.sets.class_folders import describe_own, load_own
from mimetic_jax.data.sets.dataset import (
    DatasetInfo,
    ImageDataset,
    StreamedDataset,
    balanced,
    held_out,
    info_of,
    part,
    sized,
)
from mimetic_jax.data.sets.load import load_dataset
from mimetic_jax.data.sets.table import describe, names

__all__ = [
    "OWN_SIDES",
    "Augmentation",
    "DatasetInfo",
    "ImageDataset",
    "ImageSource",
    "Mixing",
    "StreamedDataset",
    "Subset",
    "TrainOrder",
    "augment_images",
    "balanced",
    "batch_indices",
    "central_view",
    "describe",
    "describe_own",
    "epoch_orders",
    "erase_mixed",
    "eval_batches",
    "example_keys",
    "held_out",
    "info_of",
    "load_dataset",
    "load_own",
    "mix",
    "names",
    "normalize",
    "open_source",
    "padded_batches",
    "part",
    "sized",
    "train_batches",
]
