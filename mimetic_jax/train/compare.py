"""A comparison: arms × seeds in one workdir, continued wherever it stopped."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import jax
from ml_collections import ConfigDict

from mimetic_jax.analysis import scaling
from mimetic_jax.errors import InputError, unknown
from mimetic_jax.rewrite import plan as plan_writes
from mimetic_jax.train import config as configs
from mimetic_jax.train.cluster import preemption
from mimetic_jax.train.cluster.mesh import make_mesh
from mimetic_jax.train.cluster.processes import agreed, check_same, is_first, wait_for_all
from mimetic_jax.train.kinds import kind_of
from mimetic_jax.train.loop import Diverged, train
from mimetic_jax.train.program import Program
from mimetic_jax.train.report import summarize
from mimetic_jax.train.state import TrainState
from mimetic_jax.train.workdir.checkpoint import Checkpoints
from mimetic_jax.train.workdir.paths import Place, write_atomically
from mimetic_jax.train.workdir.runs import Run
from mimetic_jax.version import source_version

Say = Callable[[str], None]


class Comparison:
    """The checked configuration of a comparison, with its arms and programs.

    Everything is checked on construction, before anything is loaded or computed: the config of
    each arm, the model's shapes, and that each scheme finds what it writes. A data set that holds
    other numbers of examples than published is told when it is loaded, and counts as it is.

    Args:
        config: of the experiment.
        say: prints a line.

    Raises:
        InputError: one line that names what is wrong.
    """

    def __init__(self, config: ConfigDict, say: Say = print) -> None:
        self.config = config
        self.say: Say = say if is_first() else lambda line: None
        self.kind = kind_of(config)
        self.info = self.kind.describe(config)
        self.arms = configs.arms(config)
        self._programs: dict[str, Program] = {}
        # By what the arms' configurations say of the data.
        self._infos: dict[str, Any] = {}
        self._datasets: dict[str, Any] = {}
        self._fingerprints: dict[str, str] = {}
        self._data: dict[str, Any] = {}
        for name, arm in self.arms.items():
            self._check_arm(name, arm)

    def program(self, arm: str) -> Program:
        """The arm's program: one object for all arms that differ in schemes alone."""
        config = self.arms[arm]
        return self._programs[_program_key(config)]

    def train(self, workdir: Place, only: str = "") -> str:
        """Train what isn't finished, arm by arm within a seed, and return the table.

        Args:
            workdir: of the comparison.
            only: "ARM/SEED" to train that run alone, as one of a cluster's jobs does.

        Raises:
            InputError: if data or workdir can't be used; or, after everything else and with the
                table said, if runs diverged.
            Preempted: if the process was told to stop; what was trained is saved.
        """
        diverged = []
        runs = self._runs(only)
        self.open()  # data that is missing is told before the workdir is touched
        check_same(config=self._everywhere(), code=source_version(), data=self._data_read())
        if is_first():
            self.claim(workdir)
        wait_for_all("workdir")
        with preemption.listening():
            for number, (arm, seed) in enumerate(runs, 1):
                if preemption.should_stop():
                    raise preemption.Preempted("stopped between two runs")
                label = f"[{number}/{len(runs)}] {arm} seed {seed}"
                if not self._train_one(Run.of(workdir, arm, seed), label):
                    diverged.append(f"{arm} seed {seed}")
        if diverged:
            self.say(self.table(workdir))
            raise InputError(f"the loss of {', '.join(diverged)} is no longer finite: see above")
        return self.table(workdir)

    def _train_one(self, run: Run, label: str) -> bool:
        """Train a run if it isn't finished; False if its loss ceased to be finite."""
        if agreed(run.finished()):
            self.say(f"{label}: finished before")
            return True
        began = time.perf_counter()
        self.say(f"{label}: starts")
        program, data = self.program(run.arm), self.placed(run.arm)
        try:
            train(
                run,
                self.arms[run.arm],
                program,
                data,
                lambda line: self.say(f"  {line}"),
                self.fingerprint(run.arm),
            )
        except Diverged as error:
            self.say(f"{label}: {error}")
            return False
        self.say(f"{label}: done in {time.perf_counter() - began:.1f} s")
        return True

    def _runs(self, only: str) -> list[tuple[str, int]]:
        runs = [(arm, seed) for seed in self.config.seeds for arm in self.arms]
        if not only:
            return runs
        chosen = [(arm, seed) for arm, seed in runs if f"{arm}/{seed}" == only]
        if not chosen:
            raise unknown("run", only, [f"{arm}/{seed}" for arm, seed in runs])
        return chosen

    def table(self, workdir: Place) -> str:
        """The table of what is finished so far."""
        self.recognize(workdir)
        score = self.program(next(iter(self.arms))).task.score
        return summarize(workdir, list(self.arms), self.config.seeds, score)

    def evaluate(self, workdir: Place) -> str:
        """Test accuracy of every run's newest checkpoint, computed anew."""
        self.recognize(workdir)
        self.open()
        lines = []
        for arm in self.arms:
            program = self.program(arm)
            for seed in self.config.seeds:
                state = self.restored(Run.of(workdir, arm, seed))
                if state is None:
                    lines.append(f"{arm} seed {seed}: no checkpoint")
                    continue
                result = program.test(state.params, self.placed(arm))
                lines.append(f"{arm} seed {seed}, step {int(state.step)}: {result}")
        return "\n".join(lines)

    def restored(self, run: Run) -> TrainState | None:
        """The state of a run's newest whole checkpoint, if it has any."""
        directory = run.directory / "checkpoints"
        if not directory.exists():
            return None
        keep = self.arms[run.arm].keep_checkpoints
        checkpoints = Checkpoints(directory, keep, self.say)
        try:
            found = checkpoints.restore(self.program(run.arm).shapes)
        finally:
            checkpoints.close()
        return found[0] if found else None

    def open(self) -> None:
        """Load what the arms train on. Programs count the examples that are really there.

        Raises:
            InputError: if it isn't there, isn't whole, or is too small.
        """
        for arm in self.arms.values():
            published = self._info(arm)
            if (info := self.kind.sized(published, self._dataset(arm))) != published:
                self.say(
                    f"{info.name} holds {info.num_train:,} train and {info.num_test:,} test "
                    f"examples there, {published.num_train:,} and {published.num_test:,} expected"
                )
                self._infos[_data_key(arm)] = info
                self._programs.clear()
        for name, arm in self.arms.items():
            self._check_arm(name, arm)

    def placed(self, arm: str) -> Any:
        """The arm's data where its program wants it, loaded once and placed once a program."""
        key = _program_key(self.arms[arm])
        if key not in self._data:
            self._data[key] = self._programs[key].feed.place(self._dataset(self.arms[arm]))
        return self._data[key]

    def fingerprint(self, arm: str) -> str:
        """Of the data that an arm trains on."""
        key = _data_key(self.arms[arm])
        if key not in self._fingerprints:
            self._fingerprints[key] = self._dataset(self.arms[arm]).fingerprint()
        return self._fingerprints[key]

    def _dataset(self, arm: ConfigDict) -> Any:
        key = _data_key(arm)
        if key not in self._datasets:
            self._datasets[key] = self.kind.load(arm)
        return self._datasets[key]

    def _everywhere(self) -> dict[str, Any]:
        """The config, but for where the data lies: other machines may have it elsewhere."""
        record = configs.to_json(self.config)
        for part in (record, *record["arms"].values()):
            part.get("data", {}).pop("dir", None)
        return record

    def _data_read(self) -> list[str]:
        return [f"{self._info(arm)} {self.fingerprint(name)}" for name, arm in self.arms.items()]

    def _info(self, arm: ConfigDict) -> Any:
        """What is known of the arm's data: as published, until it is opened."""
        return self._infos.get(_data_key(arm)) or self.kind.describe(arm)

    def recognize(self, workdir: Place) -> dict[str, Any]:
        """The record of a workdir that is ours: its seeds and arms and those of this config.

        Raises:
            InputError: if it belongs to another config; more seeds and arms are welcome.
        """
        record, path = configs.to_json(self.config), workdir / "config.json"
        if path.exists():
            before = json.loads(path.read_text())
            if difference := configs.difference(before, record):
                raise InputError(
                    f"workdir {workdir} belongs to a different config ({difference}): choose "
                    "another --workdir"
                )
            record["seeds"] = sorted({*before["seeds"], *record["seeds"]})
            record["arms"] = {**before["arms"], **record["arms"]}
        return record

    def claim(self, workdir: Place) -> None:
        """Make the workdir ours, or find that it is.

        Raises:
            InputError: as `recognize`, or if it can't be written.
        """
        record, path = self.recognize(workdir), workdir / "config.json"
        if path.exists() and json.loads(path.read_text()) == record:
            return
        try:
            workdir.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(record, indent=2) + "\n")
        except OSError as error:
            reason = error.strerror or error
            raise InputError(f"workdir {workdir} can't be written: {reason}") from error

    def _check_arm(self, name: str, arm: ConfigDict) -> None:
        if (arm.task, arm.data.name) != (self.config.task, self.config.data.name):
            raise InputError(f"arm {name} trains on other data: arms of a comparison share them")
        try:
            info = self._info(arm)
            per_epoch = self.kind.steps_per_epoch(arm, info)
            configs.check(arm, per_epoch, jax.device_count() // max(arm.mesh.tensor, 1))
            key = _program_key(arm)
            if key not in self._programs:
                mesh = make_mesh(arm.mesh.data, arm.mesh.fsdp, arm.mesh.tensor)
                self._programs[key] = Program(arm, info, mesh)
            if arm.scheme:
                plan_writes(self._programs[key].shapes.params, arm.scheme)
        except InputError as error:
            raise InputError(f"arm {name}: {error}" if self.config.arms else str(error)) from error


def describe(comparison: Comparison) -> str:
    """What `--mode=plan` prints: steps, schedule, parameters, FLOPs, memory, scaling, writes."""
    config, info = comparison.config, comparison.info
    lines = [
        f"{config.name}: {comparison.kind.summary(info)}",
        f"{len(comparison.arms)} arms x {len(config.seeds)} seeds on {jax.device_count()} "
        f"{jax.devices()[0].device_kind} device(s)",
    ]
    planned: list[Program] = []
    for name, arm in comparison.arms.items():
        program = comparison.program(name)
        numbers = program.describe()
        flops = numbers["flops_per_step"]
        here = scaling.work(program, arm, tuple(program.mesh.shape.values()), flops)
        rates = [float(program.schedule(program.steps * i // 4)) for i in range(5)]
        lines += [
            "",
            f"arm {name}",
            f"  {program.steps:,} steps of {program.batch} ({program.feed.steps_per_epoch:,} an "
            "epoch)",
            f"  {arm.optimizer.schedule} learning rate, at quarters of training: "
            + ", ".join(f"{rate:.2e}" for rate in rates),
            f"  {numbers['parameters']:,} parameters, {flops:.3g} FLOPs a step",
            f"  per device on mesh {dict(program.mesh.shape)}: parameters "
            f"{_megabytes(numbers['parameter_bytes'])}, optimizer "
            f"{_megabytes(numbers['optimizer_bytes'])}, data "
            f"{_megabytes(numbers['data_bytes'])}, on paper activations "
            f"{_megabytes(here.activations)}, gradients and buffers "
            f"{_megabytes(here.gradients + here.buffers)}",
        ]
        if program not in planned:  # arms share programs
            lines += scaling.lines(program, arm, flops)
            planned.append(program)
        if arm.scheme:
            writes = plan_writes(program.shapes.params, arm.scheme)
            lines += ["  writes:", *(f"    {line}" for line in str(writes).splitlines())]
    return "\n".join(lines)


def _megabytes(count: float) -> str:
    return f"{count / 2**20:,.1f} MiB"


def _data_key(config: ConfigDict) -> str:
    """What a data set depends on; which of it a program takes is in the program's key."""
    record = configs.to_json(config)["data"]
    return json.dumps({name: record.get(name) for name in ("name", "dir", "subset", "classes")})


def _program_key(config: ConfigDict) -> str:
    """What a program depends on: all of the config but names, schemes, seeds and cadences."""
    record = configs.to_json(config)
    for name in ("name", "seeds", "scheme", "arms", "log_every", "checkpoint_every"):
        record.pop(name)
    return json.dumps(record, sort_keys=True)
