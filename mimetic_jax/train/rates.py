"""The learning rate of each arm: it climbs a ladder of rates by trials, and keeps its best.

A `Search` does this for a `Comparison` with `config.rates`, also for one that is a row of a table
(`launch`), and decides what is tried next. Trials are comparisons of their own in WORKDIR/rates:
their arms are named ARM-RATE, and their seeds are not compared later. Images are tested on a part
of the training images, texts on the validation text: the test data chooses nothing. The rates stand
in the config.json of the workdir.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from mimetic_jax.base.errors import InputError
from mimetic_jax.data import HELD_OUT
from mimetic_jax.train.config import ALONE
from mimetic_jax.train.record import SCORES, Record
from mimetic_jax.train.schema import Config
from mimetic_jax.train.store.claim import Claim
from mimetic_jax.train.store.files import AnyPath
from mimetic_jax.train.store.runs import Run

FOLDER = "rates"
"""Of the trials, in a workdir."""

HOW_TO_CHOOSE = "; --rates=RATE,... tries others, one rate none"
"""What a command line says after `describe_trials`."""

_FIRST_SEED = 100

Wanted = Mapping[float, Sequence[str]]
"""What to train next: arms by the rate that they try."""


class Choice(NamedTuple):
    """The rate that an arm chose; at an edge its best may be beyond what it tried."""

    rate: float
    is_edge: bool


@dataclasses.dataclass(frozen=True)
class Ladder:
    """Learning rates of which each arm takes its own best, by trials.

    An arm tries two or more rates first. As long as its best has a neighbor that it didn't try,
    that is next: until the best lies between two worse ones, or the ladder ends.

    Attributes:
        first: the rates to begin with, from low to high.
        trials: seeds of each rate, none of which is compared.
    """

    first: tuple[float, ...]
    trials: tuple[int, ...] = (_FIRST_SEED,)

    @functools.cached_property
    def rates(self) -> tuple[float, ...]:
        """The first rates, and two steps more beyond their ends, as far apart as they are.

        >>> Ladder((1e-3, 3e-3)).rates
        (0.00011, 0.00033, 0.001, 0.003, 0.009, 0.027)
        """
        low, high = self.first[0] / self.first[1], self.first[-1] / self.first[-2]
        below = (float(f"{self.first[0] * low**step:.2g}") for step in (2, 1))
        above = (float(f"{self.first[-1] * high**step:.2g}") for step in (1, 2))
        return (*below, *self.first, *above)

    def untried(self, goodness: Mapping[float, float]) -> list[float]:
        """List the rates to try next; none once the best lies between worse ones, or at an end.

        `goodness` has the rates that were tried: more is better, -inf diverged.

        >>> ladder = Ladder(first=(2e-3, 4e-3))
        >>> ladder.untried({2e-3: 3, 4e-3: 2})
        [0.001]
        >>> ladder.untried({1e-3: 2, 2e-3: 3, 4e-3: 2})
        []
        """
        best = self._best(goodness)
        wanted = self._beside(best) if best else self.first
        return [rate for rate in wanted if rate not in goodness]

    def choice(self, goodness: Mapping[float, float]) -> Choice | None:
        """Choose the best rate; None before the first ones are tried, or if all diverged."""
        best = self._best(goodness)
        if best is None or goodness[best] == -math.inf:
            return None
        beside = self._beside(best)
        return Choice(best, len(beside) < 2 or not goodness.keys() >= set(beside))

    def _best(self, goodness: Mapping[float, float]) -> float | None:
        """Best rate; ties go to the rate nearest the middle of the ladder, and if all diverged to
        the lowest."""
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


@dataclasses.dataclass(frozen=True)
class Search:
    """How arms find their learning rates: what they try next, and which they choose.

    Attributes:
        arms: those that search.
        records: the finished trials of an arm at a rate, by seed.
        known: the rates of arms that need no trial.
    """

    ladder: Ladder
    arms: Sequence[str]
    records: Callable[[str, float], Mapping[int, Record]]
    known: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, config: ConfigDict, workdir: AnyPath) -> Search:
        """Read the search of a configuration's arms in a workdir."""
        steps, claim, names = ladder(config), Claim.read(workdir), list(config.arms) or [ALONE]

        def records(arm: str, rate: float) -> Mapping[int, Record]:
            runs = (Run.of(workdir / FOLDER, trial_name(arm, rate), seed) for seed in steps.trials)
            return {run.seed: record for run in runs if (record := run.record())}

        known = known_rates(config)
        recorded = claim.config if claim else {}
        for arm, own in recorded.get("arms", {}).items():
            rate = own.get("optimizer", {}).get("learning_rate")
            if steps.first and arm in names and arm not in known:
                if rate not in steps.rates:
                    rate = rate or recorded["optimizer"]["learning_rate"]
                    raise InputError(
                        f"arm {arm} of workdir {workdir} was trained at the learning rate "
                        f"{format_rate(rate)}, which no search from {_listed(steps.first)} chose: "
                        "choose another --workdir, or leave out --rates"
                    )
                known[arm] = rate
        return cls(steps, [arm for arm in names if arm not in known], records, known)

    def tried(self, arm: str) -> dict[float, float]:
        """Average the trials of each rate that has all of them; more is better."""
        by_rate = {}
        for rate in self.ladder.rates:
            records = self.records(arm, rate)
            if records.keys() >= set(self.ladder.trials):
                by_rate[rate] = float(np.mean([goodness(records[x]) for x in self.ladder.trials]))
        return by_rate

    def climb(self) -> Iterator[Wanted]:
        """Yield what to train until each arm's best rate lies between two worse ones, or at an end.

        Train what is yielded before the next is asked for; it ends if nothing was trained.
        """
        before = None
        while (wanted := {arm: self.untried(arm) for arm in self.arms}) != before:
            rates = sorted(set().union(*wanted.values()))
            if not rates:
                return
            yield {rate: [arm for arm in self.arms if rate in wanted[arm]] for rate in rates}
            before = wanted

    def untried(self, arm: str) -> list[float]:
        """List the rates that an arm tries next; none once it has its best."""
        return self.ladder.untried(self.tried(arm))

    def choices(self) -> dict[str, Choice]:
        """Choose the best rate of each arm that has one."""
        choices = {arm: self.ladder.choice(self.tried(arm)) for arm in self.arms}
        return {arm: choice for arm, choice in choices.items() if choice}

    def missing(self, arm: str) -> str:
        """Describe why an arm has no rate."""
        tried = self.tried(arm)
        if missing := [rate for rate in self.ladder.first if rate not in tried]:
            return f"{_listed(missing)} wasn't trained to its end"
        return f"its loss was no longer finite at {_listed(tried)}; pass lower ones"


