"""Starting from other parameters: of the same size, of a larger model, of a file."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from mimetic_jax import InputError, weights
from mimetic_jax.train.compare import Comparison
from mimetic_jax.train.loop import Run
from mimetic_jax.train.warm_start import warm_start


def quiet(config):
    return Comparison(config, say=lambda line: None)


def trained(config, workdir):
    comparison = quiet(config)
    comparison.train(workdir)
    return comparison.restored(Run.of(workdir, "run", 0)).params


def initial(config):
    return quiet(config).arms["run"].program.initial_state(0, config.scheme).variables


def test_a_run_of_the_same_size_gives_all_but_the_head(tiny, tmp_path):
    teacher = trained(tiny(), tmp_path)
    student = initial(tiny(seeds=(1,)))
    said = []
    new = warm_start(student, str(tmp_path / "runs/run/{seed}"), "run", 0, said.append)["params"]
    np.testing.assert_array_equal(
        new["block_0"]["mlp"]["fc1"]["kernel"], teacher["block_0"]["mlp"]["fc1"]["kernel"]
    )
    np.testing.assert_array_equal(new["pos_embed"], teacher["pos_embed"])
    np.testing.assert_array_equal(new["head"]["kernel"], student["params"]["head"]["kernel"])
    assert "starts from" in said[-1]
    # Or one of its checkpoints: of 4, 8 and 12 the newest two are there.
    newest, earlier = (
        warm_start(student, f"{tmp_path}/runs/run/0/checkpoints/{step}", "run", 0, print)["params"]
        for step in (12, 8)
    )
    jax.tree.map(np.testing.assert_array_equal, newest, new)
    assert np.abs(earlier["pos_embed"] - new["pos_embed"]).max() > 0
    with pytest.raises(InputError, match=r"no checkpoint 4 in .*, which has \[8, 12\]"):
        warm_start(student, str(tmp_path / "runs/run/0/checkpoints/4"), "run", 0, print)


def test_a_larger_run_gives_evenly_spaced_weights(tiny, tmp_path):
    """Through the trainer, as `init_from` of a config, under every arm and seed of its own."""
    teacher = trained(tiny(**{"model.width": 32, "model.heads": 4}), tmp_path / "teacher")
    config = tiny(scheme=(), init_from=str(tmp_path / "teacher/runs/{arm}/{seed}"))
    config.optimizer.learning_rate = 1e-20
    student = trained(config, tmp_path / "student")
    expected = weights.select(
        {"kernel": np.asarray(teacher["block_0"]["mlp"]["fc1"]["kernel"])}, {"kernel": (16, 64)}
    )["kernel"]
    got = student["block_0"]["mlp"]["fc1"]["kernel"]
    np.testing.assert_allclose(got, expected, atol=1e-6)
    query = student["block_0"]["attention"]["query"]["kernel"]
    theirs = teacher["block_0"]["attention"]["query"]["kernel"]
    np.testing.assert_allclose(query, theirs[::2, ::2], atol=1e-6)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("nowhere", "neither a run's folder"),
        ("weights.npz", "weights.npz"),
    ],
)
def test_bad_sources(tiny, tmp_path, source, words):
    with pytest.raises(InputError, match=words) as caught:
        warm_start(initial(tiny()), str(tmp_path / source), "run", 0, print)
    assert "\n" not in str(caught.value)


def test_a_teacher_that_is_smaller_is_refused(tiny, tmp_path):
    trained(tiny(), tmp_path)
    with pytest.raises(InputError, match="can't be selected from the teacher's"):
        warm_start(
            initial(tiny(**{"model.width": 32, "model.heads": 4})),
            str(tmp_path / "runs/run/0"),
            "run",
            0,
            print,
        )
