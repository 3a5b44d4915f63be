"""The learning rate of each arm: it climbs a ladder of rates by trials, and keeps its best.

One loop, `climb`, for the rows of tables (`launch`) and for a `Comparison` with `config.rates`,
whose trials are comparisons of their own in WORKDIR/rates: their arms are named ARM-RATE, and their
seed is not compared later. Images are tested on a part of the training images, texts on the
validation text: the test data chooses nothing. The rates stand in the config.json of the workdir.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from mimetic_jax.base.errors import InputError
from mimetic_jax.train.config import ALONE
from mimetic_jax.train.record import SCORES, Record
from mimetic_jax.train.schema import Config
from mimetic_jax.train.store.files import AnyPath
from mimetic_jax.train.store.runs import Run

FOLDER = "rates"
"""Of the trials, in a workdir."""

HELD_OUT = 0.2
"""The share of the training images on which trials are tested."""

_FIRST_SEED = 100

Wanted = Mapping[float, Sequence[str]]
"""What to train next: arms by the rate that they try."""


class Choice(NamedTuple):
    """The rate that an arm chose; at an edge its best may be beyond what it tried."""

    rate: float
    is_edge: bool


@dataclasses.dataclass(frozen=True)
class Ladder:
    """Learning rates from low to high, of which each arm takes its own best, by trials.

    An arm tries the rates that are `first`. As long as its best has a neighbor that it didn't try,
    that is next: until the best lies between two worse ones, or the ladder ends.

    Attributes:
        trials: seeds of each rate, none of which is compared.
    """

    rates: tuple[float, ...]
    first: tuple[float, ...]
    trials: tuple[int, ...] = tuple(range(100, 105))

    @classmethod
    def beyond(cls, first: Sequence[float], trials: tuple[int, ...]) -> Ladder:
        """Two or more rates first; beyond their ends two steps more, as far apart as they are.

        >>> Ladder.beyond((1e-3, 3e-3), (100,)).rates
        (0.00011, 0.00033, 0.001, 0.003, 0.009, 0.027)
        """
        low, high = first[0] / first[1], first[-1] / first[-2]
        below = (float(f"{first[0] * low**step:.2g}") for step in (2, 1))
        above = (float(f"{first[-1] * high**step:.2g}") for step in (1, 2))
        return cls((*below, *first, *above), tuple(first), trials)

    def untried(self, goodness: Mapping[float, float]) -> list[float]:
        """The rates to try next; none once the best lies between worse ones, or at an end.

        `goodness` has the rates that were tried: more is better, -inf diverged.

        >>> ladder = Ladder((1e-3, 2e-3, 4e-3, 8e-3), first=(2e-3, 4e-3))
        >>> ladder.untried({2e-3: 3, 4e-3: 2})
        [0.001]
        >>> ladder.untried({1e-3: 2, 2e-3: 3, 4e-3: 2})
        []
        """
        found = self._best(goodness)
        wanted = self._beside(found) if found else self.first
        return [rate for rate in wanted if rate not in goodness]

    def choice(self, goodness: Mapping[float, float]) -> Choice | None:
        """The best rate; None before the first ones are tried, or if all diverged."""
        best = self._best(goodness)
        if best is None or goodness[best] == -math.inf:
            return None
        beside = self._beside(best)
        return Choice(best, len(beside) < 2 or not goodness.keys() >= set(beside))

    def _best(self, goodness: Mapping[float, float]) -> float | None:
        """The best rate: of equal ones that next to the middle of the first; the lowest if all
        diverged."""
        if not goodness.keys() >= set(self.first):
            return None
        if max(goodness.values()) == -math.inf:
            return min(goodness)
        middle = sum(map(self.rates.index, self.first)) / len(self.first)
        return max(
            goodness, key=lambda rate: (goodness[rate], -abs(self.rates.index(rate) - middle))
        )

    def _beside(self, rate: float) -> Sequence[float]:
        at = self.rates.index(rate)
        return *self.rates[max(at - 1, 0) : at], *self.rates[at + 1 : at + 2]


def climb(
    ladder: Ladder, arms: Sequence[str], tried: Callable[[str], Mapping[float, float]]
) -> Iterator[Wanted]:
    """What to train until the best rate of each arm lies between two worse ones, or at an end.

    `tried` says how good an arm was at the rates that it tried. Train what is yielded before the
    next is asked for; it ends if nothing was trained.
    """
    before = None
    while (wanted := {arm: ladder.untried(tried(arm)) for arm in arms}) != before:
        rates = sorted(set().union(*wanted.values()))
        if not rates:
            return
        yield {rate: [arm for arm in arms if rate in wanted[arm]] for rate in rates}
        before = wanted


def goodness(run: Record) -> float:
    """More is better; of a text the loss on the validation text counts, and diverged is the worst.

    >>> goodness(Record(arm="default", seed=100, score="accuracy", value=70.0))
    70.0
    """
    score = SCORES[run.score]
    if run.diverged or (score.chosen_by and run.loss is None):
        return -math.inf
    if score.chosen_by:
        return -float(run.loss)  # type: ignore[arg-type]
    return run.value if score.higher else -run.value


def first(config: ConfigDict) -> list[float]:
    """The rates that each arm of a comparison tries first; none if there is one rate for all."""
    rates = sorted(set(config.rates))
    return rates if len(rates) > 1 else []


def ladder(config: ConfigDict) -> Ladder:
    """The ladder of a comparison whose arms choose their rates; its seed is none of theirs."""
    unused = next(seed for seed in itertools.count(_FIRST_SEED) if seed not in config.seeds)
    return Ladder.beyond(first(config), (unused,))


def known(config: ConfigDict, recorded: Mapping[str, Any]) -> dict[str, float]:
    """The rate of each arm that sets one itself, or has one in the configuration of a workdir."""
    rates: dict[str, float] = {}
    for arm in _arms(config):
        for arms in (config.arms, recorded.get("arms", {})):
            if (rate := arms.get(arm, {}).get("optimizer", {}).get("learning_rate")) is not None:
                rates.setdefault(arm, rate)
    if config.rates and not first(config):
        return dict.fromkeys(_arms(config), config.rates[0]) | rates
    return rates


def undecided(config: ConfigDict, recorded: Mapping[str, Any]) -> list[str]:
    """The arms whose rate isn't known, which need a trial."""
    rates = known(config, recorded)
    return [arm for arm in _arms(config) if arm not in rates]


