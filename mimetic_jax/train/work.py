"""What a comparison has to train, in units of runs that train at once, and what is finished of it.

Each run has a folder. The members of a population are runs too, but share their files: a unit of
them is a chunk.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
from ml_collections import ConfigDict

from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.base.version import source_version
from mimetic_jax.data.feed.feed import Feed
from mimetic_jax.train.arm import Arm
from mimetic_jax.train.chunk import ChunkJournal, chosen_size, lanes_of
from mimetic_jax.train.cluster.processes import agreed, is_first
from mimetic_jax.train.config import to_json
from mimetic_jax.train.journal import Journal, RunJournal
from mimetic_jax.train.progress import Say
from mimetic_jax.train.record import Record
from mimetic_jax.train.start import initial_state, source_digest
from mimetic_jax.train.store.checkpoint import saved_record
from mimetic_jax.train.store.chunks import Choice, Members
from mimetic_jax.train.store.claim import Made
from mimetic_jax.train.store.lock import locked
from mimetic_jax.train.store.places import Place
from mimetic_jax.train.store.runs import Run


@dataclasses.dataclass(frozen=True)
class Unit:
    """Runs that train at once.

    Attributes:
        runs: their arms and seeds.
        arm: the first one's; all share its program and data.
        label: its name in messages.
    """

    runs: tuple[tuple[str, int], ...]
    arm: Arm
    label: str


class Work(abc.ABC):
    """The runs of a comparison in a workdir.

    Args:
        config: of the comparison.
        arms: by name.
        workdir: of the comparison.
        say: prints a line.
        only: "ARM" or "ARM/SEED" for these runs alone.

    Raises:
        InputError: there is no such run.
    """

    def __init__(
        self, config: ConfigDict, arms: dict[str, Arm], workdir: Place, say: Say, only: str = ""
    ) -> None:
        self.config, self.arms, self.workdir, self.say = config, arms, workdir, say
        every = [(arm, seed) for seed in self.seeds for arm in arms]
        names = {"": every, **{arm: [run for run in every if run[0] == arm] for arm in arms}}
        if not config.members:
            names |= {f"{arm}/{seed}": [(arm, seed)] for arm, seed in every}
        if only not in names:
            raise unknown("run", only, filter(None, names), "--mode=plan")
        self.chosen = names[only]

    @property
    @abc.abstractmethod
    def seeds(self) -> Sequence[int]:
        """Of each arm."""

    @abc.abstractmethod
    def units(self) -> Iterator[Unit]:
        """The units that aren't finished, in order."""

    @abc.abstractmethod
    def unfinished(self) -> set[tuple[str, int]]:
        """Arms and seeds of the runs that aren't finished."""

    @abc.abstractmethod
    def files(self, arm: str, seed: int) -> dict[str, Place]:
        """The paths of a run's files; see `report.Results`."""

    @abc.abstractmethod
    def runs(self) -> list[Run]:
        """The folders of the runs, which keep checkpoints after they finished."""

    @abc.abstractmethod
    def configs(self) -> Iterator[tuple[str, str, dict[str, Any] | None]]:
        """(arm, folder, configuration) of what was trained there, where config.json is missing.

        The configuration is None where no file has it.
        """

    @abc.abstractmethod
    def journals(
        self, unit: Unit, held: contextlib.ExitStack, say: Say
    ) -> tuple[list[Journal], list[int] | None]:
        """Lock the folders and open the journals; returns them, and lanes as `Group` takes them."""

    def made(self, arm: Arm, seed: int | None) -> Made:
        """What makes the checkpoints of a run, or of members."""
        config = arm.config
        return Made(
            code=source_version(),
            config=to_json(config),
            data=arm.source.fingerprint,
            source=None if seed is None else source_digest(config, arm.name, seed),
            arm=arm.name,
            seed=seed,
        )


