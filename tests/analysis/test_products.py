"""The pictures of attention products, whatever the storage of the kernels."""

import csv
import importlib
import shutil

import numpy as np
import pytest

from mimetic_jax.analysis import products
from mimetic_jax.base.tensor_files import read_file
from mimetic_jax.train.store.files import path_of
from tests.train.test_vit_files import SIZES, shapes, to_timm, whole, write
from tests.typical import typical


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_files_of_others_have_the_products_of_the_model(tmp_path, golden, suffix):
    """By the zoo's rules, without what reads the whole model."""
    arrays = golden("hugging_face_vit")
    tensors = {name: arrays[name] for name in arrays.keys() - {"images", "logits"}}
    path = write(tmp_path / f"a{suffix}", tensors)
    of_timm = write(tmp_path / "timm.safetensors", to_timm(tensors))
    model = products.head_products(whole(of_timm, shapes()))
    found = products.head_products(read_file(path), num_heads=SIZES["heads"])
    assert len(found) == len(model) == SIZES["depth"]
    for ours, theirs in zip(found, model, strict=True):
        np.testing.assert_allclose(ours.query_key, theirs.query_key, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(ours.value_out, theirs.value_out, rtol=1e-5, atol=1e-5)


@typical("what", ["attention"], slow=["products"])
def test_arms_are_drawn_before_and_after_training(what, trained, tmp_path):
    pytest.importorskip("matplotlib")
    analysis = importlib.import_module(f"mimetic_jax.analysis.{what}")
    labels = []
    for workdir in (tmp_path / "new", shutil.copytree(trained.workdir, tmp_path / "workdir")):
        said = analysis.analyze(trained.comparison, path_of(workdir))
        assert said.endswith(f" drawn: {workdir / what}.png")
        with (workdir / f"{what}.csv").open() as file:
            labels.append(list(dict.fromkeys(row["label"] for row in csv.DictReader(file))))
    assert labels == [
        ["default, initial", "mimetic, initial"],
        ["default, initial", "default, step 4", "mimetic, initial", "mimetic, step 4"],
    ]
