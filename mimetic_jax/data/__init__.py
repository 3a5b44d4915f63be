"""Image data sets held in memory, the order their examples are seen in, and their augmentation.

Everything random is a pure function of a key and a step, so a resumed run sees what an unbroken one
would have seen. Shape letters: B batch, N examples, C channels, E epochs, S steps, h and w pixels.
"""

from mimetic_jax.data import cifar, digits
from mimetic_jax.data.augment import Augmentation, augment, example_keys, normalize
from mimetic_jax.data.dataset import ImageDataset
from mimetic_jax.data.info import DatasetInfo, describe
from mimetic_jax.data.resident import batch_indices, epoch_permutations, padded_batches

__all__ = [
    "Augmentation",
    "DatasetInfo",
    "ImageDataset",
    "augment",
    "batch_indices",
    "describe",
    "epoch_permutations",
    "example_keys",
    "load",
    "normalize",
    "padded_batches",
]


def load(name: str, data_dir: str | None = None) -> ImageDataset:
    """The data set of that name, whole.

    Args:
        name: "digits" (comes with scikit-learn, needs no folder), "cifar10" or "cifar100".
        data_dir: the folder of the CIFAR files; see `cifar.load` for the forms read.

    Raises:
        InputError: the name is unknown (the known ones are listed), or the files aren't usable.
    """
    return digits.load() if describe(name).name == "digits" else cifar.load(name, data_dir)
