"""ImageNet's validation tar: its labels by name or in order, numbered as in training."""

from pathlib import Path

import pytest

from mimetic_jax.data.files import open as opening
from mimetic_jax.errors import InputError
from tests.data.made import tar_of

SYNSETS = ["n03", "n01", "n02", "n01"]
NAMES = [f"ILSVRC2012_val_0000000{number}.JPEG" for number in range(1, 5)]


def write(root: Path, names: list[str] = NAMES) -> Path:
    path = root / opening.VALIDATION
    path.write_bytes(tar_of({name: name.encode() for name in reversed(names)}))
    return path


@pytest.mark.parametrize("named", [True, False])
def test_labels_are_read_from_the_file_beside_the_tar(tmp_path: Path, named: bool) -> None:
    pairs = list(zip(NAMES, SYNSETS, strict=True))
    lines = [f"{name} {synset}" for name, synset in reversed(pairs)] if named else SYNSETS
    (tmp_path / opening.LABELS).write_text("\n".join(lines) + "\n")
    source = opening.imagenet_validation(write(tmp_path), 3)
    assert source.labels.tolist() == [2, 0, 1, 0]
    assert [source.read(index)[0].decode() for index in range(4)] == NAMES


@pytest.mark.slow
def test_without_a_list_that_of_tfds_is_read(tmp_path: Path) -> None:
    """Checked on labels known from the challenge: 1 is a sea snake, 2 a ski, 3 a Shetland sheepdog.

    Classes are numbered by synset, so these are 65, 970 and 230.
    """
    names = [f"ILSVRC2012_val_{number:08d}.JPEG" for number in range(1, 50_001)]
    source = opening.imagenet_validation(write(tmp_path, names), 1000)
    assert source.labels[:3].tolist() == [65, 970, 230]


@pytest.mark.parametrize(
    ("listing", "num_classes", "words"),
    [
        (None, 1000, "50000 lines for the 4 images"),
        ("n01\nn02\nn03\n", 3, "3 lines for the 4 images"),
        ("\n".join(f"{name} n01" for name in NAMES[1:]), 1, "doesn't name ILSVRC2012_val_00000001"),
        ("n01 a b\n" * 4, 1, "FILENAME SYNSET"),
        ("\n".join(SYNSETS), 1000, "holds 3 classes, expected 1000"),
    ],
)
def test_lists_that_do_not_match_are_refused(
    tmp_path: Path, listing: str | None, num_classes: int, words: str
) -> None:
    tar = write(tmp_path)
    if listing is not None:
        (tmp_path / opening.LABELS).write_text(listing)
    with pytest.raises(InputError, match=words):
        opening.imagenet_validation(tar, num_classes)
