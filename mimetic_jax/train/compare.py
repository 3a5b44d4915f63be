"""A comparison: arms × seeds in one workdir, continued wherever it stopped."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

import flax.linen as nn
import jax
from ml_collections import ConfigDict

from mimetic_jax import paths
from mimetic_jax.data import ImageDataset
from mimetic_jax.errors import InputError, blaming, unknown
from mimetic_jax.models import fields_of
from mimetic_jax.models.seam import left_out
from mimetic_jax.train import config as configs
from mimetic_jax.train import population, together
from mimetic_jax.train.books import Diverged
from mimetic_jax.train.cluster import preemption
from mimetic_jax.train.cluster.mesh import make_mesh, population_mesh
from mimetic_jax.train.cluster.processes import agreed, check_same, is_first, wait_for_all
from mimetic_jax.train.loop import train
from mimetic_jax.train.program import Program
from mimetic_jax.train.progress import Say, progress_of
from mimetic_jax.train.ranges import check_ranges
from mimetic_jax.train.report import ArmResult, summarize
from mimetic_jax.train.settings import check_settings
from mimetic_jax.train.state import TrainState
from mimetic_jax.train.tasks import task_module
from mimetic_jax.train.tasks.task import Score
from mimetic_jax.train.warm_start import check_source
from mimetic_jax.train.workdir.checkpoint import Checkpoints, newest_record
from mimetic_jax.train.workdir.documents import read_config
from mimetic_jax.train.workdir.members import MembersFolder
from mimetic_jax.train.workdir.paths import AnyPath, as_path, write_atomically
from mimetic_jax.train.workdir.runs import Run
from mimetic_jax.version import source_version


class Source:
    """The data that arms train on, described until it is loaded."""

    def __init__(self, task: ModuleType, config: ConfigDict, given: Any = None) -> None:
        self._task, self._config = task, config
        self._dataset = None if given is None else task.take(config, given)
        self.info = task.describe(config, self._dataset)

    def load(self) -> None:
        """Load the data set, unless it is loaded; from then on `info` has its own numbers."""
        if self._dataset is None:
            self._dataset = self._task.load(self._config)
            self.info = self._task.describe(self._config, self._dataset)

    @property
    def dataset(self) -> Any:
        """The data set, loaded once."""
        self.load()
        return self._dataset

    @functools.cached_property
    def fingerprint(self) -> str:
        """Differs where examples do."""
        return self.dataset.fingerprint()


@dataclasses.dataclass(frozen=True)
class Arm:
    """An arm of a comparison, with what it shares with others.

    Attributes:
        name: of the arm.
        config: of the comparison, with the arm's overrides.
        source: one object for all arms on the same data.
        program: one object for all arms that differ in schemes alone.
    """

    name: str
    config: ConfigDict
    source: Source
    program: Program

    @property
    def data(self) -> Any:
        """The arm's data where its program wants it."""
        return self.program.placed(self.source.dataset)