class Runs(Work):
    """Runs with folders of their own, `WORKDIR/runs/ARM/SEED`."""

    @property
    def seeds(self) -> Sequence[int]:
        return tuple(self.config.seeds)

    def units(self) -> Iterator[Unit]:
        for group in self._groups(self._runs(self.chosen)):
            left = [run for run in group if not agreed(run.finished())]
            for run in group:
                if run not in left:
                    self.say(f"{self._label([run])}: finished before")
            if left:
                runs = tuple((run.arm, run.seed) for run in left)
                yield Unit(runs, self.arms[left[0].arm], self._label(left))

    def unfinished(self) -> set[tuple[str, int]]:
        return {(run.arm, run.seed) for run in self._runs(self.chosen) if not run.finished()}

    def files(self, arm: str, seed: int) -> dict[str, Place]:
        run = Run.of(self.workdir, arm, seed)
        return {"metrics": run.metrics.place, "checkpoints": run.checkpoints}

    def runs(self) -> list[Run]:
        """In the order of the table."""
        return self._runs([(arm, seed) for arm in self.arms for seed in self.seeds])

    def configs(self) -> Iterator[tuple[str, str, dict[str, Any] | None]]:
        for run in self.runs():
            if saved := saved_record(run.checkpoints):
                yield run.arm, str(run.folder), saved.get("made", {}).get("config")
            elif run.finished():
                yield run.arm, str(run.folder), None

    def journals(
        self, unit: Unit, held: contextlib.ExitStack, say: Say
    ) -> tuple[list[Journal], None]:
        found: list[Journal] = []
        for name, seed in unit.runs:
            run, arm = Run.of(self.workdir, name, seed), self.arms[name]
            note = say if len(unit.runs) == 1 else _prefixed(f"{run}: ", say)
            if is_first():
                held.enter_context(locked(run.folder, note))
            start = functools.partial(initial_state, arm.program, arm.config, name, seed, note)
            made = self.made(arm, seed)
            found.append(RunJournal(run, made, arm.config, arm.program, note, start))
            held.callback(found[-1].close)
        return found, None

    def _label(self, runs: Sequence[Run]) -> str:
        others = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
        number = self.chosen.index((runs[0].arm, runs[0].seed)) + 1
        return f"[{number}/{len(self.chosen)}] {runs[0]}{others}"

    def _runs(self, names: Iterable[tuple[str, int]]) -> list[Run]:
        return [Run.of(self.workdir, arm, seed) for arm, seed in names]

    def _groups(self, runs: Collection[Run]) -> list[list[Run]]:
        """Up to `together` runs of a program each, in order.

        Which runs train at once enters their numbers in the last bits. So after a stop the groups
        are the same, whatever has finished: only what finished members of a group leave behind,
        as where arms were added, is grouped anew.
        """
        if self.config.together == 1:
            return [[run] for run in runs]
        done = {run for run in runs if run.finished()}
        groups = self._by_program(runs)
        broken = [group for group in groups if done.intersection(group)]
        whole = [group for group in groups if not done.intersection(group)]
        rest = self._by_program(run for group in broken for run in group if run not in done)
        ended = [[run] for run in runs if run in done]
        position = list(runs).index
        return sorted([*ended, *whole, *rest], key=lambda group: position(group[0]))

    def _by_program(self, runs: Iterable[Run]) -> list[list[Run]]:
        """Lists of `together` runs of one program; the last ones of a program may be shorter."""
        lists: dict[Any, list[list[Run]]] = {}
        for run in runs:
            of = lists.setdefault(self.arms[run.arm].program, [])
            if not of or len(of[-1]) == self.config.together:
                of.append([])
            of[-1].append(run)
        return [group for of in lists.values() for group in of]


