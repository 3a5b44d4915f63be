"""Preparing through TFDS: everything but TensorFlow's own part of it.

A builder of our own replaces TFDS's: it writes real array_record data without TensorFlow.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mimetic_jax.base import extras
from mimetic_jax.data import load_dataset, prepare
from mimetic_jax.data.sets.table import describe
from tests.data import made


def builder(size: int, file_format: str = "array_record") -> prepare.Build:
    """What writes square images of `size` pixels under any name."""

    def build(name: str, root: Path, manual: Path) -> None:
        made.prepare(name, root, size, version="3.1.0", file_format=file_format)

    return build


def nothing(name: str, root: Path, manual: Path) -> None:
    raise AssertionError(f"{name} must not be built")


def refused(*words: str, **arguments: Any) -> None:
    made.refused(lambda: prepare.prepare(**arguments), *words)


@pytest.mark.parametrize("name", ["svhn", "stl10"])
def test_prepared_data_are_loaded(tmp_path: Path, name: str) -> None:
    size = describe(name).image_shape[0]
    folder = prepare.prepare(name, str(tmp_path), build=builder(size))
    assert folder == tmp_path / describe(name).tfds / "3.1.0"
    assert prepare.prepare(name, str(tmp_path), build=nothing) == folder  # it is there
    data = load_dataset(name, str(tmp_path))
    assert data.name == name
    for part, images, labels in (
        ("train", data.train_images, data.train_labels),
        ("test", data.test_images, data.test_labels),
    ):
        assert made.examples(images, labels) == made.examples(*made.split(part, size))


def test_another_file_format_is_reported(tmp_path: Path) -> None:
    builder(32, file_format="tfrecord")("svhn_cropped", tmp_path, tmp_path)
    refused("as tfrecord", "3.1.0", name="svhn", data_dir=str(tmp_path), build=nothing)


@pytest.mark.parametrize("given", [True, False])
def test_imagenet_names_the_files_to_download_by_hand(tmp_path: Path, given: bool) -> None:
    manual = tmp_path / ("mine" if given else "downloads/manual")
    arguments: dict[str, Any] = {
        "name": "imagenet2012",
        "data_dir": str(tmp_path),
        "manual_dir": str(manual) if given else None,
    }
    train, validation = "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar"
    refused(f"{train} and {validation} in {manual}", "image-net.org", build=nothing, **arguments)
    manual.mkdir(parents=True)
    (manual / train).touch()
    refused(f"place {validation} in {manual}", build=nothing, **arguments)
    (manual / validation).touch()
    seen = []
    refused(
        "TFDS finished without writing",
        build=lambda name, root, folder: seen.append((name, root, folder)),
        **arguments,
    )
    assert seen == [("imagenet2012", tmp_path, manual)]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("digits", "scikit-learn"),
        ("tiny_imagenet", "tiny-imagenet-200.zip"),
        ("svnh", "did you mean 'svhn'"),
    ],
)
def test_sets_that_tfds_does_not_have(tmp_path: Path, name: str, words: str) -> None:
    refused(words, name=name, data_dir=str(tmp_path), build=nothing)


def test_a_failure_of_tfds_is_reported_in_one_line(tmp_path: Path) -> None:
    def fail(name: str, root: Path, manual: Path) -> None:
        raise ConnectionError("no route\nto host")

    refused(
        "couldn't prepare svhn", "no route to host", name="svhn", data_dir=str(tmp_path), build=fail
    )


def test_without_tensorflow_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(extras.EXTRAS, "prepare", ("no_such_module",))
    refused(
        "preparing data needs no_such_module",
        "[prepare]",
        name="svhn",
        data_dir=str(tmp_path),
    )
    assert not list(tmp_path.iterdir())


def test_tfds_is_asked_for_array_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow_datasets as tfds

    built: dict[str, Any] = {}

    class Recorder:
        def __init__(self, name: str, **options: Any) -> None:
            built.update(options, name=name)

        def download_and_prepare(self, download_config: Any) -> None:
            built["manual"] = download_config.manual_dir
            builder(32)(built["name"], built["data_dir"], tmp_path)

    monkeypatch.setitem(extras.EXTRAS, "prepare", ())
    monkeypatch.setattr(tfds, "builder", Recorder)
    prepare.prepare("svhn", str(tmp_path), str(tmp_path / "mine"))
    assert built == {
        "name": "svhn_cropped",
        "data_dir": tmp_path,
        "file_format": "array_record",
        "manual": tmp_path / "mine",
    }


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepare.main(["svhn", f"--data_dir={tmp_path}"], build=builder(32))
    assert f"svhn is in {tmp_path / 'svhn_cropped' / '3.1.0'}" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        prepare.main(["digits", f"--data_dir={tmp_path}"])
    assert capsys.readouterr().err.startswith("error: digits isn't in TFDS")


def test_importing_the_package_imports_no_reader_and_help_needs_no_tensorflow() -> None:
    program = (
        "import runpy, sys, mimetic_jax.data\n"
        "heavy = {'tensorflow', 'tensorflow_datasets', 'sklearn', 'PIL', 'cv2'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "sys.modules.update(tensorflow=None, tensorflow_datasets=None)\n"
        "sys.argv = ['prepare', '--help']\n"
        "runpy.run_module('mimetic_jax.data.prepare', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for word in ("imagenet2012", "--data_dir", "--manual_dir"):
        assert word in done.stdout