class Comparison:
    """The checked configuration of a comparison, with its arms.

    Everything is checked on construction, before anything is loaded or computed: the config of
    each arm, the model's shapes, and that each scheme finds what it writes. A data set that holds
    other numbers of examples than published is reported when it is loaded, and counts as it is.

    Attributes:
        arms: by name.

    Args:
        config: of the experiment.
        say: prints a line; by default to stdout, with a live line of progress on a terminal.
        data: an `ImageDataset` to train on, instead of the set that `config.data.name` names.
        model: a Linen module to train, instead of `config.model`: it is stored by the import path
            of its class and its fields, and `num_classes` comes from the data.
        devices: all of JAX's unless given; programs for others can be compiled only.

    Raises:
        InputError: one line that names what is wrong.
    """

    def __init__(
        self,
        config: ConfigDict,
        say: Say = print,
        *,
        data: ImageDataset | None = None,
        model: nn.Module | None = None,
        devices: Sequence[jax.Device] | None = None,
    ) -> None:
        check_settings()
        if data is not None or model is not None:
            config = _with_own(config, data, model)
        configs.check_finite(config)
        self.config = config
        self._devices = jax.devices() if devices is None else devices
        self._progress = progress_of(say if is_first() else lambda line: None)
        self.say: Say = self._progress.say
        self._task = task_module(config.task)
        self.arms: dict[str, Arm] = {}
        sources: dict[str, Source] = {}
        for name, arm in configs.arms(config).items():
            with blaming(f"arm {name}" if config.arms else ""):
                check_ranges(arm)  # before sizes are read, by which some of them divide
                if (arm.task, arm.data.name) != (config.task, config.data.name):
                    raise InputError("it trains on other data: arms of a comparison share them")
                key = _data_key(arm)
                if key not in sources:
                    sources[key] = Source(self._task, arm, data)
                self.arms[name] = self._arm(name, arm, sources[key])
        self._report_fields()
        self._report_rules()

    @property
    def info(self) -> Any:
        """What is known of the first arm's data."""
        return next(iter(self.arms.values())).source.info

    @property
    def score(self) -> Score:
        """The number that is compared."""
        return next(iter(self.arms.values())).program.task.score

    def train(self, workdir: AnyPath | str, only: str = "") -> str:
        """Train what isn't finished, arm by arm within a seed, and return the table.

        Up to `config.together` runs that share a program train at once.

        Args:
            workdir: of the comparison.
            only: "ARM/SEED" to train that run alone, as one of a cluster's jobs does.

        Raises:
            InputError: if data or workdir can't be used; or, after everything else and with the
                table printed, if runs diverged.
            Preempted: if the process was asked to stop; what was trained is saved.
        """
        workdir = as_path(workdir)
        if self.config.members and only:
            raise InputError(f"only={only}: the members of a population are trained together")
        runs = [] if self.config.members else self._runs(only)
        self.open()  # missing data is reported before the workdir is touched
        labels = {
            Run.of(workdir, arm, seed): f"[{number}/{len(runs)}] {arm} seed {seed}"
            for number, (arm, seed) in enumerate(runs, 1)
        }
        left = {run for run in labels if not run.finished()}
        for run in left:
            check_source(self.arms[run.arm].config, run.arm, run.seed)
        check_same(config=self._everywhere(), code=source_version(), data=self._data_read())
        if is_first():
            self.claim(workdir)
        wait_for_all("workdir")
        diverged: list[str] = []
        with preemption.listening():
            if self.config.members:
                self._train_populations(workdir)
            for group in self._groups(labels):
                if preemption.should_stop():
                    raise preemption.Preempted("stopped between two runs")
                if group := self._unfinished(group, labels):
                    left.difference_update(group)
                    waiting_steps = sum(self.arms[run.arm].program.steps for run in left)
                    diverged += self._train(group, labels, waiting_steps)
        if diverged:
            self.say(self.table(workdir))
            raise InputError(f"the loss of {', '.join(diverged)} is no longer finite: see above")
        return self.table(workdir)

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
        lists: dict[Program, list[list[Run]]] = {}
        for run in runs:
            of = lists.setdefault(self.arms[run.arm].program, [])
            if not of or len(of[-1]) == self.config.together:
                of.append([])
            of[-1].append(run)
        return [group for of in lists.values() for group in of]

    def _unfinished(self, group: Sequence[Run], labels: Mapping[Run, str]) -> list[Run]:
        """The runs of a group that nobody has finished by now; the others are reported."""
        left = [run for run in group if not agreed(run.finished())]
        for run in group:
            if run not in left:
                self.say(f"{labels[run]}: finished before")
        return left

    def _train(self, group: Sequence[Run], labels: Mapping[Run, str], waiting: int) -> list[str]:
        """Train runs at once; returns those whose loss ceased to be finite."""
        began = time.perf_counter()
        for run in group:
            self.say(f"{labels[run]}: starts")
        others = f" and {len(group) - 1} more" if len(group) > 1 else ""
        self._progress.prepare(f"{labels[group[0]]}{others}", waiting)
        stopped = []

        def diverged(run: Run, error: Diverged) -> None:
            self.say(f"{labels[run]}: {error}")
            stopped.append(run)

        try:
            self._run(group, lambda line: self.say(f"  {line}"), diverged)
        finally:
            self._progress.end()
        for run in group:
            if run not in stopped:
                self.say(f"{labels[run]}: done in {time.perf_counter() - began:.1f} s")
        return [f"{run.arm} seed {run.seed}" for run in stopped]

    def run(self, run: Run, say: Say) -> None:
        """Train one run, or continue it.

        Raises:
            Diverged: if the loss isn't finite.
            Preempted, InputError: as `loop.train`.
        """
        self._run([run], say, _raise)

    def _run(
        self, group: Sequence[Run], say: Say, diverged: Callable[[Run, Diverged], None]
    ) -> None:
        arm = self.arms[group[0].arm]
        runs = {run: self.arms[run.arm].config for run in group}
        train(
            runs,
            arm.program,
            arm.data,
            say,
            arm.source.fingerprint,
            diverged=diverged,
            progress=self._progress,
        )

    def _train_populations(self, workdir: AnyPath) -> None:
        for number, name in enumerate(self.arms, 1):
            self.say(f"[{number}/{len(self.arms)}] {name}, {self.config.members} members")
            later = list(self.arms.values())[number:]
            steps = self.config.members * sum(arm.program.steps for arm in later)
            self.population(workdir, name, steps)

    def population(self, workdir: AnyPath, name: str, waiting: int = 0) -> None:
        """Train the members of an arm, or continue; see `population.train`."""
        arm = self.arms[name]
        population.train(
            MembersFolder.of(workdir, name),
            arm.config,
            arm.program,
            arm.data,
            lambda line: self.say(f"  {line}"),
            arm.source.fingerprint,
            progress=self._progress,
            waiting=waiting,
        )

    def _runs(self, only: str) -> list[tuple[str, int]]:
        runs = [(arm, seed) for seed in self.config.seeds for arm in self.arms]
        if not only:
            return runs
        chosen = [(arm, seed) for arm, seed in runs if f"{arm}/{seed}" == only]
        if not chosen:
            raise unknown("run", only, [f"{arm}/{seed}" for arm, seed in runs])
        return chosen

    def table(self, workdir: AnyPath | str) -> str:
        """The table of what is finished so far."""
        workdir = as_path(workdir)
        self.recognize(workdir)
        if members := self.config.members:
            results = [
                ArmResult.of_members(MembersFolder.of(workdir, arm), arm, members, self.score)
                for arm in self.arms
            ]
        else:
            results = [
                ArmResult.read(workdir, arm, self.config.seeds, self.score) for arm in self.arms
            ]
        return summarize(workdir, results)

    def evaluate(self, workdir: AnyPath | str) -> str:
        """Test scores of every run's newest checkpoint, computed anew."""
        workdir = as_path(workdir)
        self.recognize(workdir)
        if self.config.members:
            raise InputError("a population keeps no runs to test: --mode=compare has its scores")
        self.open()
        lines = []
        for name, arm in self.arms.items():
            for seed in self.config.seeds:
                state = self.restored(Run.of(workdir, name, seed))
                if state is None:
                    lines.append(f"{name} seed {seed}: no checkpoint")
                    continue
                result = arm.program.test(state.variables, arm.data)
                lines.append(f"{name} seed {seed}, step {int(state.step)}: {result}")
        return "\n".join(lines)

    def restored(self, run: Run) -> TrainState | None:
        """The state of a run's newest whole checkpoint, if it has any."""
        directory, arm = run.directory / "checkpoints", self.arms[run.arm]
        if not directory.exists():
            return None
        checkpoints = Checkpoints(directory, arm.config.keep_checkpoints, self.say)
        try:
            found = checkpoints.restore(arm.program.shapes)
        finally:
            checkpoints.close()
        return found[0] if found else None

    def open(self) -> None:
        """Load the data of all arms; where its sizes aren't those published, build programs anew.

        Raises:
            InputError: if the data is missing, damaged or too small.
        """
        changed = []
        for source in {id(arm.source): arm.source for arm in self.arms.values()}.values():
            published = source.info
            source.load()
            if (info := source.info) != published:
                changed.append(source)
                self.say(
                    f"{info.name} holds {info.num_train:,} train and {info.num_test:,} test "
                    f"examples there, {published.num_train:,} and {published.num_test:,} expected"
                )
        if changed:
            before, self.arms = self.arms, {}
            for name, arm in before.items():
                with blaming(f"arm {name}" if self.config.arms else ""):
                    self.arms[name] = self._arm(name, arm.config, arm.source)

    def _everywhere(self) -> dict[str, Any]:
        """The config without the data directory, which other machines may have elsewhere."""
        record = configs.to_json(self.config)
        for part in (record, *record["arms"].values()):
            part.get("data", {}).pop("dir", None)
        return record

    def _data_read(self) -> list[str]:
        return [f"{arm.source.info} {arm.source.fingerprint}" for arm in self.arms.values()]

    def recognize(self, workdir: AnyPath) -> dict[str, Any]:
        """The record of a workdir of this config: its seeds and arms joined with those here.

        Raises:
            InputError: if it belongs to another config; more seeds and arms are welcome.
        """
        record, path = configs.to_json(self.config), workdir / "config.json"
        if not path.exists():
            self._recognize_runs(workdir)
        else:
            before = read_config(path)
            configs.check_same(f"workdir {workdir}", before, record)
            record["seeds"] = sorted({*before["seeds"], *record["seeds"]})
            record["arms"] = {**before["arms"], **record["arms"]}
        return record

    def _recognize_runs(self, workdir: AnyPath) -> None:
        """The same check by what runs and populations say of themselves: config.json is gone."""
        for name, arm in self.arms.items():
            record = configs.to_json(arm.config)
            if before := MembersFolder.of(workdir, name).config:
                configs.check_same(f"population {name} of workdir {workdir}", before, record)
            folder = workdir / "runs" / name
            for seed in self.config.seeds if folder.exists() else ():
                run = Run.of(workdir, name, seed)
                if saved := newest_record(run.directory / "checkpoints"):
                    configs.check_same(f"{run.directory}", saved["made"]["config"], record)
                elif run.finished():
                    raise InputError(
                        f"{run.directory} is finished, but neither {workdir}/config.json nor a "
                        "checkpoint has its config: restore it, or choose another --workdir"
                    )

    def claim(self, workdir: AnyPath) -> None:
        """Write this config into the workdir, unless it is there.

        Raises:
            InputError: as `recognize`, or if it can't be written.
        """
        record, path = self.recognize(workdir), workdir / "config.json"
        if path.exists() and read_config(path) == record:
            return
        try:
            workdir.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(record, indent=2) + "\n")
        except OSError as error:
            reason = error.strerror or error
            raise InputError(f"workdir {workdir} can't be written: {reason}") from error

    def _arm(self, name: str, config: ConfigDict, source: Source) -> Arm:
        """The arm, checked; it shares the program of an arm that differs in the scheme alone."""
        per_epoch = self._task.steps_per_epoch(config, source.info)
        # A batch of a population's member is on one device. The mesh says whether it can be made.
        tensor = 1 if config.members else min(config.mesh.tensor, len(self._devices))
        devices = 1 if config.members else len(self._devices) // tensor
        configs.check(config, per_epoch, devices)
        key = _program_key(config)
        twins = (arm.program for arm in self.arms.values() if _program_key(arm.config) == key)
        program = next(twins, None)
        if program is None:
            axes = config.mesh.data, config.mesh.fsdp, config.mesh.tensor
            if config.members:
                mesh = population_mesh(devices=self._devices)
            else:
                mesh = make_mesh(*axes, devices=self._devices)
            program = Program(config, source.info, mesh)
            if config.members and not program.feed.resident:
                raise InputError(
                    f"members {config.members}: a population takes data that the devices hold, "
                    f"and {source.info.name} is streamed"
                )
        together.check(self.config.together, program.feed, config.data.name)
        if config.scheme:
            program.plan(config.scheme)
        return Arm(name, config, source, program)

    def _report_fields(self) -> None:
        """Name the fields that were written for another model than `model.name`."""
        fields = {
            name: left_out(arm.config.model.name, [f for f in arm.config.model if f != "name"])
            for name, arm in self.arms.items()
        }
        reported: list[tuple[str, list[str]]] = []
        for name, strays in fields.items():
            model = self.arms[name].config.model.name
            if strays and (model, strays) not in reported:
                reported.append((model, strays))
                self.say(f"{model} has no field {', '.join(strays)}: left out of config.model")

    def _report_rules(self) -> None:
        """Name the optimizer's rules that fit no parameter, which a typo may have done."""
        reported = set()
        for arm in self.arms.values():
            names = [path for path, _ in paths.flatten(arm.program.shapes.params)[0]]
            for field in ("decay_rules", "rate_rules"):
                for expression, _ in arm.config.optimizer[field]:
                    line = f"optimizer.{field}: no parameter's path has {expression!r}"
                    if line not in reported and not any(re.search(expression, n) for n in names):
                        reported.add(line)
                        self.say(line)