def goodness(run: Record) -> float:
    """Rank a trial, more is better: by its score, of a text by the validation loss; -inf diverged.

    >>> goodness(Record(arm="default", seed=100, score="accuracy", value=70.0))
    70.0
    """
    score = SCORES[run.score]
    if run.diverged or (score.chosen_by and run.loss is None):
        return -math.inf
    if score.chosen_by:
        return -float(run.loss)  # type: ignore[arg-type]
    return run.value if score.higher else -run.value


def ladder(config: ConfigDict) -> Ladder:
    """Return the ladder of a comparison, with a seed that it doesn't compare; if there is one rate
    for all, its arms try none first."""
    rates = tuple(sorted(set(config.rates)))
    first = 0 if config.data.get("per_seed") else _FIRST_SEED  # parts of images are few
    unused = next(seed for seed in itertools.count(first) if seed not in config.seeds)
    return Ladder(rates if len(rates) > 1 else (), (unused,))


def known_rates(config: ConfigDict) -> dict[str, float]:
    """Collect the rates of arms that search none: their own, or the only one of `config.rates`."""
    own = {name: arm.get("optimizer", {}).get("learning_rate") for name, arm in config.arms.items()}
    rates = {name: rate for name, rate in own.items() if rate is not None}
    if len(set(config.rates)) == 1:
        return dict.fromkeys(config.arms or [ALONE], config.rates[0]) | rates
    return rates


def searching(config: ConfigDict) -> list[str]:
    """List the arms that try several rates."""
    known = known_rates(config)
    every = config.arms or [ALONE]
    return [name for name in every if name not in known] if ladder(config).first else []


def trials(
    config: ConfigDict, search: Search | AnyPath, say: Callable[[str], None]
) -> Iterator[ConfigDict]:
    """Yield configurations of trials while arms need them; train each before the next is asked for.

    `search` is that of a workdir, if its folder is given.
    """
    found = search if isinstance(search, Search) else Search.of(config, search)
    line = describe_trials(found.ladder, len(found.arms), config.task)
    line += "" if found is search else HOW_TO_CHOOSE
    for number, wanted in enumerate(found.climb()):
        say(describe_beyond(wanted) if number else line)
        yield trial(config, wanted, found.ladder.trials)


