"""The learning rate of each arm: a trial trains an arm at several rates, and the best one is kept.

The trial is a comparison of its own, in WORKDIR/rates. Its arms are named ARM-RATE; its seed is not
compared later. Images are tested on a part of the training images, texts on the validation text:
the test data chooses nothing. The chosen rates stand in the config.json of the workdir.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from mimetic_jax.base.errors import InputError
from mimetic_jax.train.config import ALONE
from mimetic_jax.train.record import SCORES, Record
from mimetic_jax.train.schema import Config
from mimetic_jax.train.store.files import AnyPath
from mimetic_jax.train.store.runs import Run

FOLDER = "rates"
"""Of the trial, in a workdir."""

_FIRST_SEED = 100
_HELD_OUT = 0.2


def tries(config: ConfigDict) -> int:
    """How many rates an arm tries; none if there is one rate for all."""
    return len(config.rates) if len(config.rates) > 1 else 0


def known(config: ConfigDict, recorded: Mapping[str, Any]) -> dict[str, float]:
    """The rate of each arm that sets one itself, or has one in the configuration of a workdir."""
    found: dict[str, float] = {}
    for arm in _arms(config):
        for arms in (config.arms, recorded.get("arms", {})):
            if (rate := arms.get(arm, {}).get("optimizer", {}).get("learning_rate")) is not None:
                found.setdefault(arm, rate)
    if len(config.rates) == 1:
        return dict.fromkeys(_arms(config), config.rates[0]) | found
    return found


def undecided(config: ConfigDict, recorded: Mapping[str, Any]) -> list[str]:
    """The arms whose rate isn't known, which need a trial."""
    rates = known(config, recorded)
    return [arm for arm in _arms(config) if arm not in rates]


def trial(config: ConfigDict, arms: Iterable[str]) -> ConfigDict:
    """The configuration of the trial: each of the arms at each rate, with one seed."""
    if config.data.get("held_out"):
        raise InputError(
            f"data.held_out {config.data.held_out} leaves no images to choose learning rates on: "
            "give one rate, such as --rates=1e-3"
        )
    found = config.copy_and_resolve_references()
    found.update(rates=(), seeds=(_seed(config),))
    if config.task == "images":
        found.data.held_out = _HELD_OUT
    found.arms = Config()
    for arm, rate in itertools.product(arms, config.rates):
        found.arms[_name(arm, rate)] = _at(config.arms.get(arm, {}), rate)
    return found


def choose(config: ConfigDict, arm: str, folder: AnyPath) -> float:
    """The best rate of an arm, by the finished runs of the trial; of equal ones the lowest."""
    tried = {
        rate: goodness(record)
        for rate in sorted(config.rates)
        if (record := Run.of(folder, _name(arm, rate), _seed(config)).record())
    }
    if not tried:
        raise InputError(
            f"arm {arm} has no learning rate in {folder.parent}: none of {_listed(config.rates)} "
            "was trained to its end"
        )
    return max(tried, key=lambda rate: tried[rate])


def chosen(config: ConfigDict, rates: Mapping[str, float]) -> ConfigDict:
    """The configuration with the rate of each arm."""
    found = config.copy_and_resolve_references()
    found.rates = ()
    if not config.arms:
        found.optimizer.learning_rate = rates[ALONE]
    for arm, overrides in config.arms.items():
        found.arms[arm] = _at(overrides, rates[arm])
    return found


def about_trial(config: ConfigDict, arms: int) -> str:
    """What the trial will do, in a line."""
    on = {"images": ", tested on a fifth of the training images"}.get(config.task, "")
    return (
        f"each of {arms} arms tries the learning rates {_listed(config.rates)} with one seed{on}: "
        f"{arms * len(config.rates)} runs first; --rates=RATE,... tries others, one rate none"
    )


def about_chosen(config: ConfigDict, rates: Mapping[str, float]) -> str:
    """Which rates were chosen, in a line; those at an end of what was tried may not be the best."""
    ends = {min(config.rates): "lowest", max(config.rates): "highest"}
    parts = [
        f"{arm} {_shown(rate)}" + (f" (the {ends[rate]} that was tried)" if rate in ends else "")
        for arm, rate in rates.items()
    ]
    return f"learning rates: {', '.join(parts)}"


def _arms(config: ConfigDict) -> Sequence[str]:
    return list(config.arms) or [ALONE]


def _seed(config: ConfigDict) -> int:
    """The seed of the trial, which no run of the comparison has."""
    return next(seed for seed in itertools.count(_FIRST_SEED) if seed not in config.seeds)


def _name(arm: str, rate: float) -> str:
    return f"{arm}-{_shown(rate)}".replace(".", "_")  # a ConfigDict takes no dots


def _shown(rate: float) -> str:
    """A rate as people write it.

    >>> _shown(0.0003), _shown(0.0025)
    ('3e-4', '2.5e-3')
    """
    return np.format_float_scientific(rate, trim="-", exp_digits=1)


def _listed(rates: Iterable[float]) -> str:
    return ", ".join(map(_shown, rates))


def _at(overrides: Mapping[str, Any], rate: float) -> ConfigDict:
    """The overrides of an arm with another rate."""
    optimizer = {**overrides.get("optimizer", {}), "learning_rate": rate}
    return Config({**overrides, "optimizer": optimizer})


def goodness(run: Record) -> float:
    """More is better; of a text the loss on the validation text counts."""
    score = SCORES[run.score]
    if score.chosen_by:
        return -float(run.loss if run.loss is not None else np.inf)
    return run.value if score.higher else -run.value
