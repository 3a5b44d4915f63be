"""A comparison small enough to train in a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ml_collections import ConfigDict

from mimetic_jax.schemes import Mimetic, SinCos
from mimetic_jax.train.config import default


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