class Populations(Work):
    """Members of populations, `WORKDIR/population/ARM`: the runs of seeds 0 to members − 1."""

    @property
    def seeds(self) -> Sequence[int]:
        return range(self.config.members)

    def units(self) -> Iterator[Unit]:
        for arm in (self.arms[name] for name in dict.fromkeys(arm for arm, _ in self.chosen)):
            members = Members.of(self.workdir, arm.name)
            number = list(self.arms).index(arm.name) + 1
            while (first := members.trained) < self.config.members:
                seeds = range(first, min(first + self._size(arm), self.config.members))
                label = (
                    f"[{number}/{len(self.arms)}] {arm.name} members {first} to {seeds[-1]} of "
                    f"{self.config.members}"
                )
                yield Unit(tuple((arm.name, seed) for seed in seeds), arm, label)

    def unfinished(self) -> set[tuple[str, int]]:
        trained = {arm: Members.of(self.workdir, arm).trained for arm in self.arms}
        return {(arm, seed) for arm, seed in self.chosen if seed >= trained[arm]}

    def files(self, arm: str, seed: int) -> dict[str, Place]:
        return {"members": Members.of(self.workdir, arm).folder}

    def runs(self) -> list[Run]:
        raise InputError("a population keeps no runs to test: --mode=compare has its scores")

    def configs(self) -> Iterator[tuple[str, str, dict[str, Any] | None]]:
        for arm in self.arms:
            members = Members.of(self.workdir, arm)
            if choice := members.choice:
                yield arm, str(members.folder), choice.made.get("config")

    def journals(
        self, unit: Unit, held: contextlib.ExitStack, say: Say
    ) -> tuple[list[Journal], list[int]]:
        arm, seeds = unit.arm, [seed for _, seed in unit.runs]
        members = Members.of(self.workdir, arm.name)
        held.enter_context(locked(members.folder, say))
        lanes = lanes_of(seeds, arm.program)
        made = self.made(arm, None)
        journal = ChunkJournal(members, seeds, lanes, made, arm.config, arm.program, say)
        held.callback(journal.close)
        return [journal], lanes

    def _size(self, arm: Arm) -> int:
        """Members of a chunk: as those that are trained, else chosen by memory."""
        members, made = Members.of(self.workdir, arm.name), self.made(arm, None)
        if choice := members.choice:
            made.check(choice.made, str(members.folder), self.say)
            asked = arm.config.chunk
            if asked and choice.size != min(asked, arm.config.members):
                self.say(f"trained {choice.size} at a time, as those members that are trained")
            return choice.size
        with locked(members.folder, self.say):
            size = chosen_size(arm.config, arm.program, arm.data, self.say)
            members.choose(Choice(size, made.to_json()))
        return size


def work_of(
    config: ConfigDict, arms: dict[str, Arm], workdir: Place, say: Say, only: str = ""
) -> Work:
    """The runs of a comparison, or its populations; see `Work`."""
    return (Populations if config.members else Runs)(config, arms, workdir, say, only)


def finished_records(
    workdir: Place, config: Mapping[str, Any] | ConfigDict, arm: str
) -> dict[int, Record]:
    """The records of an arm's finished runs by seed.

    Args:
        workdir: of a comparison.
        config: its configuration, also as plain data.
        arm: the name.
    """
    if members := config.get("members"):
        return Members.of(workdir, arm).records(members)
    found = {seed: Run.of(workdir, arm, seed).record() for seed in config["seeds"]}
    return {seed: record for seed, record in found.items() if record}


def check_at_once(config: ConfigDict, feed: Feed, data: str) -> None:
    """Check that runs can train at once, where a configuration asks for it.

    Args:
        config: of an arm.
        feed: of its program.
        data: its name.

    Raises:
        InputError: if the data is streamed, or several processes train as one.
    """
    asked = {"members": config.members, "together": config.together - 1 and config.together}
    for field, runs in asked.items():
        if runs and not feed.resident:
            raise InputError(
                f"{field} {runs} needs data that is held on the devices: {data} is streamed"
            )
        if runs and (processes := jax.process_count()) > 1:
            raise InputError(f"{field} {runs} needs a single process, not {processes}")


def _prefixed(prefix: str, say: Say) -> Say:
    return lambda line: say(f"{prefix}{line}")
