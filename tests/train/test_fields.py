"""The declared fields: what one declaration gives, and what each of them refuses."""

import math
import typing
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from ml_collections import ConfigDict

from configs.default import default
from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import Range
from mimetic_jax.schemes import ImpulseBias
from mimetic_jax.train import tasks
from mimetic_jax.train.cluster.mesh import make_mesh
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.config import to_json
from mimetic_jax.train.fields import TASKS
from mimetic_jax.train.pretrained import PARTS
from mimetic_jax.train.schema import affecting, check_declared, leaves, schema
from mimetic_jax.train.tasks.images import ImageTask
from tests.training import program_of, quiet


def changed(task: str, name: str, value: Any) -> ConfigDict:
    config = default(task)
    config.steps = 10
    with config.ignore_type():
        config.update_from_flattened_dict({name: value})
    return config


@pytest.mark.parametrize("task", TASKS)
def test_a_default_has_every_field_in_its_range(task):
    config = default(task)
    check_declared(config)
    assert {name for name, _ in leaves(config)} == set(schema(task))
    assert all(field.help for field in schema(task).values())


def test_the_parts_of_init_from_are_those_of_pretrained_files():
    annotation = schema("images")["init_parts"].annotation
    assert set(typing.get_args(typing.get_args(annotation)[0])) == set(PARTS)


def wrong(name: str, annotation: Any) -> Iterator[Any]:
    """Values outside of a field's type and range."""
    inner, within = annotation, Range()
    if typing.get_origin(annotation) is Annotated:
        inner, within = typing.get_args(annotation)
    if inner in (int, float):
        yield from ("x", math.nan, math.inf, -math.inf, None, (1,))
        if within.low > -math.inf:
            yield within.low if within.above else within.low - 1
        if within.high < math.inf:
            yield within.high if within.below else 2 * within.high + 1
    elif inner is bool:
        yield from (2, "True", None)
    elif inner is str:
        yield from (3, None)
    elif typing.get_origin(inner) is typing.Literal:
        yield from ("zzz", 3)
    elif typing.get_origin(inner) is tuple and name != "arms":
        yield from (3, (object(),), ((math.nan,),))


def fields():
    """Each field once: most are those of all tasks."""
    found = {(name, str(field)): task for task in TASKS for name, field in schema(task).items()}
    return [(task, name) for (name, _), task in found.items()]


def test_a_field_takes_nothing_else():
    for task, name in fields():
        for value in wrong(name, schema(task)[name].annotation):
            with pytest.raises(InputError) as caught:
                check_declared(changed(task, name, value))
            assert name.rpartition(".")[2].split("[")[0] in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("batch", 0, "batch must be an integer.*got 0"),
        ("optimizer.rate_rules", (("a(", 1.0),), r"'a\(', not a regular expression"),
        ("task", "image", "did you mean 'images'"),
        ("batchh", 3, "unknown config field 'batchh'; did you mean 'batch'"),
        ("optimizer.momentum", 0.9, "unknown config field 'optimizer.momentum'"),
        ("model.widht", 3, "unknown field of model vit 'widht'.*did you mean 'width'"),
        ("name", "", "name is empty"),
        (
            "init_parts",
            ("position",),
            r"init_parts is \('position',\), but config.init_from is not",
        ),
        ("mesh.tensor", 1024, "tensor 1024 doesn't fit"),
        ("scheme", (ImpulseBias(),), "ImpulseBias matches nothing among the paths"),
    ],
)
def test_a_comparison_refuses_it_before_data_are_read(name, value, words):
    config = changed("images", name, value)
    config.data.update(name="cifar10", dir="/nowhere")
    with pytest.raises(InputError, match=words):
        Comparison(config, say=lambda line: None)


IMAGENET = {"data.name": "imagenet2012", "data.size": 8, "eval.batch": 8}


