"""The networks of a comparison, in a form in which every layer can be watched."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator, Mapping
from typing import Any

import jax

from mimetic_jax.models import Model
from mimetic_jax.train.arm import Arm
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.start import initial_state
from mimetic_jax.train.state import TrainState
from mimetic_jax.train.store.files import AnyPath
from mimetic_jax.train.store.runs import Run
from mimetic_jax.train.tasks.images import ImageTask

EXAMPLES = 64
"""Test examples over which a network's numbers are averaged."""

_PLAIN: dict[str, Any] = {"scan": False, "remat": False, "dtype": "float32"}


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The variables of an arm at one moment, "initial" or "step N"."""

    arm: Arm
    when: str
    variables: Mapping[str, Any]

    @property
    def model(self) -> Model:
        """The arm's model."""
        return self.arm.program.task.model

    @property
    def label(self) -> str:
        """The arm and the moment, "mimetic, initial"."""
        return f"{self.arm.name}, {self.when}"

    def inputs(self, count: int) -> jax.Array:
        """Return the first test examples as the model is tested on them; the data must be open."""
        task, program = self.arm.program.task, self.arm.program
        sample = program.feed.sample(self.arm.on_device(), count)
        return task.view(sample) if isinstance(task, ImageTask) else sample


def snapshots(
    comparison: Comparison, workdir: AnyPath | str, *, data: bool = True
) -> Iterator[Snapshot]:
    """Yield the networks of each arm's first seed: at initialization and, if trained, at the end.

    `data` says whether to load the data, which `Snapshot.inputs` needs.
    """
    first = {name: Run.of(workdir, name, comparison.config.seeds[0]) for name in comparison.arms}
    comparison.runs(workdir).claim_with_data(list(first.values()), data=data)
    for name, arm in comparison.arms.items():
        run = first[name]
        yield Snapshot(arm, "initial", initial(comparison, arm).variables)
        if (trained := comparison.restored(run)) is None:
            comparison.say(f"{run}: no checkpoint in {workdir}, so initial weights alone")
        else:
            yield Snapshot(arm, f"step {int(trained.step)}", trained.variables)


def initial(comparison: Comparison, arm: Arm) -> TrainState:
    """Return the state of an arm's first seed before the first step."""
    return initial_state(arm, arm.config.seeds[0], comparison.say)


def plain(model: Model, variables: Mapping[str, Any]) -> tuple[Model, dict[str, Any]]:
    """Return the same function in float32, with one submodule per layer and per projection.

    Loops over layers become `block_0` … with a slice of the stacked variables each, so that every
    layer is a call of its own; recomputation, the joint projection of query, key and value, and
    half precision are off.
    """
    looped = getattr(model.module, "scan", False)
    return model.with_fields(**_PLAIN), {
        name: _unstacked(tree) if looped else tree for name, tree in variables.items()
    }


def _unstacked(tree: Any) -> Any:
    if not isinstance(tree, Mapping):
        return tree
    unstacked = {}
    for name, branch in tree.items():
        if name == "blocks":
            depth = len(jax.tree.leaves(branch)[0])
            for layer in range(depth):
                unstacked[f"block_{layer}"] = jax.tree.map(operator.itemgetter(layer), branch)
        else:
            unstacked[name] = _unstacked(branch)
    return unstacked
