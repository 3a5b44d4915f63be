"""A finished run that many tests read or copy."""

import shutil

import pytest

from tests.training import trained


@pytest.fixture(scope="session")
def finished(tiny, tmp_path_factory):
    """The workdir of `tiny()`, finished. Not to be written into."""
    workdir = tmp_path_factory.mktemp("finished") / "workdir"
    trained(tiny(), workdir)
    return workdir


@pytest.fixture
def workdir(finished, tmp_path):
    """A copy of it."""
    return shutil.copytree(finished, tmp_path / "workdir")
