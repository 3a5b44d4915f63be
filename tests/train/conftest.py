"""A finished run that many tests read or copy, and a small language model."""

import shutil

import pytest

from configs.default import default
from mimetic_jax.schemes import mimetic_language
from tests.training import trained
from tests.words import penn_treebank


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


@pytest.fixture(scope="session")
def words(tmp_path_factory):
    return penn_treebank(tmp_path_factory.mktemp("text"))


@pytest.fixture
def text(words):
    def config(**overrides):
        config = default("text")
        config.name, config.data.name, config.data.dir = "text", "ptb_word", str(words)
        config.batch, config.steps, config.max_dispatch = 4, 12, 4
        config.data.length, config.data.valid = 12, 8
        config.model.update(width=18, depth=1, heads=2)
        config.optimizer.update(clip=1.0, warmup=2, weight_decay=0.0, learning_rate=1e-2)
        config.eval.batch, config.eval.every = 4, 4
        config.log_every, config.checkpoint_every = 2, 4
        config.scheme = (mimetic_language(),)
        config.update_from_flattened_dict(overrides)
        return config

    return config
