"""A comparison: arms × seeds in one workdir, continued wherever it stopped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
from ml_collections import ConfigDict

from mimetic_jax.base.errors import InputError
from mimetic_jax.data import ImageDataset
from mimetic_jax.models import fields_of
from mimetic_jax.train import rates
from mimetic_jax.train.arm import Arms
from mimetic_jax.train.cluster import preemption
from mimetic_jax.train.cluster.processes import is_first
from mimetic_jax.train.group import Say, restored
from mimetic_jax.train.journal import OnMetrics
from mimetic_jax.train.rates import Search
from mimetic_jax.train.record import ACCURACY
from mimetic_jax.train.report import Results
from mimetic_jax.train.runs import Runs
from mimetic_jax.train.schema import Config
from mimetic_jax.train.settings import check_settings
from mimetic_jax.train.state import TrainState
from mimetic_jax.train.statistics import visible
from mimetic_jax.train.store.files import AnyPath, path_of
from mimetic_jax.train.store.runs import Run


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
        devices: defaults to all of JAX's; programs for others can be compiled only.
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
        _shared: Arms | None = None,
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
        self.arms = Arms(config, self.say, self._devices, data, _shared)

    @property
    def info(self) -> Any:
        """What is known of the first arm's data."""
        return self.arms.first.source.info

    def detectable_gain(self) -> str:
        """Describe the smallest gain that these seeds and test images detect; may be empty."""
        tests = self.info.num_test if self.arms.first.program.task.score is ACCURACY else 0
        score = self.arms.first.program.task.score
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
        runs = self.runs(workdir)
        runs.claim()
        if not self.tolerate_divergence and (gain := self.detectable_gain()):
            self.say(gain)
        with preemption.listening():
            diverged = runs.train()
        if diverged and not self.tolerate_divergence:
            self.say(str(self.table(workdir)))
            raise InputError(f"the loss of {', '.join(diverged)} is no longer finite: see above")
        return self.table(workdir)

    def stages(
        self, workdir: AnyPath | str, search: Search | None = None
    ) -> Iterator[tuple[Comparison, AnyPath]]:
        """Yield what `train` trains, with its folder: trials while `config.rates` need them, then
        the arms.

        Train each before the next is asked for. `search` defaults to that of the workdir.
        """
        workdir = path_of(workdir)
        if self.config.rates:
            for config in rates.trials(self.config, search or workdir, self.say):
                yield self.alike(config, tolerate_divergence=True), workdir / rates.FOLDER
        yield self.at_own_rates(workdir, search), workdir

    def at_own_rates(self, workdir: AnyPath | str, search: Search | None = None) -> Comparison:
        """Set the rates that the arms chose in a workdir, or by a `search`.

        Raises:
            InputError: an arm hasn't chosen one.
        """
        if not self.config.rates:
            return self
        return self.alike(rates.at_chosen(self.config, search or path_of(workdir), self.say))

    def alike(self, config: ConfigDict, *, tolerate_divergence: bool = False) -> Comparison:
        """Compare another configuration on the same data and devices; what is loaded and compiled
        is shared."""
        return Comparison(
            config,
            self.say,
            data=self._given,
            devices=self._devices,
            on_metrics=self._on_metrics,
            tolerate_divergence=tolerate_divergence,
            _shared=self.arms,
        )

    def runs(self, workdir: AnyPath | str) -> Runs:
        """Return the runs of a workdir."""
        tolerate = self.tolerate_divergence
        return Runs(path_of(workdir), self.arms, self.say, self._on_metrics, tolerate)

    def table(self, workdir: AnyPath | str) -> Results:
        """Return the results of what is finished in the workdir, and write their table into it.

        Raises:
            InputError: nothing was trained there, or something else.
        """
        if self.config.rates:
            return self.at_own_rates(workdir).table(workdir)
        runs = self.runs(workdir)
        claim = runs.trained_claim()
        if changed := runs.changed_sizes():
            self.say(changed)
        if unfinished := runs.unfinished():
            self.say(f"no result yet: {unfinished}")
        results = Results.of(runs.workdir, claim)
        try:
            results.write()
        except OSError as error:
            self.say(f"the table isn't written into {workdir}: {error.strerror or error}")
        return results

    def evaluate(self, workdir: AnyPath | str) -> str:
        """Compute the test scores of every run's newest checkpoint anew.

        Raises:
            InputError: nothing was trained there, or on other data.
        """
        runs, lines = self.runs(workdir), {}
        runs.trained_claim()
        runs.claim_with_data()
        for run, state in restored(runs, self.arms):
            lines[run] = f"{run}: no checkpoint"
            if state is not None:
                arm = self.arms[run.arm]
                (scores,) = arm.program.evaluate(state.variables, arm.on_device(run.seed))
                lines[run] = f"{run}, step {int(state.step)}: {scores.text}"
        return "\n".join(lines[run] for arm in self.arms for run in runs if run.arm == arm)

    def restored(self, run: Run) -> TrainState | None:
        """Restore a run's newest checkpoint, if it has any."""
        return next(state for _, state in restored([run], self.arms))


def _with_own(config: ConfigDict, data: Any, model: Any) -> ConfigDict:
    """Set the fields of data and a model given as objects."""
    config = config.copy_and_resolve_references()
    if data is not None:
        if config.task != "images":
            raise InputError(f"data given as arrays is for task images, not for {config.task}")
        config.data.name = getattr(data, "name", "")
    if model is not None:
        config.model = Config(fields_of(model))
    return config
