"""Learning rates that arms choose by a trial: told before, on other data, kept for good."""

import json

import pytest

from mimetic_jax import InputError
from mimetic_jax.schemes import Mimetic, SinCos
from mimetic_jax.train import rates
from mimetic_jax.train.store.runs import Run
from tests.training import quiet

BOTH = {"default": {}, "mimetic": {"scheme": (SinCos(), Mimetic())}}


@pytest.fixture
def config(tiny):
    config = tiny(checkpoint_every=0, **{"eval.every": 0})
    config.update(rates=(1e-2, 1e-9), scheme=(), arms=BOTH)
    return config


def test_each_arm_trains_at_the_best_of_the_rates_it_tried(config, tmp_path):
    """The seed and the images of the trial are its own; what was chosen stays."""
    said = []
    results = quiet(config, said.append).train(tmp_path)
    assert "each of 2 arms tries the learning rates 1e-2, 1e-9 with one seed, tested on" in said[0]
    found = json.loads((tmp_path / "config.json").read_text())["config"]
    assert (found["rates"], list(results.arms["default"].runs)) == ([], [0])
    for arm, overrides in found["arms"].items():
        tried = {
            rate: Run.of(tmp_path / "rates", f"{arm}-{name}", 100).record()
            for rate, name in ((1e-9, "1e-9"), (1e-2, "1e-2"))
        }
        best = max(tried, key=lambda rate: tried[rate].value)
        assert overrides["optimizer"]["learning_rate"] == best
        end = "lowest" if best == 1e-9 else "highest"
        assert any(f"{arm} {best:.0e} (the {end}".replace("e-0", "e-") in line for line in said)
        assert {(run.train_examples, run.examples) for run in tried.values()} == {(1150, 287)}
    assert results.arms["default"].runs[0].train_examples == 1437

    assert quiet(config).train(tmp_path).to_dicts() == results.to_dicts()
    config.arms.fast = {"optimizer": {"learning_rate": 0.1}}  # sets its own, and needs no trial
    assert [folder for _, folder in quiet(config).stages(tmp_path)] == [tmp_path]


def test_an_arm_that_diverges_at_a_rate_takes_another(config, tmp_path):
    config.rates, config.arms = (1e-3, 1e30), {}
    results = quiet(config).train(tmp_path)
    assert list(results.arms["run"].runs) == [0]
    assert not Run.of(tmp_path / "rates", "run-1e+30", 100).finished()


def test_one_rate_is_no_trial(config, tmp_path):
    config.rates = (2e-3,)
    ((stage, folder),) = quiet(config).stages(tmp_path)
    assert folder == tmp_path
    found = {name: arm.config.optimizer.learning_rate for name, arm in stage.arms.items()}
    assert found == {"default": 2e-3, "mimetic": 2e-3}


def test_what_gives_no_rate_is_one_line(config, tmp_path):
    with pytest.raises(
        InputError, match=r"arm default has no learning rate in .*none of 1e-2, 1e-9"
    ):
        quiet(config).table(tmp_path)
    config.data.held_out = 0.1
    with pytest.raises(InputError, match=r"data.held_out 0.1 leaves no images to choose"):
        quiet(config).train(tmp_path)


def test_the_seed_of_the_trial_is_never_compared(config):
    config.seeds = tuple(range(256))
    assert rates.trial(config, ["default"]).seeds == (256,)
