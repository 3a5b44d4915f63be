"""A comparison: arms × seeds in one workdir, continued wherever it stopped."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Sequence
from typing import Any

import jax
from ml_collections import ConfigDict

from mimetic_jax.base.errors import InputError, blaming
from mimetic_jax.base.extras import need
from mimetic_jax.base.version import source_version
from mimetic_jax.data import ImageDataset
from mimetic_jax.models import fields_of
from mimetic_jax.models.model import left_out
from mimetic_jax.train import config as configs
from mimetic_jax.train.arm import Arm, Source
from mimetic_jax.train.cluster import preemption
from mimetic_jax.train.cluster.mesh import mesh_of
from mimetic_jax.train.cluster.processes import check_same, is_first, wait_for_all
from mimetic_jax.train.controls import controls
from mimetic_jax.train.group import Group
from mimetic_jax.train.journal import Diverged, Journal
from mimetic_jax.train.loop import Loop
from mimetic_jax.train.program import Program
from mimetic_jax.train.progress import Say, progress_of
from mimetic_jax.train.report import ArmResult, Results
from mimetic_jax.train.schema import Config, affecting, check_declared
from mimetic_jax.train.settings import check_settings
from mimetic_jax.train.start import source_digest, source_path
from mimetic_jax.train.state import TrainState
from mimetic_jax.train.store.checkpoint import Checkpoints
from mimetic_jax.train.store.claim import Claim, check_fingerprint
from mimetic_jax.train.store.places import Place
from mimetic_jax.train.store.runs import Run
from mimetic_jax.train.tasks import task_module
from mimetic_jax.train.work import Unit, Work, check_at_once, finished_records, work_of
from mimetic_jax.tree import paths


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
        model: to train, instead of `config.model`: a Linen module; a class of Linen or NNX modules,
            or `functools.partial(Class, width=96)`; or functions (init, apply), as
            `models.networks.Functions` takes them. It is stored by its import path and its fields,
            and `num_classes` comes from the data.
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
        model: Any = None,
        devices: Sequence[jax.Device] | None = None,
    ) -> None:
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
        self._progress = progress_of(say if is_first() else lambda line: None)
        self.say: Say = self._progress.say
        self._task = task_module(config.task)
        self.arms: dict[str, Arm] = {}
        self._programs: dict[tuple[str, Any], Program] = {}
        sources: dict[str, Source] = {}
        for name, arm in configs.arms(config).items():
            with blaming(f"arm {name}" if config.arms else ""):
                check_declared(arm)
                if (arm.task, arm.data.name) != (config.task, config.data.name):
                    raise InputError("it trains on other data: arms of a comparison share them")
                if (key := _key(arm, "data")) not in sources:
                    sources[key] = Source(self._task, arm, data)
                self.arms[name] = self._arm(name, arm, sources[key])
        self._report_fields()
        self._report_rules()

    @property
    def info(self) -> Any:
        """What is known of the first arm's data."""
        return next(iter(self.arms.values())).source.info

    def train(self, workdir: Place | str, only: str = "") -> Results:
        """Train what isn't finished, arm by arm within a seed.

        Up to `config.together` runs that share a program train at once.

        Args:
            workdir: of the comparison.
            only: "ARM" or "ARM/SEED" to train these runs alone, as one of a cluster's jobs does.

        Returns:
            What is finished in the workdir: it prints as the table.

        Raises:
            InputError: if data or workdir can't be used; or, after everything else and with the
                table printed, if runs diverged.
            Preempted: if the process was asked to stop; what was trained is saved.
        """
        work = self.claimed(workdir, only)
        with preemption.listening():
            diverged = self.train_all(work)
        if diverged:
            self.say(str(self.table(workdir)))
            raise InputError(f"the loss of {', '.join(diverged)} is no longer finite: see above")
        return self.table(workdir)

    def claimed(self, workdir: Place | str, only: str = "") -> Work:
        """Load the data, and claim the workdir for this comparison: what there is to train in it.

        Args:
            workdir: of the comparison.
            only: see `train`.

        Raises:
            InputError: if data or workdir can't be used, or the workdir belongs to something else.
        """
        need("training", "train")
        work = self.work(workdir, only)
        self.recognize(work.workdir)
        self.open()  # missing data is reported before the workdir is touched
        claim = self._claim(work)
        check_same(config=claim.config, code=source_version(), data=claim.data)
        if is_first():
            claim.write(work.workdir)
        wait_for_all("workdir")
        return self.work(workdir, only)  # of arms whose data is loaded

    def train_all(self, work: Work) -> list[str]:
        """Train what isn't finished; returns the runs whose loss ceased to be finite.

        Raises:
            Preempted: if the process was asked to stop; what was trained is saved.
        """
        diverged, left = [], work.unfinished()
        for unit in work.units():
            if preemption.should_stop():
                raise preemption.Preempted("stopped between two runs")
            left.difference_update(unit.runs)
            waiting = sum(self.arms[arm].program.steps for arm, _ in left)
            diverged += self._train(work, unit, waiting)
        return diverged

    def _train(self, work: Work, unit: Unit, waiting: int) -> list[str]:
        """Train runs at once; returns those whose loss ceased to be finite."""
        began, stopped = time.perf_counter(), []
        self.say(f"{unit.label}: starts")
        self._progress.prepare(unit.label, waiting)

        def diverged(journal: Journal, error: Diverged) -> None:
            self.say(str(error))
            stopped.append(journal.label)

        def note(line: str) -> None:
            self.say(f"  {line}")

        try:
            with contextlib.ExitStack() as held:
                journals, lanes = work.journals(unit, held, note)
                Loop(
                    Group(unit.arm.program, unit.arm.data, journals, lanes),
                    say=note,
                    diverged=diverged,
                    progress=self._progress,
                ).run()
        except OSError as error:
            raise InputError(
                f"{unit.label}: {error}; once that is fixed, the same command continues from the "
                "newest checkpoint"
            ) from error
        finally:
            self._progress.end()
        if not stopped:
            self.say(f"{unit.label}: done in {time.perf_counter() - began:.1f} s")
        return stopped

    def work(self, workdir: Place | str, only: str = "") -> Work:
        """What there is to train in a workdir, and what is finished; see `train` for `only`."""
        return work_of(self.config, self.arms, Place.of(workdir), self.say, only)

    def table(self, workdir: Place | str) -> Results:
        """The results of what is finished so far, whose table is written into the workdir."""
        work = self.work(workdir)
        claim = self.recognize(work.workdir)
        found, own = {}, controls(configs.of_arms(configs.to_json(self.config)))
        for arm in self.arms:
            records = finished_records(work.workdir, self.config, arm)
            for record in records.values():
                where = f"{arm} seed {record.seed} of workdir {workdir}"
                check_fingerprint(where, "data", record.data, claim.data.get(arm, record.data))
            if records:
                found[arm] = ArmResult(arm, records, control=own.get(arm, ""))
        results = Results(work.workdir, found, work.files)
        try:
            results.write()
        except OSError as error:
            self.say(f"the table isn't written into {workdir}: {error.strerror or error}")
        return results

    def evaluate(self, workdir: Place | str) -> str:
        """Test scores of every run's newest checkpoint, computed anew."""
        work = self.work(workdir)
        self.recognize(work.workdir)
        runs = work.runs()
        self.open()
        lines = []
        for run in runs:
            state, arm = self.restored(run), self.arms[run.arm]
            if state is None:
                lines.append(f"{run}: no checkpoint")
                continue
            result = arm.program.test(state.variables, arm.data)
            lines.append(f"{run}, step {int(state.step)}: {result}")
        return "\n".join(lines)

    def restored(self, run: Run) -> TrainState | None:
        """The state of a run's newest checkpoint, if it has any."""
        if not run.checkpoints.exists():
            return None
        checkpoints = Checkpoints(run.checkpoints)
        try:
            found = checkpoints.restore(self.arms[run.arm].program.shapes)
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

    def recognize(self, workdir: Place | str) -> Claim:
        """The claim of a workdir, which must be of this configuration; more arms are welcome.

        Raises:
            InputError: it belongs to another one.
        """
        record = Claim(configs.to_json(self.config), {})
        work = self.work(workdir)
        if before := Claim.read(work.workdir):
            return record.joined(before, work.workdir)
        for name, folder, config in work.configs():
            if config is None:
                raise InputError(
                    f"{folder} is finished, but neither {work.workdir}/config.json nor a "
                    "checkpoint has its config: restore it, or choose another --workdir"
                )
            configs.check_same(folder, config, configs.to_json(self.arms[name].config))
        return record

    def _claim(self, work: Work) -> Claim:
        """The claim of this comparison, with the data that is loaded and the starts of its runs."""
        sources: dict[str, str] = {}
        for name, seed in sorted(work.unfinished()):
            config = self.arms[name].config
            if config.init_from and (path := source_path(config, name, seed)) not in sources:
                sources[path] = source_digest(config, name, seed) or ""
        data = {name: arm.source.fingerprint for name, arm in self.arms.items()}
        claim = Claim(configs.to_json(self.config), data, sources)
        before = Claim.read(work.workdir)
        return claim.joined(before, work.workdir) if before else claim

    def _arm(self, name: str, config: ConfigDict, source: Source) -> Arm:
        """The arm, checked; it shares the program of an arm that differs in its start alone."""
        key = _key(config, "program"), source.info
        if key not in self._programs:
            mesh = mesh_of(config, self._devices)
            task, feed = self._task.build(config, source.info, mesh)
            check_at_once(config, feed, config.data.name)
            configs.check(config, feed.steps_per_epoch, mesh.shape["data"] * mesh.shape["fsdp"])
            self._programs[key] = Program(config, task, feed, mesh)
        program = self._programs[key]
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


def _key(config: ConfigDict, what: str) -> str:
    """The fields on which data or a program depends, which configurations with one key share."""
    return json.dumps(affecting(configs.to_json(config), what), sort_keys=True)
