"""Arrays and a module that are there already, from Python."""

import dataclasses
import errno
import functools
import json
import pathlib
import re
import shutil
from unittest import mock

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from PIL import Image

from configs.default import default
from mimetic_jax.base.errors import InputError
from mimetic_jax.data import ImageDataset
from mimetic_jax.models import ViT, fields_of, model_fields
from mimetic_jax.schemes import MeanShift
from mimetic_jax.train import Comparison
from mimetic_jax.train.store import files
from tests.forms import FORMS, LinenViT, NNXViT
from tests.images import class_folders
from tests.training import quiet


def arrays(name="dots"):
    """Images of two classes, dark and bright."""
    random = np.random.default_rng(0)
    labels = np.arange(48, dtype=np.int32) % 2
    images = random.integers(0, 100, (48, 6, 6, 3)) + 150 * labels[:, None, None, None]
    images = images.clip(0, 255).astype(np.uint8)
    return ImageDataset(name, images[:32], labels[:32], images[32:], labels[32:], 2)


ONE = {"train_labels": np.zeros(32, np.int32), "test_labels": np.zeros(16, np.int32)}


def tiny():
    config = default()
    config.steps, config.batch, config.eval.batch = 12, 16, 16
    config.arms.default = {}
    config.arms.mean_shift = {"scheme": (MeanShift(0.5),)}
    return config


def comparison(config=None, **own):
    return quiet(config or tiny(), **own)


def test_arrays_and_a_module_make_a_table(tmp_path):
    module = functools.partial(NNXViT, 9, 8, 1, channels=3)  # the data has two classes
    found = comparison(data=arrays(), model=module)
    assert (found.info.num_train, found.info.num_test, found.info.num_classes) == (32, 16, 2)
    pixels = arrays().train_images.reshape(-1, 3) / 255
    np.testing.assert_allclose(found.info.mean, pixels.mean(0), rtol=1e-6)
    np.testing.assert_allclose(found.info.std, pixels.std(0), rtol=1e-6)
    table = found.train(str(tmp_path))
    scores = [float(score) for score in re.findall(r"\| +(\d+\.\d\d) +\|", str(table))]
    assert len(scores) == 2
    assert min(scores) >= 75, "of two classes, dark and bright"
    stored = found.config.model
    assert (stored.name, stored.width) == (FORMS["nnx"], 8)
    again = comparison(data=arrays(), model=module)
    assert again.table(tmp_path) == table
    refusal = PermissionError(errno.EACCES, "Permission denied")
    with mock.patch.object(files, "write", side_effect=refusal):
        again.say = (said := []).append
        assert again.table(tmp_path) == table
        assert said == [f"the table isn't written into {tmp_path}: Permission denied"]
    for row in table.to_dicts():
        lines = pathlib.Path(row["metrics"]).read_text().splitlines()
        assert json.loads(lines[-1])["record"]["value"] == row["value"]
        assert (pathlib.Path(row["checkpoints"]) / str(row["steps"])).is_dir()
    with pytest.raises(InputError, match="belongs to a different config"):
        comparison(data=arrays("lines"), model=module).table(tmp_path)


@pytest.mark.parametrize(
    ("model", "name", "width"),
    [
        (LinenViT(10, 8), FORMS["linen"], 8),
        (LinenViT, FORMS["linen"], 32),
        (functools.partial(NNXViT, 10, 8), FORMS["nnx"], 8),
        (nnx.bridge.to_linen(NNXViT, 10, width=8), FORMS["nnx"], 8),
        (ViT(10, 12, dtype=jnp.bfloat16), "vit", 12),
    ],
)
def test_a_model_is_stored_by_its_import_path_and_fields(model, name, width):
    stored = fields_of(model)
    assert (stored["name"], stored["width"]) == (name, width)
    assert set(stored) == {"name", *model_fields(name)}
    assert stored.get("dtype", "bfloat16") == "bfloat16"


