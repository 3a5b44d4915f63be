"""Image data sets, texts, the order of their examples, and their augmentation.

Small sets are held in memory and augmented inside the step; large ones stream from disk. Everything
random is a pure function of a key and a step, so a resumed run sees the same images as one without
a break. Shape letters: B batch, N examples, C channels, E epochs, S steps, h and w pixels.
"""

from mimetic_jax.data.augment.geometry import central_view
from mimetic_jax.data.augment.mixing import Mixing
from mimetic_jax.data.augment.pipeline import Augmentation, augment_batch, normalize
from mimetic_jax.data.files.views import CropSpec
from mimetic_jax.data.sets.dataset import (
    HELD_OUT,
    DatasetInfo,
    ImageDataset,
    StreamedDataset,
    check_parts,
    info_of,
)
from mimetic_jax.data.sets.load import OWN_SIDES, describe_own, load_dataset, load_own
from mimetic_jax.data.sets.table import describe, names

__all__ = [
    "HELD_OUT",
    "OWN_SIDES",
    "Augmentation",
    "CropSpec",
    "DatasetInfo",
    "ImageDataset",
    "Mixing",
    "StreamedDataset",
    "augment_batch",
    "central_view",
    "check_parts",
    "describe",
    "describe_own",
    "info_of",
    "load_dataset",
    "load_own",
    "names",
    "normalize",
]
