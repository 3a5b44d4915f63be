"""Recall: what counts, at which lengths, and that models learn it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.default import default, model
from mimetic_jax.analysis.plan import describe
from mimetic_jax.train.store.runs import Run
from tests.training import evaluations, killed, quiet, trained

GPT = {"width": 16, "depth": 1, "heads": 2, "positions": "rotary"}


def recall(name="copying", **overrides):
    config = default("recall")
    config.name, config.batch, config.steps, config.max_dispatch = name, 32, 60, 10
    config.data.update(name=name, vocabulary=8, length=3, pairs=2, queries=2, test_at=(1, 2))
    config.data.num_test = 40
    config.model = model("gpt", **GPT)
    config.optimizer.update(learning_rate=1e-2, warmup=2, schedule="constant")
    config.eval.batch, config.eval.every = 16, 30
    config.log_every, config.checkpoint_every = 10, 30
    config.update_from_flattened_dict(overrides)
    return config


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("recall")
    return workdir, trained(recall(), workdir)


@pytest.mark.slow
def test_learns_and_is_tested_at_every_length(run):
    first, *_, last = evaluations(Run.of(run[0], "run", 0))
    assert first["eval_loss"] == pytest.approx(np.log(11), rel=0.1)
    assert last["eval_recall"] > 0.8
    assert last["eval_count"] == 40 * 4
    assert 0 <= last["eval_recall_x2"] <= 1
    table = str(quiet(recall()).table(run[0]))
    header, _, row = table.splitlines()[:3]
    assert "steps to 95 [95 % CI]" in header
    assert "answers % at x2 [95 % CI]" in header
    assert f"{100 * last['eval_recall_x2']:.2f}" in row


@pytest.mark.slow
def test_resume_equals_no_stop(run, tmp_path):
    with killed(after=40):
        trained(recall(), tmp_path)
    jax.tree.map(np.testing.assert_array_equal, trained(recall(), tmp_path), run[1])


def test_answers_alone_count():
    program = quiet(recall()).arms["run"].program
    task = program.task
    variables = jax.jit(task.init)(jax.random.key(0))
    inputs, targets = program.feed.examples((), jax.random.key(2), jnp.int32(3))
    weights = (jnp.arange(32) < 5).astype(jnp.float32)

    @jax.jit
    def all_of_it(variables):
        loss = task.loss(variables["params"], {}, (inputs, targets), jax.random.key(1))
        sums = task.sums(variables, (inputs, targets), weights)
        logits = task.model.module.apply(variables, inputs, method="logits")
        return logits, loss, sums

    logits, (value, (metrics, _)), sums = all_of_it(variables)
    logits, asked = np.asarray(logits, np.float64), np.asarray(targets) >= 0
    assert asked.sum() == 32 * 4
    chosen = np.take_along_axis(logits, np.maximum(targets, 0)[..., None], -1)[..., 0]
    losses, right = np.log(np.exp(logits).sum(-1)) - chosen, logits.argmax(-1) == targets
    assert float(value) == pytest.approx(losses[asked].mean(), rel=1e-5)
    assert float(metrics["accuracy"]) == pytest.approx(right[asked].mean())
    assert int(sums["count"]) == asked[:5].sum()
    assert int(sums["correct"]) == right[:5][asked[:5]].sum()
    assert float(sums["loss"]) == pytest.approx(losses[:5][asked[:5]].sum(), rel=1e-5)


def test_sums_of_every_length():
    """The tokens of each test set count once, whatever the batch."""

    def tokens(variables, examples, weights):
        return {"tokens": (weights[:, None] * (examples[0] >= 0)).sum()}

    programs = [quiet(recall(**{"eval.batch": size})).arms["run"].program for size in (16, 40)]
    for program in programs:
        sums = program.feed.test(tokens, {}, program.feed.place(None))
        assert sums == {"tokens": 40 * 8, "x2_tokens": 40 * 14}


def test_plan():
    said = " ".join(describe(quiet(recall())).split())
    assert "copying 3 of 8 tokens; 40 test sequences of 8, 14 tokens" in said
    assert "60 steps of 32 (1,000 per epoch)" in said
