"""Image data sets, the order their examples are seen in, and their augmentation.

Small sets are held in memory and augmented inside the step; large ones stream from disk. Everything
random is a pure function of a key and a step, so a resumed run sees what an unbroken one would have
seen. Shape letters: B batch, N examples, C channels, E epochs, S steps, h and w pixels.
"""

from mimetic_jax.data.augment import Augmentation, augment, example_keys, normalize
from mimetic_jax.data.dataset import ImageDataset
from mimetic_jax.data.geometry import central_view
from mimetic_jax.data.info import DatasetInfo, describe, names
from mimetic_jax.data.load import StreamedDataset, load, sized
from mimetic_jax.data.mixing import Mixing, mix
from mimetic_jax.data.open import open_source
from mimetic_jax.data.order import TrainOrder
from mimetic_jax.data.resident import batch_indices, epoch_permutations, padded_batches
from mimetic_jax.data.sources import ImageSource, Subset
from mimetic_jax.data.stream import eval_batches, train_batches
from mimetic_jax.data.subset import balanced

__all__ = [
    "Augmentation",
    "DatasetInfo",
    "ImageDataset",
    "ImageSource",
    "Mixing",
    "StreamedDataset",
    "Subset",
    "TrainOrder",
    "augment",
    "balanced",
    "batch_indices",
    "central_view",
    "describe",
    "epoch_permutations",
    "eval_batches",
    "example_keys",
    "load",
    "mix",
    "names",
    "normalize",
    "open_source",
    "padded_batches",
    "sized",
    "train_batches",
]
