"""A finished run that many tests read or copy."""

import pathlib
import shutil
from collections.abc import Callable

import pytest
from ml_collections import ConfigDict

from tests.training import trained


@pytest.fixture(scope="session")
def finished(
    tiny: Callable[..., ConfigDict], tmp_path_factory: pytest.TempPathFactory
) -> pathlib.Path:
    """The workdir of `tiny()`, finished. Not to be written into."""
    workdir = tmp_path_factory.mktemp("finished") / "workdir"
    trained(tiny(), workdir)
    return workdir


@pytest.fixture
def workdir(finished: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """A copy of it."""
    return shutil.copytree(finished, tmp_path / "workdir")
