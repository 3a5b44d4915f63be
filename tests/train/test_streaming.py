"""Training on images that stay on disk: the same laws as in memory."""

import shutil

import jax
import numpy as np
import pytest
from PIL import Image

from mimetic_jax import InputError
from mimetic_jax.train.store.runs import Run
from tests.images import imagenet
from tests.training import evaluations, killed, quiet, trained
from tests.typical import typical


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return imagenet(tmp_path_factory.mktemp("images"))


@pytest.fixture
def streamed(tiny, folder):
    def config(**overrides):
        data = {"name": "imagenet2012", "dir": str(folder), "classes": 2, "size": 16}
        data |= {"augment.crop": 0, "augment.crop_scale": (0.3, 1.0), "augment.flip": True}
        settings = {f"data.{name}": value for name, value in data.items()}
        settings |= {"batch": 8, "steps": 10, "eval.batch": 8, "model.patch": 8}
        return tiny(**settings | overrides)

    return config


@pytest.mark.slow
def test_learns_counts_and_records(streamed, tmp_path):
    config = streamed(**{"steps": 30, "optimizer.learning_rate": 3e-3, "eval.every": 0})
    quiet(config, (said := []).append).train(tmp_path)
    assert "holds 20 train and 11 test examples there, 1,281,167 and 50,000 expected" in said[0]
    first, last = evaluations(Run.of(tmp_path, "run", 0))
    assert first["eval_count"] == last["eval_count"] == 11
    assert last["eval_loss"] < 0.7 * first["eval_loss"]
    assert last["eval_accuracy"] > 0.9


@pytest.mark.slow
def test_resume_equals_no_stop(streamed, tmp_path):
    """Order, crops and augmentation go on where they were, in the middle of an epoch."""
    overrides = {"data.repeats": 2, "ema": 0.9, "data.mix.mixup": 0.5}
    whole = trained(streamed(**overrides), tmp_path / "whole")
    with killed(after=6):
        trained(streamed(**overrides), tmp_path / "killed")
    resumed = trained(streamed(**overrides), tmp_path / "killed")
    assert int(resumed.step) == 10
    jax.tree.map(np.testing.assert_array_equal, resumed, whole)


@typical("split", ["val"], slow=["train"])
def test_a_run_with_a_damaged_image_goes_on_once_that_is_mended(streamed, tmp_path, folder, split):
    """Of the test images too, which would else be left out of the score."""
    images = shutil.copytree(folder, tmp_path / "images")
    path = next((images / split).rglob("*.JPEG"))
    whole = path.read_bytes()
    path.write_bytes(whole[:60])
    config = streamed(**{"data.dir": str(images)})
    with pytest.raises(InputError, match=f"{path.name} can't be decoded .*: mend or remove it"):
        trained(config, tmp_path / "run")
    path.write_bytes(whole)
    assert int(trained(config, tmp_path / "run").step) == 10


def test_an_image_whose_damage_shows_in_training_alone_ends_the_run(streamed, tmp_path, folder):
    images = shutil.copytree(folder, tmp_path / "images")
    path = next((images / "train").rglob("*.JPEG"))
    Image.new("RGB", (20, 20)).save(path, "BMP")  # which has no checksum and no end
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(InputError, match=f"{path.name} can't be decoded"):
        trained(streamed(**{"data.dir": str(images)}), tmp_path / "run")


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"data.classes": 0}, "holds 2 classes, expected 1000"),
        ({"batch": 32}, "batch 32 is larger than the 20 train images"),
    ],
)
def test_bad_input_before_anything_is_written(streamed, tmp_path, overrides, words):
    with pytest.raises(InputError, match=words):
        trained(streamed(**overrides), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_subset_trains_on_its_share_alone(streamed, tmp_path):
    comparison = quiet(streamed(**{"data.subset": 0.5}))
    comparison.arms.load_data()
    assert comparison.arms["run"].program.feed.steps_per_epoch == 1
