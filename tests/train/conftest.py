"""A finished run that many tests read or copy, and a small language model."""

import shutil

import numpy as np
import pytest

from configs.default import default
from mimetic_jax.schemes import mimetic_language
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


WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "an", "old", "dog", "run", "by"]


@pytest.fixture(scope="session")
def words(tmp_path_factory):
    """Small files in the form of the Penn Treebank, of sentences with some order in them."""
    root = tmp_path_factory.mktemp("text")
    random = np.random.default_rng(0)
    for split, lines in (("train", 200), ("valid", 23), ("test", 31)):
        starts = random.integers(0, len(WORDS), lines)
        sentences = [" ".join(WORDS[(s + i) % len(WORDS)] for i in range(6)) for s in starts]
        (root / f"ptb.{split}.txt").write_text("".join(f" {line} \n" for line in sentences))
    return root


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
