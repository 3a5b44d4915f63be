"""Weights of a run or of a file, whole or in part."""

from unittest import mock

import jax
import numpy as np
import pytest

from mimetic_jax import InputError
from mimetic_jax.analysis.capture import snapshots
from mimetic_jax.analysis.plan import describe
from mimetic_jax.models import resample
from mimetic_jax.rules import paths
from mimetic_jax.schemes import Mimetic
from mimetic_jax.train.pretrained import Pretrained
from mimetic_jax.train.start import initial_state, provenance_of
from mimetic_jax.train.store.checkpoint import Checkpoints
from mimetic_jax.train.store.runs import Run
from tests.train.test_vit_files import drawn, hugging_face, shapes, timm, whole, write
from tests.training import killed, quiet, trained

__all__ = ["hugging_face", "timm"]  # fixtures


def loaded(variables, source, say=print, parts=()):
    """The variables with the arrays of a source in the place of theirs."""
    arrays = Pretrained(str(source)).arrays_for(variables, say, parts)
    named, treedef = paths.flatten(variables)
    return jax.tree.unflatten(treedef, [arrays.get(name, leaf) for name, leaf in named])


def initial(config):
    return quiet(config).arms["run"].program.initial_state(0, config.scheme).variables


@pytest.mark.slow
def test_a_run_of_the_same_size_gives_all_but_the_head(tiny, finished):
    teacher = quiet(tiny()).restored(Run.of(finished, "run", 0)).params
    student = initial(tiny(seeds=(1,)))
    said = []
    new = loaded(student, finished / "runs/run/0", said.append)["params"]
    expected = teacher["block_0"]["mlp"]["fc1"]["kernel"]
    np.testing.assert_array_equal(new["block_0"]["mlp"]["fc1"]["kernel"], expected)
    np.testing.assert_array_equal(new["pos_embed"], teacher["pos_embed"])
    np.testing.assert_array_equal(new["head"]["kernel"], student["params"]["head"]["kernel"])
    assert "starts from" in said[-1]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("nowhere", "init_from .*nowhere doesn't exist"),
        ("", "neither a run's folder"),
        ("weights.npz", "init_from .*weights.npz doesn't exist"),
    ],
)
def test_bad_sources(tiny, tmp_path, source, words):
    with pytest.raises(InputError, match=words):
        loaded(initial(tiny()), tmp_path / source)


def fresh_model(**change):
    return {"params": jax.tree.map(jax.numpy.asarray, drawn(**change))}


def paths_of(variables):
    return dict(paths.flatten(variables["params"])[0])


def changed(before, after):
    old, new = paths_of(before), paths_of(after)
    return {path: leaf for path, leaf in new.items() if not np.array_equal(leaf, old[path])}


@pytest.mark.parametrize("scan", [False, True])
def test_parts_of_a_file_are_attention_kernels_and_positions(timm, tmp_path, scan):
    """Into a model of smaller patches and other classes, on the same grid or another."""
    path = str(write(tmp_path / "a.safetensors", timm))
    pretrained = whole(path, shapes(scan=scan))
    fresh = fresh_model(patch=2, side=8, num_classes=3, scan=scan)
    blocks = ["blocks"] if scan else ["block_0", "block_1"]
    kernels = {
        f"{block}/attention/{name}/kernel"
        for block in blocks
        for name in ("query", "key", "value", "out")
    }
    both = changed(fresh, loaded(fresh, path, parts=("attention", "position")))
    assert both.keys() == kernels | {"pos_embed"}
    theirs = pretrained[blocks[-1]]["attention"]["out"]["kernel"]
    np.testing.assert_array_equal(both[f"{blocks[-1]}/attention/out/kernel"], theirs)
    np.testing.assert_array_equal(both["pos_embed"], pretrained["pos_embed"])
    finer = fresh_model(patch=2, side=16, scan=scan)
    alone = changed(finer, loaded(finer, path, parts=("position",)))
    assert alone.keys() == {"pos_embed"}
    expected = resample(pretrained["pos_embed"], (4, 4), (8, 8), prefix=1)
    np.testing.assert_array_equal(alone["pos_embed"], expected)


