"""Starting from other parameters: of a run, of a file, or in part."""

import jax
import numpy as np
import pytest

from mimetic_jax import InputError
from mimetic_jax.analysis.capture import networks
from mimetic_jax.analysis.plan import describe
from mimetic_jax.models import resample
from mimetic_jax.rules import paths
from mimetic_jax.train.start import warm_start
from mimetic_jax.train.store.runs import Run
from tests.train.test_pretrained import drawn, hugging_face, shapes, whole, write
from tests.training import killed, quiet, trained

__all__ = ["hugging_face"]  # a fixture


def initial(config):
    return quiet(config).arms["run"].program.initial_state(0, config.scheme).variables


@pytest.mark.slow
def test_a_run_of_the_same_size_gives_all_but_the_head(tiny, finished):
    teacher = quiet(tiny()).restored(Run.of(finished, "run", 0)).params
    student = initial(tiny(seeds=(1,)))
    said = []
    new = warm_start(student, str(finished / "runs/run/0"), said.append)["params"]
    expected = teacher["block_0"]["mlp"]["fc1"]["kernel"]
    np.testing.assert_array_equal(new["block_0"]["mlp"]["fc1"]["kernel"], expected)
    np.testing.assert_array_equal(new["pos_embed"], teacher["pos_embed"])
    np.testing.assert_array_equal(new["head"]["kernel"], student["params"]["head"]["kernel"])
    assert "starts from" in said[-1]
    # Or one of its checkpoints: of 4, 8 and 12 the newest two are there.
    newest, earlier = (
        warm_start(student, f"{finished}/runs/run/0/checkpoints/{step}", print)["params"]
        for step in (12, 8)
    )
    jax.tree.map(np.testing.assert_array_equal, newest, new)
    assert np.abs(earlier["pos_embed"] - new["pos_embed"]).max() > 0
    with pytest.raises(InputError, match=r"init_from .*checkpoints/4 doesn't exist"):
        warm_start(student, str(finished / "runs/run/0/checkpoints/4"), print)


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
        warm_start(initial(tiny()), str(tmp_path / source), print)


def fresh_model(**change):
    return {"params": jax.tree.map(jax.numpy.asarray, drawn(**change))}


def paths_of(variables):
    return dict(paths.flatten(variables["params"])[0])


def changed(before, after):
    old, new = paths_of(before), paths_of(after)
    return {path: leaf for path, leaf in new.items() if not np.array_equal(leaf, old[path])}


@pytest.mark.parametrize("scan", [False, True])
def test_parts_of_a_file_are_attention_kernels_and_positions(hugging_face, tmp_path, scan):
    """Into a model of smaller patches and other classes, on the same grid or another."""
    path = str(write(tmp_path / "a.safetensors", hugging_face))
    pretrained = whole(path, shapes(scan=scan))
    fresh = fresh_model(patch=2, side=8, num_classes=3, scan=scan)
    blocks = ["blocks"] if scan else ["block_0", "block_1"]
    kernels = {
        f"{block}/attention/{name}/kernel"
        for block in blocks
        for name in ("query", "key", "value", "out")
    }
    both = changed(fresh, warm_start(fresh, path, print, parts=("attention", "position")))
    assert both.keys() == kernels | {"pos_embed"}
    theirs = pretrained[blocks[-1]]["attention"]["out"]["kernel"]
    np.testing.assert_array_equal(both[f"{blocks[-1]}/attention/out/kernel"], theirs)
    np.testing.assert_array_equal(both["pos_embed"], pretrained["pos_embed"])
    finer = fresh_model(patch=2, side=16, scan=scan)
    alone = changed(finer, warm_start(finer, path, print, parts=("position",)))
    assert alone.keys() == {"pos_embed"}
    expected = resample(pretrained["pos_embed"], (4, 4), (8, 8), prefix=1)
    np.testing.assert_array_equal(alone["pos_embed"], expected)


def test_a_deeper_file_gives_its_first_layers(hugging_face, tmp_path):
    path = str(write(tmp_path / "a.safetensors", hugging_face))
    expected, fresh = whole(path, shapes()), fresh_model(depth=1)
    new = changed(fresh, warm_start(fresh, path, print))
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
def test_weights_of_other_sizes_are_refused(hugging_face, tmp_path, sizes, words):
    path = str(write(tmp_path / "a.safetensors", hugging_face))
    with pytest.raises(InputError, match=words):
        warm_start(fresh_model(**sizes), path, print)


def test_analysis_starts_where_training_does(tiny, finished, tmp_path):
    """`--mode=analyze` reads `init_from` as a run does."""
    config = tiny(scheme=(), init_from=str(finished / "runs/run/0"))
    (student,) = networks(quiet(config), tmp_path / "none", data=False)
    start, trained = networks(quiet(tiny()), finished, data=False)
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
    with pytest.raises(InputError, match=r"isn't finished: finish it, or name one of its"):
        quiet(student).train(tmp_path / "student")
    named = student.copy_and_resolve_references()
    named.init_from = f"{student.init_from}/checkpoints/4"
    trained(named, tmp_path / "named")
    trained(teacher, tmp_path / "teacher")
    trained(student, tmp_path / "student")
    marks = {Run.of(tmp_path / name, "run", 0).record().source for name in ("named", "student")}
    assert None not in marks
    assert len(marks) == 2
    (tmp_path / "teacher").rename(tmp_path / "first")
    trained(tiny(scheme=()), tmp_path / "teacher")
    student.seeds = (0, 1)
    with pytest.raises(InputError, match=r"with other .*runs/run/0 \(fingerprint \w+ there"):
        quiet(student).train(tmp_path / "student")
