"""Restoring brackets, and starting a model of images from what that has learned."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util

from configs.default import default_dyck
from mimetic_jax import InputError
from mimetic_jax.analysis.plan import describe
from mimetic_jax.schemes import Mimetic
from mimetic_jax.train import loop
from mimetic_jax.train.compare import Comparison
from mimetic_jax.train.loop import Run
from mimetic_jax.train.state import order_key, stream

FROZEN = (("^(embedding|pos_embed)$", 0.0),)


def brackets(**overrides):
    """Words of 16 tokens, on blocks of the sizes of the fixture `tiny`."""
    config = default_dyck()
    config.name, config.batch, config.steps, config.max_dispatch = "brackets", 16, 12, 4
    config.data.update(length=16, pairs=4, num_test=40)
    config.model.update(width=16, depth=1, heads=2)
    config.optimizer.update(learning_rate=1e-2, warmup=2, rate_rules=FROZEN)
    config.eval.batch, config.eval.every = 16, 4
    config.log_every, config.checkpoint_every = 2, 4
    config.update_from_flattened_dict(overrides)
    return config


def quiet(config):
    return Comparison(config, say=lambda line: None)


def train(config, workdir):
    comparison = quiet(config)
    comparison.train(workdir)
    return comparison.restored(Run.of(workdir, "run", 0))


def flat(params):
    return traverse_util.flatten_dict(params, sep="/")


def test_learns_to_restore_brackets(tmp_path):
    """Embedding and positions stay as drawn: blocks, norm and head learn it."""
    config = brackets(steps=200, **{"eval.every": 0, "checkpoint_every": 0, "model.width": 32})
    before = quiet(config).arms["run"].program.initial_state(0, ()).params
    after = train(config, tmp_path).params
    first, last = Run.of(tmp_path, "run", 0).evaluations()
    assert first["eval_loss"] == pytest.approx(np.log(8), rel=0.05)
    assert last["eval_accuracy"] > 0.5  # a guess among four kinds: 0.25
    assert last["eval_loss"] < 0.8 * np.log(4)
    for name in ("embedding", "pos_embed"):
        np.testing.assert_array_equal(after[name], before[name])


def test_the_loss_counts_masked_tokens_alone():
    program = quiet(brackets()).arms["run"].program
    variables = program.initial_state(0, ()).variables
    feed, task = program.feed, program.task
    inputs, tokens = feed.examples((), order_key(stream(0, "data")), jnp.int32(3))
    logits = np.asarray(task.model.module.apply(variables, inputs), np.float64)
    losses = (
        np.log(np.exp(logits).sum(-1)) - np.take_along_axis(logits, tokens[..., None], -1)[..., 0]
    )
    hidden = np.asarray(inputs) == 8
    right = (logits.argmax(-1) == tokens)[hidden]
    value, (metrics, _) = task.loss(variables["params"], {}, (inputs, tokens), jax.random.key(1))
    assert float(value) == pytest.approx(losses[hidden].mean(), rel=1e-5)
    assert float(metrics["accuracy"]) == pytest.approx(right.mean())
    weights = jnp.arange(16) < 5
    sums = task.count(variables, (inputs, tokens), weights.astype(jnp.float32))
    assert int(sums["count"]) == hidden[:5].sum()
    assert float(sums["loss"]) == pytest.approx(losses[:5][hidden[:5]].sum(), rel=1e-5)


def test_steps_have_words_of_their_own_and_the_test_always_the_same():
    one, other = (quiet(brackets(**{"eval.batch": size})).arms["run"] for size in (16, 40))
    key = order_key(stream(0, "data"))
    words = [np.asarray(one.program.feed.examples((), key, jnp.int32(step))[1]) for step in (0, 1)]
    assert len(np.unique(np.concatenate(words), axis=0)) == 32
    variables = one.program.initial_state(0, ()).variables
    sums = [
        arm.program.feed.test(arm.program.task.count, variables, arm.data) for arm in (one, other)
    ]
    assert sums[0]["count"] == sums[1]["count"] > 40
    assert sums[0]["loss"] == pytest.approx(sums[1]["loss"], rel=1e-5)
    assert one.program.feed.sample(one.data).shape == (1, 16)


class Killed(BaseException):
    """What ends a run in the middle, as a signal would."""


def test_resume_equals_no_stop(tmp_path, monkeypatch):
    whole = train(brackets(), tmp_path / "whole")
    original = loop._check_finite

    def kill(run, first, history, *rest):
        original(run, first, history, *rest)
        if first >= 8:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(loop, "_check_finite", kill)
        with pytest.raises(Killed):
            train(brackets(), tmp_path / "killed")
    resumed = train(brackets(), tmp_path / "killed")
    jax.tree.map(np.testing.assert_array_equal, resumed, whole)


def test_blocks_go_into_a_model_of_images(tiny, tmp_path):
    """And nothing else: neither positions nor the last norm, though both models have them."""
    warm = train(brackets(scheme=(Mimetic(),)), tmp_path).params
    source = {"init_from": f"{tmp_path}/runs/{{arm}}/{{seed}}", "init_parts": ("blocks",)}
    fresh, started = (
        quiet(tiny(scheme=(), **more)).arms["run"].program.initial_state(0, ()).params
        for more in ({}, source)
    )
    jax.tree.map(np.testing.assert_array_equal, fresh, started)  # the program knows no source
    comparison = quiet(tiny(scheme=(), **source))
    arm = comparison.arms["run"]
    state = loop.initial_state(arm.program, arm.config, "run", 0, comparison.say)
    for name, leaf in flat(state.params).items():
        theirs = flat(warm if name.startswith("block_0/") else fresh)[name]
        np.testing.assert_array_equal(leaf, theirs, err_msg=name)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"model.depth": 2}, "the teacher has no params/block_1/"),
        ({"model.width": 32}, r"the student's shape \(.*32.*\) can't be selected"),
    ],
)
def test_a_warmup_of_a_smaller_model_is_refused(tiny, trained, sizes, words):
    source = {"init_from": str(trained / "runs/run/0"), "init_parts": ("blocks",)}
    arm = quiet(tiny(scheme=(), **source, **sizes)).arms["run"]
    with pytest.raises(InputError, match=words):
        loop.initial_state(arm.program, arm.config, "run", 0, print)


def test_a_larger_warmup_gives_evenly_spaced_weights(tiny, trained):
    source = {"init_from": str(trained / "runs/run/0"), "init_parts": ("blocks",)}
    arm = quiet(tiny(scheme=(), **source, **{"model.width": 8, "model.heads": 1})).arms["run"]
    params = loop.initial_state(arm.program, arm.config, "run", 0, print).params
    theirs = quiet(brackets()).restored(Run.of(trained, "run", 0)).params
    np.testing.assert_array_equal(
        params["block_0"]["mlp"]["fc1"]["kernel"],
        theirs["block_0"]["mlp"]["fc1"]["kernel"][::2, ::2],
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The workdir of a warm-up."""
    workdir = tmp_path_factory.mktemp("warmup")
    train(brackets(), workdir)
    return workdir


def test_plan():
    said = describe(quiet(brackets(scheme=(Mimetic(),))))
    assert "dyck, words of 16 tokens, 4 kinds of brackets" in said
    assert "12 steps of 16 (1,000 per epoch)" in said
    assert "unchanged: 1 embedding" in said


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"data.name": "dick"}, "did you mean 'dyck'"),
        ({"data.length": 1}, "length 1 of Dyck words"),
        ({"model.heads": 5}, "heads 5 does not divide width 16"),
    ],
)
def test_bad_input(overrides, words):
    with pytest.raises(InputError, match=words) as caught:
        quiet(brackets(**overrides))
    assert "\n" not in str(caught.value)