def _with_own(config: ConfigDict, data: Any, model: nn.Module | None) -> ConfigDict:
    """The configuration with data and a model that are there already."""
    arms, config = config.arms, config.copy_and_resolve_references()
    config.arms = ConfigDict(arms.to_dict(), sort_keys=False)  # a copy sorts by default
    if data is not None:
        if config.task != "images":
            raise InputError(f"data of one's own is for task images, this is {config.task}")
        config.data.name = getattr(data, "name", "")
    if model is not None:
        config.model = ConfigDict(fields_of(model))
    return config


def _data_key(config: ConfigDict) -> str:
    """What a data set depends on."""
    record = configs.to_json(config)["data"]
    names = ("name", "dir", "size", "subset", "classes")
    return json.dumps({name: record.get(name) for name in names})


def _program_key(config: ConfigDict) -> str:
    """What a program depends on: all of the config but names, starts, seeds and cadences."""
    record = configs.to_json(config)
    sizes = ("members", "chunk", "together")
    starts = ("scheme", "init_from", "init_parts", "init_heads")
    for name in ("name", "seeds", "arms", "log_every", "checkpoint_every", *sizes, *starts):
        record.pop(name)
    return json.dumps(record, sort_keys=True)


def _raise(run: Run, error: Diverged) -> None:
    raise error