def at_chosen(
    config: ConfigDict, search: Search | AnyPath, say: Callable[[str], None]
) -> ConfigDict:
    """Set the rate that each arm chose, as of `trials`.

    Raises:
        InputError: an arm hasn't chosen one.
    """
    found = search if isinstance(search, Search) else Search.of(config, search)
    choices = found.choices()
    for arm in found.arms:
        if arm not in choices:
            where = "" if found is search else f" in {search}"
            raise InputError(f"arm {arm} has no learning rate{where}: {found.missing(arm)}")
    if choices:
        say(describe_chosen(choices))
    of_arms = {arm: choice.rate for arm, choice in choices.items()}
    return at_rates(config, {**found.known, **of_arms})


def trial(config: ConfigDict, wanted: Wanted, seeds: Sequence[int]) -> ConfigDict:
    """Build the configuration of trials, of arms at the rates that they try."""
    if config.data.get("held_out"):
        raise InputError(
            f"data.held_out {config.data.held_out} leaves no images to choose learning rates on: "
            "pass one rate, such as --rates=1e-3"
        )
    ours = config.copy_and_resolve_references()
    ours.update(rates=(), seeds=tuple(seeds))
    if config.task == "images":
        ours.data.held_out = HELD_OUT
    ours.arms = Config()
    for rate, arms in wanted.items():
        for arm in arms:
            ours.arms[trial_name(arm, rate)] = _at(config.arms.get(arm, {}), rate)
    return ours


def at_rates(config: ConfigDict, rates: Mapping[str, float]) -> ConfigDict:
    """Set the rate of each arm."""
    ours = config.copy_and_resolve_references()
    ours.rates = ()
    if not config.arms:
        ours.optimizer.learning_rate = rates[ALONE]
    for arm, overrides in config.arms.items():
        ours.arms[arm] = _at(overrides, rates[arm])
    return ours


def describe_trials(ladder: Ladder, arms: int, task: str) -> str:
    """Describe what the trials of so many arms will do."""
    on = ""
    if task == "images":
        on = ", tested on a held-out fifth of the training images"
    several, tries = len(ladder.trials) > 1, ladder.first
    return (
        f"{'the arm' if arms == 1 else f'each of {arms} arms'} tries the learning rates "
        f"{_listed(tries)} with seed{'s' * several} {', '.join(map(str, ladder.trials))}, which "
        f"{'are' if several else 'is'} not compared{on}: {arms * len(tries) * len(ladder.trials)} "
        "trials first, and more for an arm whose best is at an end"
    )


def describe_trial(run: Run, rate: float) -> str:
    """Describe which trial a run is."""
    arm = run.arm.removesuffix(trial_name("", rate))
    return f"learning rate {format_rate(rate)} of arm {arm}, seed {run.seed}"


def describe_beyond(wanted: Wanted) -> str:
    """Describe which arms go on."""
    parts = (f"{arm} {format_rate(rate)}" for rate, arms in wanted.items() for arm in arms)
    return f"learning rates beyond those, for arms whose best was at an end: {', '.join(parts)}"


def describe_chosen(choices: Mapping[str, Choice]) -> str:
    """Describe which rates were chosen; those at an end of what was tried may not be the best."""
    parts = []
    for arm, choice in choices.items():
        end = " (at an end of those that it tried)" if choice.is_edge else ""
        parts.append(f"{arm} {format_rate(choice.rate)}{end}")
    return f"learning rates: {', '.join(parts)}"


def format_rate(rate: float) -> str:
    """Write a learning rate as people do.

    >>> format_rate(0.016), format_rate(0.00025)
    ('1.6e-2', '2.5e-4')
    """
    digits, power = f"{rate:.6e}".split("e")
    return f"{float(digits):g}e{int(power)}"


def trial_name(arm: str, rate: float) -> str:
    """Name an arm at a rate that it tries.

    >>> trial_name("mimetic", 0.0015)
    'mimetic-1_5e-3'
    """
    return f"{arm}-{format_rate(rate)}".replace(".", "_")  # a ConfigDict takes no dots


def _listed(rates: Iterable[float]) -> str:
    return ", ".join(map(format_rate, rates))


def _at(overrides: Mapping[str, Any], rate: float) -> ConfigDict:
    """Set another rate among the overrides of an arm."""
    optimizer = {**overrides.get("optimizer", {}), "learning_rate": rate}
    return Config({**overrides, "optimizer": optimizer})
