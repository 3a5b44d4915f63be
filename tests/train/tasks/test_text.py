"""Language models: the protocol in NumPy, and the laws of every other training."""

import dataclasses
import gc
import weakref
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import wikitext103
from mimetic_jax import InputError
from mimetic_jax.analysis.plan import describe
from mimetic_jax.data.text import corpus as texts
from mimetic_jax.schemes import Bigram, Cooccurrence, Permuted
from mimetic_jax.train.cluster.mesh import make_mesh
from mimetic_jax.train.state import stream
from mimetic_jax.train.store.runs import Run
from mimetic_jax.train.tasks import text as text_task
from mimetic_jax.weights import cooccurrence, following
from tests.models.values import drawn
from tests.training import killed, program_of, quiet, trained


def test_evaluation_is_the_protocol_in_numpy(text):
    """Windows 8 tokens apart; each target counts in the first window that reaches it."""
    comparison = quiet(text())
    comparison.arms.load_data()
    program, data = comparison.arms["run"].program, comparison.arms["run"].on_device()
    variables = program.initial_state(0, ()).variables
    params = variables["params"]
    sums = program.feed.test(program.task.sums, variables, data)
    model = jax.jit(lambda inputs: program.task.model.module.apply(variables, inputs))
    embedding = np.asarray(params["embedding"], np.float64)
    for prefix in ("", "test_"):
        tokens = np.asarray(data.tests[prefix][0])
        losses: dict[int, float] = {}
        for start in range(0, len(tokens) - 1, 8):
            inputs, targets = tokens[start : start + 12], tokens[start + 1 : start + 13]
            hidden = np.asarray(model(inputs[None, : len(targets)]), np.float64)[0]
            logits = hidden @ embedding.T
            found = np.log(np.exp(logits).sum(-1)) - logits[np.arange(len(targets)), targets]
            losses = dict(enumerate(found, start + 1)) | losses
        assert int(sums[f"{prefix}count"]) == len(losses) == len(tokens) - 1
        assert sums[f"{prefix}loss"] == pytest.approx(sum(losses.values()), rel=1e-5)


def test_byte_pairs_are_scored_by_the_bytes_that_they_stand_for(text, tmp_path, monkeypatch):
    pytest.importorskip("tokenizers")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    comparison = quiet(text(**{"data.name": "text_bpe", "data.vocabulary": 270}))
    comparison.arms.load_data()
    task, info = comparison.arms["run"].program.task, comparison.info
    counts = {"count": info.num_valid - 1, "test_count": info.num_test - 1}
    found = task.evaluation({"loss": 500.0, "test_loss": 900.0, **counts}).values
    folder = comparison.config.data.dir
    for prefix, file, total in (("", "ptb.valid.txt", 500), ("test_", "ptb.test.txt", 900)):
        corpus = texts.load_text("text_bpe", folder, 270)
        first = corpus.vocabulary[(corpus.test if prefix else corpus.valid)[0]]
        scored = len(next(Path(folder).rglob(file)).read_bytes()) - len(first)
        bits = total / np.log(2)
        assert found[f"{prefix}bpt"] == pytest.approx(bits / counts[f"{prefix}count"])
        assert found[f"{prefix}bpb"] == pytest.approx(bits / scored)
    assert task.score.counted([(1, found)]) == found
    assert "bits/byte" in task.score.label


