"""The arms of a comparison, checked, with the data and the programs that they share."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import jax
from ml_collections import ConfigDict

from mimetic_jax.base.errors import InputError, blaming
from mimetic_jax.data.feed.feed import Feed
from mimetic_jax.models.model import foreign_fields
from mimetic_jax.rules import paths
from mimetic_jax.train import config as configs
from mimetic_jax.train.cluster.mesh import make_mesh
from mimetic_jax.train.pretrained import Pretrained
from mimetic_jax.train.program import Program
from mimetic_jax.train.schema import affecting, check_declared
from mimetic_jax.train.tasks import TASKS


class ArmData:
    """Where arms' examples come from: a data set, described until it is loaded, or an object."""

    def __init__(self, config: ConfigDict, given: Any = None) -> None:
        self._task, self._config = TASKS[config.task], config
        self._loaded = None if given is None else self._task.load(config, given)
        self.info = self._task.describe(config, self._loaded)
        self._placed: dict[Hashable, Any] = {}
        self._seed = -1  # whose images are placed, if seeds have their own

    @property
    def loaded(self) -> bool:
        """Whether it needn't be read any more."""
        return self._loaded is not None

    def load(self) -> Any:
        """Load the data set, once; from then on `info` has its own numbers."""
        if self._loaded is None:
            self._loaded = self._task.load(self._config)
            self.info = self._task.describe(self._config, self._loaded)
        return self._loaded

    def of_seed(self, seed: int) -> Any:
        """Return what a seed trains and tests on."""
        return self._task.of_seed(self._config, self.load(), seed)

    def placed(self, feed: Feed, seed: int) -> Any:
        """Return what a seed trains and tests on, where a feed wants it; placed at the first
        call."""
        if self._config.data.get("per_seed") and seed != self._seed:
            self._placed, self._seed = {}, seed  # one seed's at a time
        if feed.placement not in self._placed:
            self._placed[feed.placement] = feed.place(self.of_seed(seed))
        return self._placed[feed.placement]

    @property
    def rounding(self) -> int:
        """How far numbers of examples may be from those described: parts round in each class."""
        data = self._config.data
        parts = sum(data.get(name, whole) != whole for name, whole in _PARTS.items())
        return parts * getattr(self.info, "num_classes", 0)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Differs if examples do."""
        return self.load().fingerprint()


_PARTS = {"subset": 1, "held_out": 0, "per_seed": 0}
"""Fields of data of which images a run has, and what they are for all of them."""


@dataclasses.dataclass(frozen=True)
class Arm:
    """An arm, with what it shares: `source` with all arms on the same data, `program` with all
    that differ in their starts and rates alone, `pretrained` with all of the same `init_from`."""

    name: str
    config: ConfigDict
    source: ArmData
    program: Program
    pretrained: Pretrained | None = None

    @property
    def peak(self) -> float:
        """The highest learning rate, which its program is called with."""
        return configs.peak_rate(self.config)

    def on_device(self, seed: int | None = None) -> Any:
        """Return a seed's data where the arm's program wants it; defaults to the first seed's."""
        return self.source.placed(self.program.feed, self.config.seeds[0] if seed is None else seed)


