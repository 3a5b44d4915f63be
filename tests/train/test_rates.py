"""Learning rates that arms choose by a trial: told before, on other data, kept for good."""

import json
import math
from unittest import mock

import jax
import numpy as np
import pytest

from mimetic_jax import InputError
from mimetic_jax.train import rates
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.program import Program
from mimetic_jax.train.record import PERPLEXITY, Origin, Record, Trained
from mimetic_jax.train.store.runs import Run
from tests.training import killed, quiet

BOTH = {"default": {}, "fast": {"optimizer": {"learning_rate": 0.1}}}


@pytest.fixture
def config(tiny):
    config = tiny(checkpoint_every=0, **{"eval.every": 0})
    config.update(rates=(1e-2, 1e-9), scheme=(), arms=BOTH)
    return config


@pytest.mark.slow
def test_an_arm_trains_at_the_best_of_the_rates_it_tried(config, tmp_path):
    """The seed and the images of the trial are its own; what was chosen stays."""
    said, config.arms = [], {"default": {}}
    results = quiet(config, said.append).train(tmp_path)
    assert "the arm tries the learning rates 1e-9, 1e-2 with seed 100, which is not" in said[0]
    assert said.index("trial 2 of 2, learning rate 1e-2 of arm default, seed 100: starts") > 0
    held_out, tested = (
        [number for number, line in enumerate(said) if f"{kind} accuracy" in line]
        for kind in ("held-out", "test")
    )
    assert 0 < max(held_out) < min(tested)
    found = json.loads((tmp_path / "config.json").read_text())["config"]
    assert (found["rates"], list(results.arms["default"].runs)) == ([], [0])
    chosen = found["arms"]["default"]["optimizer"]["learning_rate"]
    assert any(f"default {rates.format_rate(chosen)}" in line for line in said)
    records = {
        rate: Run.of(tmp_path / "rates", f"default-{rates.format_rate(rate)}", 100).record()
        for rate in rates.ladder(config).rates
    }
    trained = {rate: run for rate, run in records.items() if run and not run.diverged}
    assert trained[chosen].value == max(run.value for run in trained.values())
    assert records[1e5 if chosen >= 1e-2 else 1e-16]  # one step beyond the best of the first two
    assert {(run.train_examples, run.examples) for run in trained.values()} == {(1150, 287)}
    assert results.arms["default"].runs[0].train_examples == 1437

    assert quiet(config).train(tmp_path).to_dicts() == results.to_dicts()
    assert [folder for _, folder in quiet(config).stages(tmp_path)] == [tmp_path]


def test_seeds_train_on_images_of_their_own(config):
    """And learning rates are chosen on others, by a seed with its own, too."""
    config.update(seeds=(0, 1), together=1, rates=())
    config.data.per_seed = 100
    comparison = quiet(config)
    source = comparison.arms["default"].source
    own = {seed: source.of_seed(seed) for seed in (0, 1, 2)}
    assert {data.sizes for data in own.values()} == {(100, 360)}
    assert comparison.info.num_train == 100
    images = {seed: {image.tobytes() for image in data.train_images} for seed, data in own.items()}
    assert not images[0] & images[1] | images[0] & images[2]
    for seed in (0, 1, 0):
        placed = comparison.arms["fast"].on_device(seed)
        np.testing.assert_array_equal(placed.train[0], own[seed].train_images)
    assert rates.ladder(config).trials == (2,)
    trial = quiet(rates.trial(config, {1e-2: ["default"]}, (2,)))
    chosen = next(iter(trial.arms.values())).source.of_seed(2)
    np.testing.assert_array_equal(chosen.train_images, own[2].train_images)
    assert len(chosen.test_images) == pytest.approx(0.2 * 1437, abs=5)
    assert not {image.tobytes() for image in chosen.test_images} & set().union(*images.values())
    for changes, words in (
        (
            {"seeds": (0, 11)},
            "seed 11 has no 100 images of its own: 1,437 images, .* 11 such parts",
        ),
        ({"together": 2}, "together 2 is for runs on the same images, and data.per_seed 100"),
        ({"data.subset": 0.5}, "data.per_seed 100 and data.subset 0.5 both choose what is trained"),
    ):
        wrong = config.copy_and_resolve_references()
        wrong.update_from_flattened_dict(changes)
        with pytest.raises(InputError, match=words):
            quiet(wrong)