@pytest.mark.parametrize(
    ("task", "overrides", "words"),
    [
        ("images", {"batch": 2000}, "batch 2000 is larger than the 1437"),
        ("images", {"data.classes": 5}, "data.classes 5: digits has 10 classes"),
        ("images", {"data.augment.crop": 100}, "crop 100 pads images of 8 pixels by more"),
        ("images", {"data.repeats": 3}, "data.repeats 3: repeated augmentation is for streamed"),
        ("images", {"together": 4, **IMAGENET}, "together 4 needs data that is held on the devic"),
        ("text", {"data.name": "ptb_wrod"}, "did you mean 'ptb_word'"),
        ("text", {"data.name": "ptb_word"}, "ptb_word needs the folder that holds it"),
    ],
)
def test_a_comparison_refuses_what_does_not_fit_together(tmp_path, task, overrides, words):
    config = changed(task, "steps", 10)
    with config.ignore_type():
        config.update_from_flattened_dict(overrides)
    with pytest.raises(InputError, match=words):
        quiet(config).train(tmp_path / "workdir")
    assert not (tmp_path / "workdir").exists()


def test_a_missing_field_is_named():
    config = default()
    del config.optimizer.clip
    with pytest.raises(InputError, match=r"the config has no optimizer.clip: start from"):
        quiet(config)


def test_arms_keep_the_order_in_which_they_are_set():
    config = default()
    config.arms = {"zeta": {}, "alpha": {"model": {"width": 32}}}
    assert list(config.arms) == ["zeta", "alpha"]
    assert list(config.copy_and_resolve_references().arms) == ["zeta", "alpha"]
    config.arms = ConfigDict({"b": {}, "a": {}}, sort_keys=False)
    assert list(config.arms) == ["b", "a"]


class Seen(ConfigDict):
    """A configuration that notes which fields are read."""

    def noting(self, found: set[str], prefix: str = "") -> "Seen":
        object.__setattr__(self, "_found", found)
        object.__setattr__(self, "_prefix", prefix)
        return self

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if isinstance(value, ConfigDict):
            return Seen(value).noting(self._found, f"{self._prefix}{name}.")
        self._found.add(self._prefix + name)
        return value


def test_a_program_reads_only_fields_that_affect_programs(tiny):
    """Otherwise two arms could share a program that isn't that of one of them."""
    config, found = tiny(), set()
    program_of(Seen(config).noting(found), ImageTask.describe(config), make_mesh())
    known = schema("images")
    for name in found & known.keys():
        assert "program" in known[name].affects, name
    assert {"batch", "optimizer.clip", "max_dispatch"} <= found


def test_what_a_field_affects():
    """A change of it shows in what results depend on exactly if they do."""
    start = {task: to_json(changed(task, "steps", 10)) for task in TASKS}
    for task, name in fields():
        field, before = schema(task)[name], start[task]
        if name in ("task", "arms", "scheme", "steps", "model.name"):
            continue
        after = to_json(changed(task, name, "other" if field.default != "other" else "x"))
        for what in ("data", "program", "result"):
            differs = affecting(before, what) != affecting(after, what)
            assert differs == (what in field.affects), name


def refusal(config: ConfigDict) -> str:
    """What is said of a configuration that is refused, or nothing."""
    try:
        quiet(config)
    except InputError as error:
        return str(error)
    return ""


OF_THE_LOOP = {"epochs", "eval.every", "eval.every_epochs", "optimizer.plateau"}
"""Fields that every task has, since the loop reads them and not the program."""


@pytest.mark.parametrize("task", TASKS)
def test_a_field_is_used_by_a_task_or_refused(task):
    """One that only some tasks use would otherwise be accepted and ignored by the others."""
    config, read = changed(task, "steps", 10), set()
    program_of(Seen(config).noting(read), tasks.TASKS[task].describe(config), make_mesh())
    ignored = []
    for name, field in schema(task).items():
        elsewhere = name.startswith(("data.", "model.", "mesh."))  # read by its data, model, mesh
        if "program" not in field.affects or elsewhere or name in read | OF_THE_LOOP:
            continue
        within = getattr(field.annotation, "__metadata__", (Range(),))[0]
        other = next(value for value in (0.5, 2, True, "other") if value in within)
        if name.rpartition(".")[2] not in refusal(changed(task, name, other)):
            ignored.append(name)
    assert ignored == []
