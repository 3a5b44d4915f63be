"""Restoring brackets, and starting a model of images from what that has learned."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util

from configs.default import default
from mimetic_jax import InputError
from mimetic_jax.analysis.plan import describe
from mimetic_jax.schemes import Mimetic
from mimetic_jax.train.start import initial_state, warm_start
from mimetic_jax.train.store.runs import Run
from tests.training import killed, quiet, trained

FROZEN = (("^(embedding|pos_embed)$", 0.0),)


def brackets(**overrides):
    """Words of 8 tokens, on blocks of the sizes of the fixture `tiny`."""
    config = default("dyck")
    config.name, config.batch, config.steps, config.max_dispatch = "brackets", 16, 100, 4
    config.data.update(length=8, max_depth=2, pairs=4, num_test=40)
    config.model.update(width=16, depth=1, heads=2)
    config.optimizer.update(learning_rate=1e-2, warmup=2, rate_rules=FROZEN)
    config.eval.batch, config.eval.every = 16, 50
    config.log_every, config.checkpoint_every = 4, 40
    config.update_from_flattened_dict(overrides)
    return config


def flat(params):
    return traverse_util.flatten_dict(params, sep="/")


@pytest.fixture(scope="module")
def warmup(tmp_path_factory):
    """The workdir of a warm-up, with its state."""
    workdir = tmp_path_factory.mktemp("warmup")
    return workdir, trained(brackets(), workdir)


@pytest.mark.slow
def test_learns_to_restore_brackets(warmup):
    """Embedding and positions stay as drawn: blocks, norm and head learn it."""
    workdir, after = warmup
    before = quiet(brackets()).arms["run"].program.initial_state(0, ()).params
    evaluations = Run.of(workdir, "run", 0).evaluations()
    first, last = evaluations[0], evaluations[-1]
    assert first["eval_loss"] == pytest.approx(np.log(8), rel=0.05)
    assert last["eval_accuracy"] > 0.5  # a guess among four kinds: 0.25
    assert last["eval_loss"] < 0.8 * np.log(4)
    for name in ("embedding", "pos_embed"):
        np.testing.assert_array_equal(after.params[name], before[name])


def test_the_loss_counts_masked_tokens_alone():
    program = quiet(brackets()).arms["run"].program
    task = program.task
    variables = jax.jit(task.init)(jax.random.key(0))
    inputs, tokens = program.feed.examples((), jax.random.key(2), jnp.int32(3))
    weights = (jnp.arange(16) < 5).astype(jnp.float32)

    @jax.jit
    def all_of_it(variables):
        loss = task.loss(variables["params"], {}, (inputs, tokens), jax.random.key(1))
        sums = task.count(variables, (inputs, tokens), weights)
        return task.model.module.apply(variables, inputs), loss, sums

    logits, (value, (metrics, _)), sums = all_of_it(variables)
    logits, hidden = np.asarray(logits, np.float64), np.asarray(inputs) == 8
    chosen = np.take_along_axis(logits, np.asarray(tokens)[..., None], -1)[..., 0]
    losses = np.log(np.exp(logits).sum(-1)) - chosen
    right = logits.argmax(-1) == tokens
    assert float(value) == pytest.approx(losses[hidden].mean(), rel=1e-5)
    assert float(metrics["accuracy"]) == pytest.approx(right[hidden].mean())
    assert int(sums["count"]) == hidden[:5].sum()
    assert int(sums["correct"]) == (right & hidden)[:5].sum()
    assert float(sums["loss"]) == pytest.approx(losses[:5][hidden[:5]].sum(), rel=1e-5)


def test_steps_have_words_of_their_own():
    feed = quiet(brackets()).arms["run"].program.feed
    draw = jax.jit(lambda key, step: feed.examples((), feed.begin((), key, step), step)[1])
    words = [draw(jax.random.key(seed), step) for seed, step in ((0, 0), (0, 1), (1, 0))]
    assert len(np.unique(np.concatenate(words), axis=0)) == 48


def test_every_test_word_counts_once_in_batches_of_any_size():
    """The same words, whatever the run."""
    programs = [quiet(brackets(**{"eval.batch": size})).arms["run"].program for size in (16, 40)]
    # Numbers in place of a model: each token by its square, only where it counts.
    sums = [program.feed.test(_squares, {}, program.feed.place(None)) for program in programs]
    assert sums[0] == sums[1]
    assert sums[0]["words"] == 40
    assert programs[0].feed.sample(None).shape == (1, 8)


def _squares(variables, examples, weights):
    real = weights > 0
    squares = jnp.where(real[:, None], examples[1] ** 2, 0)
    return {"words": real.sum(dtype=jnp.int32), "squares": squares.sum(dtype=jnp.int32)}


@pytest.mark.slow
def test_resume_equals_no_stop(warmup, tmp_path):
    with killed(after=60):
        trained(brackets(), tmp_path)
    jax.tree.map(np.testing.assert_array_equal, trained(brackets(), tmp_path), warmup[1])


def test_blocks_go_into_a_model_of_images(tiny, warmup):
    """And nothing else: neither positions nor the last norm, though both models have them."""
    workdir, warm = warmup
    source = {"init_from": f"{workdir}/runs/{{arm}}/{{seed}}", "init_parts": ("blocks",)}
    arm = quiet(tiny(scheme=(), **source)).arms["run"]
    fresh = flat(arm.program.initial_state(0, ()).params)
    started = flat(initial_state(arm.program, arm.config, "run", 0, print).params)
    for name, leaf in started.items():
        theirs = flat(warm.params) if name.startswith("block_0/") else fresh
        np.testing.assert_array_equal(leaf, theirs[name], err_msg=name)


def zeros(config):
    """A model of images without its own values."""
    params = quiet(config).arms["run"].program.shapes.params
    return {"params": jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), params)}


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"model.depth": 2}, "the teacher has no params/block_1/"),
        ({"model.width": 32}, "can't be selected from the teacher's"),
    ],
)
def test_a_warmup_of_a_smaller_model_is_refused(tiny, warmup, sizes, words):
    with pytest.raises(InputError, match=words):
        warm_start(zeros(tiny(**sizes)), f"{warmup[0]}/runs/run/0", print, parts=("blocks",))


def test_a_larger_warmup_gives_evenly_spaced_weights(tiny, warmup):
    workdir, warm = warmup
    small = zeros(tiny(**{"model.width": 8, "model.heads": 1}))
    chosen = warm_start(small, f"{workdir}/runs/run/0", print, parts=("blocks",))["params"]
    np.testing.assert_array_equal(
        chosen["block_0"]["mlp"]["fc1"]["kernel"],
        warm.params["block_0"]["mlp"]["fc1"]["kernel"][::2, ::2],
    )
    assert not chosen["norm"]["scale"].any()


def test_plan():
    said = " ".join(describe(quiet(brackets(scheme=(Mimetic(),)))).split())
    assert "dyck, words of 8 tokens, 4 kinds of brackets" in said
    assert "100 steps of 16 (1,000 per epoch)" in said
    assert "1 embedding, 1 head/kernel, 1 pos_embed" in said  # what the scheme doesn't write
