"""A comparison small enough to train in a second."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ml_collections import ConfigDict

from configs.default import default
from mimetic_jax.schemes import Mimetic, SinCos


@pytest.fixture
def tiny() -> Callable[..., ConfigDict]:
    def config(**overrides: Any) -> ConfigDict:
        config = default()
        config.name = "tiny"
        config.batch, config.steps, config.max_dispatch = 32, 12, 4
        config.model.width, config.model.depth, config.model.heads = 16, 1, 2
        config.optimizer.clip = 1.0
        config.optimizer.warmup = 2
        config.data.augment.crop = 1
        config.eval.batch, config.eval.every = 72, 4
        config.log_every, config.checkpoint_every = 2, 4
        config.scheme = (SinCos(), Mimetic())
        config.update_from_flattened_dict(overrides)
        return config

    return config


@pytest.fixture
def full_disk() -> Callable[[int], contextlib.AbstractContextManager[None]]:
    """A disk that takes no file of more than so many bytes, while the block lasts."""

    @contextlib.contextmanager
    def limited(size: int) -> Iterator[None]:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limited