def test_arms_of_other_sizes_have_images_of_their_own(tmp_path):
    config = tiny()
    config.data.update(name="folder", dir=str(class_folders(tmp_path, 12)), size=6)
    config.arms, config.eval.batch = {"small": {}, "large": {"data": {"size": 12}}}, 2
    arms = comparison(config, model=LinenViT(2, 8, 1)).arms
    sides = {name: arm.source.load().image_shape[0] for name, arm in arms.items()}
    assert sides == {"small": 6, "large": 12}


def test_arms_of_other_batches_share_the_images_on_the_devices():
    config = tiny()
    config.arms = {"small": {"batch": 8}, "large": {"batch": 16}}
    arms = comparison(config, data=arrays(), model=LinenViT(2, 8, 1)).arms
    assert arms["small"].program is not arms["large"].program
    assert arms["small"].on_device() is arms["large"].on_device()


def test_arms_of_equally_large_data_in_two_folders_have_each_its_own(text, words, tmp_path):
    config = text()
    other = shutil.copytree(words, tmp_path / "other")
    train = other / "ptb.train.txt"
    train.write_text(train.read_text().replace(" dog ", " cat ", 1))
    config.arms = {"one": {}, "other": {"data": {"dir": str(other)}}}
    both = comparison(config)
    both.arms.load_data()
    one, other = both.arms.values()
    assert one.program is other.program
    assert (one.on_device().train != other.on_device().train).any()


def test_the_callers_config_stays_as_it_is():
    config = tiny()
    comparison(config, data=arrays(), model=LinenViT(2, 8, 1))
    assert (config.data.name, config.model.name) == ("digits", "vit")


class WithFunction(nn.Module):
    num_classes: int = 2
    activation: object = nn.gelu

    @nn.compact
    def __call__(self, images):
        return nn.Dense(self.num_classes)(self.activation(images.reshape(len(images), -1)))


def local():
    class Local(nn.Module):
        pass

    return Local()


def own(**given):
    return lambda: comparison(**given)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Comparison("images"), "the config is a str, not a ConfigDict"),
        (lambda: comparison().train(None), "workdir None is not a path"),
        (own(data=dataclasses.replace(arrays(), num_classes=1, **ONE)), "dots has one class"),
        (own(data=arrays("cifar10")), "cifar10 is a known data set; pass yours another name"),
        (own(data=arrays().train_images), "is an ImageDataset, not a ndarray"),
        (own(model=local()), "Local can't be imported: define it at the top of a module"),
        (own(model=WithFunction(2, nn.relu)), "activation is .*, which no configuration can store"),
        (own(model=nnx.Dropout(0.5)), r"the class Dropout, or functools.partial\(Dropout, …\)"),
        (own(model=3), "a model of type int is not a Linen module or a class of modules"),
        (own(model=functools.partial(NNXViT, widht=3)), "unknown field .*did you mean 'width'"),
    ],
)
def test_bad_input_is_one_line(call, words):
    with pytest.raises(InputError, match=words):
        call()


def test_images_that_were_added_since_a_run_are_counted(tiny, tmp_path):
    """By `compare`, and beside the fingerprints that a training refuses."""
    folder = class_folders(tmp_path / "images", 20)
    settings = {"data.name": "folder", "data.dir": str(folder), "data.size": 8, "batch": 4}
    config = tiny(**settings, steps=4)
    config.model.patch = 4
    said, workdir = [], tmp_path / "run"
    quiet(config).train(workdir)
    Comparison(config, say=said.append).table(workdir)
    assert said == []
    Image.new("RGB", (8, 8), (9, 9, 9)).save(folder / "dark" / "new.png")
    Comparison(config, say=said.append).table(workdir)
    words = "images has 37 train and 4 test images, but had 36 and 4 when run seed 0 was trained"
    assert said == [words]
    config.seeds = (0, 1, 2)
    Comparison(config, say=said.append).table(workdir)
    assert said == [words, words, "no result yet: run seeds 1, 2"]
    config.seeds = (0,)
    with pytest.raises(InputError, match=rf"{words}: .*\(fingerprint .* there, .* here"):
        quiet(config).train(workdir)
