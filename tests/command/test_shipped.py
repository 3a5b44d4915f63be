"""Configurations of the package, whatever else is called `configs`."""

import importlib
import sys

import pytest

from mimetic_jax.command import shipped

OWN = """from configs.default import default
from configs.mine import EPOCHS


def get_config():
    from configs import wide

    config = default()
    config.update(epochs=EPOCHS, batch=wide.BATCH)
    return config
"""


@pytest.fixture
def project(monkeypatch, tmp_path):
    """The folder of a project that has a package `configs`, which isn't imported."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "configs"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(shipped, "_PARTS", {})
    files = {"__init__": "NAME = 'theirs'", "mine": "EPOCHS = 7.0", "wide": "BATCH = 6", "own": OWN}
    (tmp_path / "configs").mkdir()
    for name, text in files.items():
        (tmp_path / "configs" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def of_configs():
    return {
        name: module for name, module in sys.modules.items() if name.partition(".")[0] == "configs"
    }


@pytest.mark.parametrize("imported", [True, False])
def test_a_package_of_that_name_is_neither_run_nor_hidden(project, imported):
    if imported:
        importlib.import_module("configs.mine")
    before = of_configs()
    assert len(before) == 2 * imported
    for _ in range(2):
        assert shipped.load("digits_vit:width=32").model.width == 32
        assert shipped.values_of("cifar10_vit", "width") == {"width": 192}
        assert of_configs() == before
    theirs = importlib.import_module("configs")
    assert (theirs.NAME, str(shipped.folder()) in sys.path) == ("theirs", False)


def test_a_module_of_that_name_is_not_run(project, monkeypatch):
    monkeypatch.syspath_prepend(project / "above")
    (project / "above").mkdir()
    (project / "above" / "configs.py").write_text("1 / 0")
    assert shipped.load("images").name == "images"
    with pytest.raises(ZeroDivisionError):
        importlib.import_module("configs")


def test_a_file_in_such_a_package_imports_our_parts_and_its_neighbors(project):
    config = shipped.load(str(project / "configs" / "own.py"))
    assert (config.epochs, config.batch, config.task) == (7.0, 6, "images")
    assert of_configs() == {}