class Arms(Mapping[str, Arm]):
    """The arms of a configuration by name.

    Each is checked on construction, before anything is loaded or computed: its fields, the model's
    shapes, and that each scheme finds what it writes.

    Args:
        config: the experiment's configuration.
        say: prints a line.
        devices: those on which programs run.
        data: a data set in place of the one that the configuration names.
        shared: arms of another configuration, whose data and programs these reuse.
    """

    def __init__(
        self,
        config: ConfigDict,
        say: Callable[[str], None],
        devices: Sequence[jax.Device],
        data: Any = None,
        shared: Arms | None = None,
    ) -> None:
        self.config, self._say, self._devices = config, say, devices
        # By what they depend on.
        self._sources: dict[str, ArmData] = shared._sources if shared else {}
        self._programs: dict[tuple[str, Any], Program] = shared._programs if shared else {}
        self._pretrained: dict[str, Pretrained] = shared._pretrained if shared else {}
        self._arms: dict[str, Arm] = {}
        arms = configs.arms_of(config)
        one_source = len({_key(arm, "data") for arm in arms.values()}) == 1
        for name, arm in arms.items():
            with self.blaming(name):
                check_declared(arm)
                if (arm.task, arm.data.name) != (config.task, config.data.name):
                    raise InputError(
                        "all arms of a comparison must use the same data, but this one sets "
                        f"data.name to {arm.data.name}"
                    )
            with contextlib.nullcontext() if one_source else self.blaming(name):
                if (key := _key(arm, "data")) not in self._sources:
                    self._sources[key] = ArmData(arm, data)
            self._arms[name] = self._checked(name, arm, self._sources[key])
        for line in dict.fromkeys(self._without_effect()):
            say(line)

    def __getitem__(self, name: str) -> Arm:
        return self._arms[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arms)

    def __len__(self) -> int:
        return len(self._arms)

    @property
    def first(self) -> Arm:
        """The first arm."""
        return next(iter(self._arms.values()))

    def blaming(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Begin errors with the name of an arm, unless it is the only one and has none."""
        return blaming(f"arm {name}" if self.config.arms else "")

    def load_data(self) -> None:
        """Load the data of all arms; if its sizes aren't those published, build programs anew."""
        changed = False
        for source in {id(arm.source): arm.source for arm in self.values()}.values():
            published = source.info
            if source.loaded:
                continue
            source.load()
            info = source.info
            if notes := "; ".join(dict.fromkeys(filter(None, (published.notes, info.notes)))):
                self._say(f"{info.name}: {notes}")
            if info != published:
                changed = True
                trained, tested = info.num_train, info.num_test
                expected = published.num_train, published.num_test
                off = max(abs(trained - expected[0]), abs(tested - expected[1]))
                if off > source.rounding:
                    self._say(
                        f"{info.name} holds {trained:,} train and {tested:,} test examples there, "
                        f"{expected[0]:,} and {expected[1]:,} expected"
                    )
        if changed:
            for name, arm in self._arms.items():
                self._arms[name] = self._checked(name, arm.config, arm.source)

    def _checked(self, name: str, config: ConfigDict, source: ArmData) -> Arm:
        """Build an arm; those that differ in start and rate alone share a program."""
        with self.blaming(name):
            key = _key(config, "program"), source.info
            if program := self._programs.get(key):
                mesh, feed = program.mesh, program.feed
            else:
                axes = {axis: config.mesh[axis] for axis in ("data", "fsdp", "tensor")}
                mesh = make_mesh(**axes, devices=self._devices)
                task, feed = TASKS[config.task].build(config, source.info, mesh)
            _check_together(config, feed)
            configs.check(config, feed.steps_per_epoch, mesh.shape["data"] * mesh.shape["fsdp"])
            if program is None:
                program = self._programs[key] = Program(config, task, feed, mesh)
            if config.scheme:
                program.plan(config.scheme)
                program.task.check_positions(config.scheme)
            pretrained = None
            if path := config.init_from:
                pretrained = self._pretrained.setdefault(path, Pretrained(path))
            return Arm(name, config, source, program, pretrained)

    def _without_effect(self) -> Iterator[str]:
        """Name fields of another model than `model.name`, and rules that fit no parameter."""
        for arm in self.values():
            model = arm.config.model
            if strays := foreign_fields(model.name, [field for field in model if field != "name"]):
                yield f"{model.name} has no field {', '.join(strays)}: left out of config.model"
            names = [path for path, _ in paths.flatten(arm.program.shapes.params)[0]]
            for expression, _ in arm.config.optimizer.rate_rules:
                if not any(re.search(expression, name) for name in names):
                    yield f"optimizer.rate_rules: no parameter's path has {expression!r}"


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
    """Serialize the fields on which data or a program depends: equal keys share it."""
    return json.dumps(affecting(configs.to_json(config), what), sort_keys=True)