def test_a_ladder_is_traced_once_and_trains_as_a_program_of_one_rate(text, tmp_path):
    """Three trials or more, and what is compared, also after a kill."""
    config, traces = text(rates=(1e-3, 1e-2), steps=8, **{"eval.every": 0}), []
    dispatch = Program.dispatch
    config.optimizer.update(warmup_from=1e-4, final=1e-5)

    def traced(self, *arguments):
        traces.append(self)
        return dispatch(self, *arguments)

    with mock.patch.object(Program, "dispatch", traced):
        comparison = Comparison(config, say=lambda line: None)
        for stage, folder in comparison.stages(tmp_path / "ladder"):
            if not stage.tolerate_divergence:
                with killed(after=6):
                    stage.train(folder)
            stage.train(folder)
    assert len(traces) == 1
    config.optimizer.learning_rate = stage.arms["run"].peak
    config.rates = ()
    alone = Comparison(config, say=lambda line: None)
    alone.train(tmp_path / "alone")
    found = stage.restored(Run.of(folder, "run", 0))
    expected = alone.restored(Run.of(tmp_path / "alone", "run", 0))
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.slow
def test_an_arm_that_diverges_at_a_rate_takes_another(config, tmp_path):
    """Its trial is finished by that, and isn't trained again."""
    config.rates, config.arms = (1e-3, 1e30), {}
    results = quiet(config).train(tmp_path)
    assert list(results.arms["run"].runs) == [0]
    run = Run.of(tmp_path / "rates", "run-1e30", 100)
    assert run.record().diverged
    assert rates.goodness(run.record()) == -math.inf
    (tmp_path / "config.json").unlink()  # as if it had been stopped after the trials
    assert [folder for _, folder in quiet(config).stages(tmp_path)] == [tmp_path]


def test_a_trial_that_overfits_counts_at_its_best_test_as_its_score_does():
    """The higher rate is worse at the end, and better where its weights are kept."""
    low = [(1, {"perplexity": 9.0, "test_perplexity": 9.1, "loss": math.log(9.0)})]
    high = [(1, {"perplexity": 8.0, "test_perplexity": 8.1, "loss": math.log(8.0)})]
    high.append((2, {"perplexity": 10.0, "test_perplexity": 10.1, "loss": math.log(10.0)}))
    low, high = (
        Record.of(PERPLEXITY, tests, Origin(), Trained(arm="default", seed=100))
        for tests in (low, high)
    )
    assert (high.value, high.loss) == (8.1, math.log(8.0))
    assert rates.goodness(high) > rates.goodness(low)


def test_a_ladder_goes_down_until_something_trains():
    """Where all first rates diverged the next lower one is tried, and none is chosen at the end."""
    ladder = rates.Ladder((4, 8))
    assert ladder.rates == (1, 2, 4, 8, 16, 32)
    lost = dict.fromkeys((4, 8), -math.inf)
    assert ladder.untried(lost) == [2]
    assert ladder.choice(lost) is None
    assert ladder.choice({**lost, 2: 5.0}) == (2, True)
    assert ladder.choice({**lost, 2: 5.0, 1: 4.0}) == (2, False)
    every = dict.fromkeys((1, 2, 4, 8), -math.inf)
    assert (ladder.untried(every), ladder.choice(every)) == ([], None)


def test_a_climb_ends_where_nothing_is_trained():
    """And an arm has tried a rate once all of its trials are finished."""
    scores = {("b", 2): [1, 2], ("b", 4): [3, 1], ("a", 2): [1]}

    def records(arm, rate):
        values, about = scores.get((arm, rate), []), {"arm": arm, "score": "accuracy"}
        return {seed: Record(seed=seed, value=x, **about) for seed, x in enumerate(values)}

    search = rates.Search(rates.Ladder((2, 4), trials=(0, 1)), ["a", "b"], records)
    climb = search.climb()
    assert next(climb) == {2: ["a"], 4: ["a"], 8: ["b"]}
    assert search.choices() == {"b": (4, True)}
    scores["b", 8] = [1, 2]
    assert next(climb) == {2: ["a"], 4: ["a"]}
    assert search.choices() == {"b": (4, False)}
    assert list(climb) == []


def test_one_rate_is_no_trial(config, tmp_path):
    config.rates = (2e-3,)
    ((stage, folder),) = quiet(config).stages(tmp_path)
    assert folder == tmp_path
    found = {name: arm.config.optimizer.learning_rate for name, arm in stage.arms.items()}
    assert found == {"default": 2e-3, "fast": 0.1}


def test_rates_that_a_workdir_did_not_search_are_refused_before_a_trial(config, tmp_path):
    """Of arms that were trained at one rate, whether by the same argument or by none."""

    def claimed(**changed):
        config.update(changed)
        for stage, folder in quiet(config).stages(tmp_path):
            stage.runs(folder).checked_claim().write(folder)

    claimed(rates=(2e-3,))
    with pytest.raises(
        InputError, match=r"default.optimizer.learning_rate is 0.002 there and 0.003 here"
    ):
        claimed(rates=(3e-3,))
    words = r"arm default of .* was trained at the learning rate 2e-3, which no search from 1e-5, "
    with pytest.raises(InputError, match=words):
        claimed(rates=(1e-5, 1e-4))
    (tmp_path / "config.json").unlink()
    claimed(rates=())
    with pytest.raises(InputError, match=r"trained at the learning rate \S+, which no search"):
        claimed(rates=(1e-2, 1e-9))


def test_what_gives_no_rate_is_one_line(config, tmp_path):
    words = r"arm default has no learning rate in .*1e-9, 1e-2 wasn't trained"
    with pytest.raises(InputError, match=words):
        quiet(config).table(tmp_path)
    config.data.held_out = 0.1
    with pytest.raises(InputError, match=r"data.held_out 0.1 leaves no images to choose"):
        quiet(config).train(tmp_path)


def test_the_seed_of_the_trial_is_never_compared(config):
    config.seeds = tuple(range(256))
    assert rates.ladder(config).trials == (256,)