def test_a_deeper_file_gives_its_first_layers(timm, tmp_path):
    path = str(write(tmp_path / "a.safetensors", timm))
    expected, fresh = whole(path, shapes()), fresh_model(depth=1)
    new = changed(fresh, loaded(fresh, path))
    assert new.keys() == {name for name in paths_of(fresh) if not name.startswith("head/")}
    right = expected["block_0"]["mlp"]["fc1"]["kernel"]
    np.testing.assert_array_equal(new["block_0/mlp/fc1/kernel"], right)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"width": 16, "heads": 2}, r"key/bias is \(3, 8\) in .*a.safetensors, not \(2, 8\)"),
        ({"depth": 3}, r"a.safetensors has no params/block_2/.* it has params/"),
    ],
)
def test_weights_of_other_sizes_are_refused(timm, tmp_path, sizes, words):
    path = str(write(tmp_path / "a.safetensors", timm))
    with pytest.raises(InputError, match=words):
        loaded(fresh_model(**sizes), path)


def test_weights_are_read_once_for_all_runs(tiny, finished):
    config = tiny(scheme=(), init_from=str(finished / "runs/run/0"))
    config.arms = {"mimetic": {"scheme": (Mimetic(),)}, "default": {}}
    arms = quiet(config).arms
    with (
        mock.patch.object(
            Checkpoints, "variables", autospec=True, side_effect=Checkpoints.variables
        ) as read,
        mock.patch.object(
            Checkpoints, "record", autospec=True, side_effect=Checkpoints.record
        ) as hashed,
    ):
        marks = set()
        for arm in arms.values():
            for seed in (0, 1):
                marks.add(provenance_of(arm, seed).source)
                initial_state(arm, seed, print)
    assert (read.call_count, hashed.call_count, len(marks)) == (1, 1, 1)


def test_analysis_starts_where_training_does(tiny, finished, tmp_path):
    """`--mode=analyze` reads `init_from` as a run does."""
    config = tiny(scheme=(), init_from=str(finished / "runs/run/0"))
    (student,) = snapshots(quiet(config), tmp_path / "none", data=False)
    start, trained = snapshots(quiet(tiny()), finished, data=False)
    kernels = [
        one.variables["params"]["block_0"]["mlp"]["fc1"]["kernel"]
        for one in (start, student, trained)
    ]
    assert not np.array_equal(kernels[0], kernels[1])
    np.testing.assert_array_equal(kernels[1], kernels[2])


def test_what_a_later_run_lacks_is_reported_before_the_first_trains(tiny, finished, tmp_path):
    """Also if it is there in another size; a plan says the same, and what a start gives."""
    config, source = tiny(scheme=()), f"{finished}/runs/run/0"
    for lacking, words in (
        ({"init_from": f"{finished}/runs/other/0"}, r"init_from .*other/0 doesn't exist"),
        (
            {"init_from": source, "model": {"heads": 4}},
            r"arm other: .*key/bias is \(2, 8\) in .*, not \(4, 4\)",
        ),
    ):
        config.arms = {"run": {"init_from": source}, "other": lacking}
        for refused in (lambda: quiet(config).train(tmp_path / "student"), lambda: planned(config)):
            with pytest.raises(InputError, match=words):
                refused()
    assert not (tmp_path / "student").exists()
    config.arms = {"run": {"init_from": source}, "default": {}}
    assert f"starts from 22 of 24 parameters of {source}" in planned(config)
    assert planned(config).count("as the model draws it") == 1


def planned(config):
    return " ".join(describe(quiet(config)).split())


@pytest.mark.slow
def test_a_start_is_recorded_by_its_content(tiny, tmp_path):
    """A run that isn't finished is no start, and a start that changes is another one."""
    teacher, student = tiny(), tiny(scheme=(), init_from=str(tmp_path / "teacher/runs/run/0"))
    with killed(5):
        trained(teacher, tmp_path / "teacher")
    with pytest.raises(InputError, match=r"isn't finished: train it to its end"):
        quiet(student).train(tmp_path / "student")
    trained(teacher, tmp_path / "teacher")
    trained(student, tmp_path / "student")
    mark = Run.of(tmp_path / "student", "run", 0).record().source
    assert mark == Pretrained(student.init_from).digest
    (tmp_path / "teacher").rename(tmp_path / "first")
    trained(tiny(scheme=()), tmp_path / "teacher")
    student.seeds = (0, 1)
    with pytest.raises(InputError, match=r"with other .*runs/run/0 \(fingerprint \w+ there"):
        quiet(student).train(tmp_path / "student")