def test_a_sample_is_whole_windows(text):
    comparison = quiet(text())
    comparison.arms.load_data()
    program, data = comparison.arms["run"].program, comparison.arms["run"].on_device()
    tokens = np.asarray(data.tests[""][0])
    for wanted, count in ((1, 1), (3, 3), (99, len(tokens) // 12)):
        sample = program.feed.sample(data, wanted)
        np.testing.assert_array_equal(sample, tokens[: 12 * count].reshape(count, 12))


def test_training_counts_the_last_targets_of_a_window_alone(text):
    program = quiet(text()).arms["run"].program
    params = drawn(program.task.model.module, jnp.zeros((1, 12), jnp.int32), std=0.1)
    tokens = np.random.default_rng(0).integers(0, 10, (4, 13))
    weights = np.zeros((4, 12), np.float32)
    weights[:, 4:] = 1
    batch = tokens[:, :-1], tokens[:, 1:], weights

    @jax.jit
    def both(params):
        loss, _ = program.task.loss(params, {}, batch, jax.random.key(1))
        return loss, program.task.model.module.apply({"params": params}, batch[0])

    loss, hidden = both(params)
    logits = np.asarray(hidden @ params["embedding"].T + params["decoder_bias"], np.float64)
    chosen = np.take_along_axis(logits, np.asarray(batch[1])[..., None], -1)[..., 0]
    losses = np.log(np.exp(logits).sum(-1)) - chosen
    np.testing.assert_allclose(loss, losses[:, 4:].mean(), rtol=1e-5)


@pytest.mark.slow
def test_resume_equals_no_stop(text, tmp_path):
    """With dropout of both kinds, and a rate that a plateau has lowered on the way."""
    overrides = {"steps": 40, "optimizer.plateau": "tenth", "optimizer.learning_rate": 0.5}
    overrides |= {"model.dropout": 0.1, "model.embedding_dropout": 0.1}
    whole = trained(text(**overrides), tmp_path / "whole")
    lines = Run.of(tmp_path / "whole", "run", 0).metrics.read()[1:-1]
    rates = [line["learning_rate"] for line in lines if "learning_rate" in line]
    with killed(after=34):
        trained(text(**overrides), tmp_path / "killed")
    resumed = trained(text(**overrides), tmp_path / "killed")
    jax.tree.map(np.testing.assert_array_equal, resumed, whole)
    arm = quiet(text(**overrides)).arms["run"]
    assert min(rates) < 0.2 * float(arm.program.schedule(arm.peak, 30))


def test_plan(text):
    said = " ".join(describe(quiet(text(**{"data.dir": None, "data.name": "wikitext103"}))).split())
    assert "103,227,021 train" in said
    assert "unchanged: " in said


@pytest.mark.parametrize("name", ["ptb_word", "text_word"])
def test_a_share_of_the_training_text_is_its_first_tokens_alone(text, words, name):
    """Also for the counts; the vocabulary and the other splits are those of the whole text."""
    comparison = quiet(text(**{"data.subset": 0.3, "data.name": name}))
    described = comparison.info
    comparison.arms.load_data()
    part, whole = comparison.arms["run"].source.load(), texts.load_text(name, str(words))
    assert part.vocabulary == whole.vocabulary
    assert len(part.test) == len(whole.test)
    size = round(0.3 * len(whole.train))
    assert comparison.info.num_train == size
    assert name == "ptb_word" or described.num_train == size
    np.testing.assert_array_equal(part.train, whole.train[:size])
    found = comparison.arms["run"].program.task.data_statistics(
        (Cooccurrence(), Permuted(Bigram())), comparison.arms["run"].source.load
    )
    for name, count in (("counts", cooccurrence), ("following", following)):
        counted = count(whole.train[:size], len(whole.vocabulary))
        np.testing.assert_array_equal(found[name].toarray(), counted.toarray())


def test_a_text_of_one_token(text, tmp_path):
    (tmp_path / "blank.txt").write_text("\n" * 9_000)
    with pytest.raises(InputError, match="blank has one token alone"):
        quiet(text(**{"data.dir": str(tmp_path / "blank.txt"), "data.name": "text_char"}))


@pytest.mark.slow
def test_a_step_over_the_vocabulary_of_wikitext_103_fits():
    """Beside parameters and optimizer it holds less than 2 GiB."""
    config = wikitext103.get_config()
    config.batch = batch = 32
    info = dataclasses.replace(texts.describe("wikitext103"), vocabulary=267_735)
    program = program_of(config, info, make_mesh(devices=jax.devices()[:1]))
    rows = jax.ShapeDtypeStruct((batch, 2000), jnp.int32)
    keys = stream(0, "data"), stream(0, "dropout")
    step = program.compiled_dispatch.lower(program.shapes, rows, *keys, jnp.int32(1), jnp.ones(2))
    assert step.compile().memory_analysis().temp_size_in_bytes < 2 * 2**30


def test_counts_are_kept_as_long_as_their_text(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tokens = np.arange(60) % 5
    corpus = texts.Corpus("mine", tuple("abcde"), tokens, tokens, tokens, "char")
    counts = text_task._counts(corpus, 2, 5)
    assert text_task._counts(corpus, 2, 5) is counts
    assert text_task._counts(corpus, 1, 5) is not counts
    text_of_before = weakref.ref(corpus)
    del corpus
    gc.collect()
    assert text_of_before() is None
