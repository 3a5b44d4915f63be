"""Loading by name, and what is known without loading."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mimetic_jax import data
from mimetic_jax.errors import InputError


def test_describe_agrees_with_the_data() -> None:
    info, digits = data.describe("digits"), data.load_dataset("digits")
    assert info.image_shape == digits.image_shape
    assert info.num_classes == digits.num_classes
    assert (info.num_train, info.num_test) == (len(digits.train_labels), len(digits.test_labels))


@pytest.mark.parametrize("function", [data.load_dataset, data.describe])
def test_an_unknown_name_gets_the_known_ones_and_the_nearest(
    function: Callable[[str], object],
) -> None:
    with pytest.raises(InputError, match="did you mean 'cifar10'") as caught:
        function("cifar-10")
    assert "cifar10, cifar100, digits" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_images_are_found_by_their_published_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"tiny_imagenet\.zip, .*tiny-imagenet-200\.zip"):
        data.load_dataset("tiny_imagenet", str(tmp_path))


def test_importing_the_package_imports_no_reader() -> None:
    program = (
        "import sys, mimetic_jax.data\n"
        "heavy = {'tensorflow', 'tensorflow_datasets', 'sklearn', 'PIL', 'cv2'}\n"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