def trial(config: ConfigDict, wanted: Wanted) -> ConfigDict:
    """The configuration of a trial, of arms at the rates that they try."""
    if config.data.get("held_out"):
        raise InputError(
            f"data.held_out {config.data.held_out} leaves no images to choose learning rates on: "
            "give one rate, such as --rates=1e-3"
        )
    ours = config.copy_and_resolve_references()
    ours.update(rates=(), seeds=ladder(config).trials)
    if config.task == "images":
        ours.data.held_out = HELD_OUT
    ours.arms = Config()
    for rate, arms in wanted.items():
        for arm in arms:
            ours.arms[_name(arm, rate)] = _at(config.arms.get(arm, {}), rate)
    return ours


def tried(config: ConfigDict, folder: AnyPath, arm: str) -> dict[float, float]:
    """How good an arm was at each rate of which its trial is finished."""
    reached = {}
    for rate in ladder(config).rates:
        if record := Run.of(folder, _name(arm, rate), *ladder(config).trials).record():
            reached[rate] = goodness(record)
    return reached


def choose(config: ConfigDict, folder: AnyPath, arm: str) -> Choice:
    """The best rate of an arm, by the finished runs of its trials."""
    reached = tried(config, folder, arm)
    if choice := ladder(config).choice(reached):
        return choice
    if not (missing := [rate for rate in first(config) if rate not in reached]):
        raise InputError(
            f"arm {arm} has no learning rate in {folder.parent}: its loss was no longer finite at "
            f"{_listed(reached)}; give lower ones, --rates=RATE,..."
        )
    raise InputError(
        f"arm {arm} has no learning rate in {folder.parent}: {_listed(missing)} wasn't trained to "
        "its end"
    )


def chosen(config: ConfigDict, rates: Mapping[str, float]) -> ConfigDict:
    """The configuration with the rate of each arm."""
    ours = config.copy_and_resolve_references()
    ours.rates = ()
    if not config.arms:
        ours.optimizer.learning_rate = rates[ALONE]
    for arm, overrides in config.arms.items():
        ours.arms[arm] = _at(overrides, rates[arm])
    return ours


def about_trials(config: ConfigDict, arms: int) -> str:
    """What the trials will do, in a line."""
    on = {"images": ", tested on a fifth of the training images"}.get(config.task, "")
    who, tries = "the arm" if arms == 1 else f"each of {arms} arms", first(config)
    return (
        f"{who} tries the learning rates {_listed(tries)} with one seed{on}: "
        f"{arms * len(tries)} runs first, and more for an arm whose best is at an end; "
        "--rates=RATE,... tries others, one rate none"
    )


def about_beyond(wanted: Wanted) -> str:
    """Which arms go on, in a line."""
    parts = (f"{arm} {shown(rate)}" for rate, arms in wanted.items() for arm in arms)
    return f"learning rates beyond those, for arms whose best was at an end: {', '.join(parts)}"


def about_chosen(choices: Mapping[str, Choice]) -> str:
    """Which rates were chosen, in a line; those at an end of what was tried may not be the best."""
    parts = []
    for arm, choice in choices.items():
        end = " (at an end of those that it tried)" if choice.is_edge else ""
        parts.append(f"{arm} {shown(choice.rate)}{end}")
    return f"learning rates: {', '.join(parts)}"


def shown(rate: float) -> str:
    """A learning rate as people write it.

    >>> shown(0.016), shown(0.00025)
    ('1.6e-2', '2.5e-4')
    """
    digits, power = f"{rate:.6e}".split("e")
    return f"{float(digits):g}e{int(power)}"


def _arms(config: ConfigDict) -> Sequence[str]:
    return list(config.arms) or [ALONE]


def _name(arm: str, rate: float) -> str:
    return f"{arm}-{shown(rate)}".replace(".", "_")  # a ConfigDict takes no dots


def _listed(rates: Iterable[float]) -> str:
    return ", ".join(map(shown, rates))


def _at(overrides: Mapping[str, Any], rate: float) -> ConfigDict:
    """The overrides of an arm with another rate."""
    optimizer = {**overrides.get("optimizer", {}), "learning_rate": rate}
    return Config({**overrides, "optimizer": optimizer})
