"""A comparison: arms × seeds in one workdir, continued wherever it stopped."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from mimetic_jax.base.errors import InputError, blaming
from mimetic_jax.base.version import source_version
from mimetic_jax.data import OWN_SIDES, ImageDataset
from mimetic_jax.data.feed.feed import Feed
from mimetic_jax.models import fields_of
from mimetic_jax.models.model import foreign_fields
from mimetic_jax.rules import paths
from mimetic_jax.train import config as configs
from mimetic_jax.train import rates
from mimetic_jax.train.arm import Arm, ArmData
from mimetic_jax.train.cluster import preemption
from mimetic_jax.train.cluster.mesh import make_mesh
from mimetic_jax.train.cluster.processes import (
    agreed,
    check_processes_agree,
    is_first,
    wait_for_all,
)
from mimetic_jax.train.group import Group, Say, restored
from mimetic_jax.train.journal import OnMetrics
from mimetic_jax.train.loop import train
from mimetic_jax.train.program import Program
from mimetic_jax.train.rates import Search
from mimetic_jax.train.record import ACCURACY
from mimetic_jax.train.report import Results
from mimetic_jax.train.schema import Config, affecting, check_declared
from mimetic_jax.train.settings import check_settings
from mimetic_jax.train.start import check_start, source_digest
from mimetic_jax.train.state import TrainState
from mimetic_jax.train.statistics import visible
from mimetic_jax.train.store import files
from mimetic_jax.train.store.claim import Claim
from mimetic_jax.train.store.files import AnyPath, in_turn, locked, path_of
from mimetic_jax.train.store.runs import Run, write_group
from mimetic_jax.train.tasks import TASKS


class Comparison:
    """The checked configuration of a comparison, with its arms.

    Everything is checked on construction, before anything is loaded or computed: the config of
    each arm, the model's shapes, and that each scheme finds what it writes. A data set that holds
    other numbers of examples than published is reported when it is loaded, and counts as it is.

    Attributes:
        arms: the arms by name.
        tolerate_divergence: as given.

    Args:
        config: the experiment's configuration.
        say: prints a line; by default to stdout.
        data: an `ImageDataset` to train on, instead of the set that `config.data.name` names.
        model: a model to train instead of `config.model`: a Linen module; a class of Linen or NNX
            modules, or `functools.partial(Class, width=96)`. It is stored by its import path and
            its fields, and `num_classes` comes from the data.
        devices: all of JAX's unless given; programs for others can be compiled only.
        on_metrics: called with a run (its `arm`, `seed` and `folder`) and each line of its
            metrics.jsonl, a mapping with "step", every `log_every` steps and with every test; by
            process 0 alone. TensorBoard, wandb or a bar of progress draw it.
        tolerate_divergence: whether it is a trial, which chooses learning rates: divergence then
            counts as the worst score, not as an error.

    Raises:
        InputError: one line that names what is wrong.
    """

    def __init__(
        self,
        config: ConfigDict,
        say: Say = print,
        *,
        data: ImageDataset | None = None,
        model: Any = None,
        devices: Sequence[jax.Device] | None = None,
        on_metrics: OnMetrics | None = None,
        tolerate_divergence: bool = False,
        _shared: tuple[dict[str, ArmData], dict[tuple[str, Any], Program]] | None = None,
    ) -> None:
        self._on_metrics, self._given = on_metrics, data
        self.tolerate_divergence = tolerate_divergence
        check_settings()
        if not isinstance(config, ConfigDict):
            raise InputError(
                f"the config is a {type(config).__name__}, not a ConfigDict: start from "
                "mimetic_jax.command.shipped.load('images') or from that of a config file"
            )
        if data is not None or model is not None:
            config = _with_own(config, data, model)
        self.config = config
        self._devices = jax.devices() if devices is None else devices
        self.say: Say = say if is_first() else lambda line: None
        self.arms: dict[str, Arm] = {}
        self._sources, self._programs = _shared or ({}, {})  # by what they depend on
        arms = configs.arms_of(config)
        alike = len({_key(arm, "data") for arm in arms.values()}) == 1
        for name, arm in arms.items():
            blamed = f"arm {name}" if config.arms else ""
            with blaming(blamed):
                check_declared(arm)
                if (arm.task, arm.data.name) != (config.task, config.data.name):
                    raise InputError(
                        "all arms of a comparison must use the same data, but this one sets "
                        f"data.name to {arm.data.name}"
                    )
            with blaming("" if alike else blamed):
                if (key := _key(arm, "data")) not in self._sources:
                    self._sources[key] = ArmData(arm, data)
            with blaming(blamed):
                self.arms[name] = self._arm(name, arm, self._sources[key])
        for line in dict.fromkeys(self._without_effect()):
            self.say(line)

    @property
    def info(self) -> Any:
        """What is known of the first arm's data."""
        return next(iter(self.arms.values())).source.info

    def shows(self) -> str:
        """Which gains the runs can show, as far as their number and the test images tell."""
        score = next(iter(self.arms.values())).program.task.score
        tests = self.info.num_test if score is ACCURACY else 0
        return visible(score, None, len(self.config.seeds), len(self.arms), tests)

    def train(self, workdir: AnyPath | str) -> Results:
        """Train what isn't finished, arm by arm within a seed.

        Up to `config.together` runs that share a program train at once, as a group. A group that
        was stopped continues as it was; arms and seeds that join later make groups of their own.
        With `config.rates` each arm chooses its learning rate first (`train.rates`).

        Args:
            workdir: the comparison's folder.

        Returns:
            What is finished in the workdir: it prints as the table.

        Raises:
            InputError: if data or workdir can't be used; or, after everything else and with the
                table printed, if runs diverged.
            Preempted: if the process was asked to stop; what was trained is saved.
        """
        if self.config.rates:
            for stage, folder in self.stages(workdir):
                results = stage.train(folder)
            return results
        runs = self.claim_runs(workdir)
        if not self.tolerate_divergence and (gains := self.shows()):
            self.say(gains)
        with preemption.listening():
            diverged = self.train_all(runs)
        if diverged and not self.tolerate_divergence:
            self.say(str(self.table(workdir)))
            raise InputError(f"the loss of {', '.join(diverged)} is no longer finite: see above")
        return self.table(workdir)

    def stages(
        self, workdir: AnyPath | str, search: Search | None = None
    ) -> Iterator[tuple[Comparison, AnyPath]]:
        """What `train` trains, with its folder: trials while `config.rates` need them, then arms.

        Train each before the next is asked for. `search` is that of the workdir, unless given.
        """
        workdir = path_of(workdir)
        if self.config.rates:
            ours = search or Search.of(self.config, workdir)
            about = rates.about_trials(ours.ladder, len(ours.arms), self.config.task)
            about += "" if search else rates.HOW_TO_CHOOSE
            for number, wanted in enumerate(ours.climb()):
                self.say(rates.about_beyond(wanted) if number else about)
                config = rates.trial(self.config, wanted, ours.ladder.trials)
                yield self.alike(config, tolerate_divergence=True), workdir / rates.FOLDER
        yield self.at_own_rates(workdir, search), workdir

    def at_own_rates(self, workdir: AnyPath | str, search: Search | None = None) -> Comparison:
        """This comparison with the rates that its arms chose in a workdir, or by a `search`.

        Raises:
            InputError: an arm hasn't chosen one.
        """
        if not self.config.rates:
            return self
        search = search or Search.of(self.config, path_of(workdir))
        choices = search.choices()
        for arm in search.arms:
            if arm not in choices:
                raise InputError(
                    f"arm {arm} has no learning rate in {workdir}: {search.missing(arm)}"
                )
        if choices:
            self.say(rates.about_chosen(choices))
        of_arms = {arm: choice.rate for arm, choice in choices.items()}
        return self.alike(rates.at_rates(self.config, {**search.known, **of_arms}))

    def alike(self, config: ConfigDict, *, tolerate_divergence: bool = False) -> Comparison:
        """A comparison of another configuration, on the same data and devices, which shares what is
        loaded and compiled."""
        return Comparison(
            config,
            self.say,
            data=self._given,
            devices=self._devices,
            on_metrics=self._on_metrics,
            tolerate_divergence=tolerate_divergence,
            _shared=(self._sources, self._programs),
        )

    def claim_runs(self, workdir: AnyPath | str) -> list[Run]:
        """Load the data, and claim the workdir for this comparison; returns its runs."""
        runs = self.runs(workdir)
        claim = self.claim_with_data(workdir, [run for run in runs if not run.finished()])
        check_processes_agree(config=claim.config, code=source_version(), data=claim.data)
        if is_first():
            with in_turn(path_of(workdir)):  # jobs that start at once have seeds of their own
                self.checked_claim(workdir, claim).write(path_of(workdir))
        wait_for_all("workdir")
        return runs

    def claim_with_data(
        self, workdir: AnyPath | str, starting: Sequence[Run] = (), *, data: bool = True
    ) -> Claim:
        """Load the data, which must be that of a workdir's runs, and return the claim on it.

        `starting` are runs whose `init_from` must have the weights of before, too, in the sizes of
        their models.
        """
        self.checked_claim(workdir)  # before what takes time
        if data:
            self.load_data()
        fingerprints = {name: arm.source.fingerprint for name, arm in self.arms.items() if data}
        starts = {self.arms[run.arm].config.init_from for run in starting}
        weights = {path: source_digest(path) or "" for path in starts if path}
        for name in dict.fromkeys(run.arm for run in starting):
            with blaming(f"arm {name}" if self.config.arms else ""):
                check_start(self.arms[name])
        claim = Claim(configs.to_json(self.config), fingerprints, weights)
        with blaming(self.changed(workdir)):
            return self.checked_claim(workdir, claim)

    def changed(self, workdir: AnyPath | str) -> str:
        """How many images a folder has of one's own, if that has changed since a run; else ""."""
        info, source = self.info, next(iter(self.arms.values())).source
        now = np.array([info.num_train, info.num_test])
        for run in self.runs(workdir) if self.config.data.name in OWN_SIDES else ():
            record = run.record()
            if not record or record.diverged:
                continue
            then = np.array([record.train_examples, record.examples])
            if abs(now - then).max() > source.rounding:
                return (
                    f"{info.name} has {now[0]:,} train and {now[1]:,} test images, but had "
                    f"{then[0]:,} and {then[1]:,} when {run} was trained"
                )
        return ""

    def runs(self, workdir: AnyPath | str) -> list[Run]:
        """The runs of a workdir, all arms of a seed before the next seed."""
        return [Run.of(workdir, arm, seed) for seed in self.config.seeds for arm in self.arms]

    def train_all(
        self, runs: Sequence[Run], ended: Callable[[Run], None] = lambda run: None
    ) -> list[str]:
        """Train what isn't finished of runs; returns those whose loss ceased to be finite.

        `ended` is called with each run whose group has ended, now or before.
        """
        diverged: list[str] = []
        for group in self._groups(runs):
            number = runs.index(next(run for run in group if run in runs)) + 1
            kind, about = "run", str(group[0])
            if self.tolerate_divergence:
                kind, about = "trial", rates.about_trial(group[0], self.arms[group[0].arm].peak)
            others = f" and {len(group) - 1} more" if len(group) > 1 else ""
            label = f"{kind} {number} of {len(runs)}, {about}{others}"
            if agreed(all(run.finished() for run in group)):
                self.say(f"{label}: finished before")
            else:
                if preemption.should_stop():
                    raise preemption.Preempted("stopped between two runs")
                diverged += [str(run) for run in self._train(group, label)]
            for run in runs:
                if run in group:
                    ended(run)
        return diverged

    def _groups(self, runs: Sequence[Run]) -> list[tuple[Run, ...]]:
        """Runs that train at once: those of each group that began, then up to `together` more.

        Which runs train at once enters their numbers in the last bits, so a group stays as it is.
        """
        began = {run: list(run.group) for run in runs if run.began or run.finished()}
        known = {run for group in began.values() for run in group}
        groups: list[list[Run]] = []
        filling: dict[Program, list[Run]] = {}
        for run in runs:
            if run in began and began[run] not in groups:
                groups.append(began[run])
            elif run not in known:  # else its group is there, or comes with another of its runs
                program = self.arms[run.arm].program
                group = filling.get(program)
                if group is None or len(group) == self.config.together:  # none yet, or full
                    group = filling[program] = []
                    groups.append(group)
                group.append(run)
        for run in known:
            if run.arm not in self.arms:
                raise InputError(f"{run} belongs to a group that began: the config lacks its arm")
        return [tuple(group) for group in groups]

    def _train(self, runs: Sequence[Run], label: str) -> list[Run]:
        """Train a group; returns the runs whose loss ceased to be finite."""
        began = time.perf_counter()
        self.say(f"{label}: starts")

        def note(line: str) -> None:
            self.say(f"  {line}")

        try:
            with contextlib.ExitStack() as held:
                for run in runs if is_first() else ():
                    held.enter_context(locked(run.folder, note))
                if is_first():
                    write_group(runs)
                group = Group(runs, self.arms, note, self._on_metrics)
                held.callback(group.checkpoints.close)
                diverged = train(group, note)
                if self.tolerate_divergence:
                    group.journal.give_up(diverged)
        except OSError as error:
            raise InputError(
                f"{label}: {error}; once that is fixed, the same command continues from the "
                "newest checkpoint"
            ) from error
        if not diverged:
            self.say(f"{label}: done in {time.perf_counter() - began:.1f} s")
        return list(diverged)

    def table(self, workdir: AnyPath | str) -> Results:
        """The results of what is finished in the workdir, whose table is written into it.

        Raises:
            InputError: nothing was trained there, or something else.
        """
        if self.config.rates:
            return self.at_own_rates(workdir).table(workdir)
        claim = self._trained(workdir)
        if changed := self.changed(workdir):
            self.say(changed)
        results = Results.of(path_of(workdir), claim)
        try:
            results.write()
        except OSError as error:
            self.say(f"the table isn't written into {workdir}: {error.strerror or error}")
        return results

    def evaluate(self, workdir: AnyPath | str) -> str:
        """Test scores of every run's newest checkpoint, computed anew.

        Raises:
            InputError: nothing was trained there, or on other data.
        """
        self._trained(workdir)
        self.claim_with_data(workdir)
        runs, lines = self.runs(workdir), {}
        for run, state in self.states(runs):
            lines[run] = f"{run}: no checkpoint"
            if state is not None:
                arm = self.arms[run.arm]
                (scores,) = arm.program.evaluate(state.variables, arm.on_device(run.seed))
                lines[run] = f"{run}, step {int(state.step)}: {scores.text}"
        return "\n".join(lines[run] for arm in self.arms for run in runs if run.arm == arm)

    def restored(self, run: Run) -> TrainState | None:
        """The state of a run's newest checkpoint, if it has any."""
        return next(state for _, state in self.states([run]))

    def states(self, runs: Sequence[Run]) -> Iterator[tuple[Run, TrainState | None]]:
        """The states of runs' newest checkpoints, each read once for all runs of its group."""
        wanted = set(runs)
        for group in dict.fromkeys(run.group for run in runs):
            # Of those that the config has: a group shares its program.
            arm = next(self.arms[run.arm] for run in group if run in wanted)
            for run, state in zip(group, restored(group, arm), strict=True):
                if run in wanted:
                    yield run, state

    def load_data(self) -> None:
        """Load the data of all arms; if its sizes aren't those published, build programs anew."""
        changed = False
        for source in {id(arm.source): arm.source for arm in self.arms.values()}.values():
            published = source.info
            if source.loaded:
                continue
            source.load()
            info = source.info
            if notes := "; ".join(dict.fromkeys(filter(None, (published.notes, info.notes)))):
                self.say(f"{info.name}: {notes}")
            if info != published:
                changed = True
                trained, tested = info.num_train, info.num_test
                expected = published.num_train, published.num_test
                off = max(abs(trained - expected[0]), abs(tested - expected[1]))
                if off > source.rounding:
                    self.say(
                        f"{info.name} holds {trained:,} train and {tested:,} test examples there, "
                        f"{expected[0]:,} and {expected[1]:,} expected"
                    )
        if changed:
            for name, arm in self.arms.items():
                with blaming(f"arm {name}" if self.config.arms else ""):
                    self.arms[name] = self._arm(name, arm.config, arm.source)

    def checked_claim(self, workdir: AnyPath | str, ours: Claim | None = None) -> Claim:
        """The claim of a workdir, which must be of this configuration; more arms are welcome.

        `ours` has the fingerprints of what is loaded; the configuration alone unless given.
        """
        workdir, ours = path_of(workdir), ours or Claim(configs.to_json(self.config), {})
        if before := Claim.read(workdir):
            return ours.joined(before, workdir)
        if files.names(workdir / "runs"):
            raise InputError(
                f"{workdir} has runs, but not their config.json: restore it, or choose another "
                "--workdir"
            )
        return ours

    def _trained(self, workdir: AnyPath | str) -> Claim:
        """The claim of a workdir that must have one, of this configuration."""
        claim = self.checked_claim(workdir)
        Claim.of(path_of(workdir))
        return claim

    def _arm(self, name: str, config: ConfigDict, source: ArmData) -> Arm:
        """The arm, checked; arms that differ in start and rate alone share a program."""
        key = _key(config, "program"), source.info
        if program := self._programs.get(key):
            mesh, feed = program.mesh, program.feed
        else:
            axes = {name: config.mesh[name] for name in ("data", "fsdp", "tensor")}
            mesh = make_mesh(**axes, devices=self._devices)
            task, feed = TASKS[config.task].build(config, source.info, mesh)
        _check_together(config, feed)
        configs.check(config, feed.steps_per_epoch, mesh.shape["data"] * mesh.shape["fsdp"])
        if program is None:
            program = self._programs[key] = Program(config, task, feed, mesh)
        if config.scheme:
            program.plan(config.scheme)
            program.task.check_positions(config.scheme)
        return Arm(name, config, source, program)

    def _without_effect(self) -> Iterator[str]:
        """Fields that are of another model than `model.name`, and rules that fit no parameter."""
        for arm in self.arms.values():
            model = arm.config.model
            if strays := foreign_fields(model.name, [field for field in model if field != "name"]):
                yield f"{model.name} has no field {', '.join(strays)}: left out of config.model"
            names = [path for path, _ in paths.flatten(arm.program.shapes.params)[0]]
            for expression, _ in arm.config.optimizer.rate_rules:
                if not any(re.search(expression, name) for name in names):
                    yield f"optimizer.rate_rules: no parameter's path has {expression!r}"


def _with_own(config: ConfigDict, data: Any, model: Any) -> ConfigDict:
    """The configuration with data and a model given as objects."""
    config = config.copy_and_resolve_references()
    if data is not None:
        if config.task != "images":
            raise InputError(f"data given as arrays is for task images, not for {config.task}")
        config.data.name = getattr(data, "name", "")
    if model is not None:
        config.model = Config(fields_of(model))
    return config


def _check_together(config: ConfigDict, feed: Feed) -> None:
    """Refuse runs at once if data is streamed, or several processes train as one."""
    if config.together > 1 and not feed.resident:
        raise InputError(
            f"together {config.together} needs data that is held on the devices: "
            f"{config.data.name} is streamed"
        )
    if config.together > 1 and config.data.get("per_seed"):
        raise InputError(
            f"together {config.together} is for runs on the same images, and data.per_seed "
            f"{config.data.per_seed} gives each seed its own"
        )
    if config.together > 1 and (processes := jax.process_count()) > 1:
        raise InputError(f"together {config.together} needs a single process, not {processes}")


def _key(config: ConfigDict, what: str) -> str:
    """The fields on which data or a program depends, which configurations with one key share."""
    return json.dumps(affecting(configs.to_json(config), what), sort_keys=True)
