"""The state before a run's first step: the model's own draw, weights of `init_from`, the scheme."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp

from mimetic_jax.base.version import source_version
from mimetic_jax.rules import paths
from mimetic_jax.train.arm import Arm
from mimetic_jax.train.config import to_json
from mimetic_jax.train.state import TrainState
from mimetic_jax.train.store.claim import Provenance


def initial_state(arm: Arm, seed: int, say: Callable[[str], None]) -> TrainState:
    """Draw the state before the first step of a run."""
    variables, config = arm.program.draw(seed), arm.config
    if arm.pretrained:
        arrays = arm.pretrained.arrays_for(variables, say, config.init_parts)
        named, treedef = paths.flatten(variables)
        leaves = [
            jax.device_put(jnp.asarray(arrays[name], leaf.dtype), leaf.sharding)
            if name in arrays
            else leaf
            for name, leaf in named
        ]
        variables = jax.tree.unflatten(treedef, leaves)
    began = time.perf_counter()
    statistics = arm.program.task.data_statistics(
        config.scheme, functools.partial(arm.source.of_seed, seed)
    )
    if statistics and (seconds := time.perf_counter() - began) >= 0.1:
        say(f"{' and '.join(statistics)} of the training data in {seconds:.1f} s")
    return arm.program.initial_state(seed, config.scheme, variables, **statistics)


def provenance_of(arm: Arm, seed: int) -> Provenance:
    """Describe what makes the checkpoints of a run."""
    return Provenance(
        code=source_version(),
        config=to_json(arm.config),
        data=arm.source.fingerprint,
        source=arm.pretrained.digest if arm.pretrained else None,
        arm=arm.name,
        seed=seed,
    )


def check_start(arm: Arm) -> list[str]:
    """Describe in lines what an arm's `init_from` gives it; raise InputError if it doesn't fit."""
    said: list[str] = []
    if arm.pretrained:
        arm.pretrained.arrays_for(arm.program.shapes.variables, said.append, arm.config.init_parts)
    return said
