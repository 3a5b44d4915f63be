"""What is known before a training: which gains it can show, and how long it takes."""

import re
from unittest import mock

import pytest

from configs import text
from mimetic_jax import InputError
from mimetic_jax.analysis import plan, timing
from mimetic_jax.base.chips import Target
from mimetic_jax.base.table import duration
from mimetic_jax.schemes import Whitened
from mimetic_jax.train.loop import evaluation_every
from tests.analysis.networks import small
from tests.training import quiet


def test_what_arms_share_is_said_once(trained):
    said = plan.describe(trained.comparison)
    assert "360 test images" in said or "can't show a gain" in said
    assert said.count("parameters, ") == 1
    assert re.search(
        r"\n\nevery arm\n  4 steps of 32 .*\n\narm default\n  as the model draws", said, re.S
    )
    assert "arm mimetic\n  writes:\n" in said


def test_embeddings_from_counts_have_their_place_on_the_curve(trained):
    assert "tokens per token of the vocabulary" not in plan.describe(trained.comparison)
    config = text.get_config("word", width=8, depth=1, heads=2, length=16, steps=30)
    config.data.name = "ptb_word"  # 10,000 words, known without the files
    said = " ".join(plan.describe(quiet(config)).split())
    assert f"a run sees {30 * 16 * 16 / 10_000:.0f} tokens per token of the vocabulary" in said
    assert said.count("of the vocabulary") == 1


def test_other_hardware_is_computed_from_its_peak(trained):
    """At a share of the peak; memory is that of the state and the data."""
    comparison = trained.comparison
    flops = sum(arm.program.steps * arm.program.flops_per_step for arm in comparison.arms.values())
    shortest, longest = (duration(flops / (x * 4 * 1e3), rounded=True) for x in (0.4, 0.13))
    chip = plan.CHIPS["v5e"]._replace(flops=1e3)
    with mock.patch.dict(plan.CHIPS, v5e=chip):
        said = " ".join(plan.on_target(comparison, Target("v5e", (4,))).split())
    assert said.startswith(
        f"4 x v5e, at 40% to 13% of their peak of 0 TFLOP/s: {shortest} to {longest} for all runs"
    )
    assert "GB per chip for parameters, optimizer and data" in said


@pytest.mark.parametrize("name", ["v5e-0", "v3-8", "v5p-7", "v5e-9999", "h200:8:8"])
def test_hardware_that_is_not_known(name):
    with pytest.raises(InputError, match=f"target.*{name.split('-')[0].split(':')[0]}"):
        Target.of(name)


@pytest.mark.parametrize(
    ("name", "chip", "count"),
    [
        *(("v4-8", "v4", 4), ("v4:8", "v4", 8), ("v4:2x2x1", "v4", 4)),
        *(("v5litepod-16", "v5e", 16), ("tpu-v5litepod-16", "v5e", 16), ("v5e-16", "v5e", 16)),
        *(("v5p-8", "v5p", 4), ("tpu-v5p-128", "v5p", 64), ("v5p:8", "v5p", 8)),
        *(("v6e-8", "v6e", 8), ("v6e:2x4", "v6e", 8), ("H100:8", "h100", 8), ("a100", "a100", 1)),
    ],
)
def test_hardware_as_clouds_write_it(name, chip, count):
    """Google's types count TensorCores where a chip has two, and chips where it has one."""
    target = Target.of(name)
    assert (target.chip, target.count) == (chip, count)


def test_a_training_says_first_what_can_be_seen(tmp_path):
    config = small(depth=1)
    config.seeds = (0, 1, 2)
    config.arms.default, config.arms.other = {"scheme": ()}, {"scheme": ()}
    said = []
    results = quiet(config, said.append).train(tmp_path)
    assert said[0].startswith("360 test images detect gains above")
    found = results.arms["default"].runs[0]
    assert (found.train_examples, found.classes, found.examples) == (1437, 10, 360)
    assert "3 seeds of 2 arms and 360 test images detect gains above" in str(results)


def test_the_time_of_a_comparison_is_that_of_its_steps_and_tests(trained, monkeypatch):
    """Compiled once for the arms that share a program, then steps and tests of every run."""
    monkeypatch.setattr(timing, "_costs", lambda arm: (100.0, 7.0))
    comparison = trained.comparison
    runs = len(comparison.arms) * len(comparison.config.seeds)
    programs = len({id(arm.program) for arm in comparison.arms.values()})
    expected = duration(100 * programs + 7 * runs)
    shown = f"time: about {expected} for {runs} run"
    assert timing.estimate(comparison).startswith(shown)


def test_a_ladder_makes_the_time_a_lower_bound(monkeypatch, tmp_path):
    """Rates share a program; only trials on fewer images have another one, and fewer steps."""
    monkeypatch.setattr(timing, "_costs", lambda arm: (100.0, 1000.0))
    config = small(depth=1)
    config.seeds, config.rates = (0, 1, 2), (1e-3, 3e-3, 1e-2)
    config.steps, config.epochs, config.optimizer.warmup = 0, 1.0, 0
    said = " ".join(timing.estimate(quiet(config), "do less").split())
    expected = duration(2 * 100 + 3 * 1000 + 3 * 800)
    assert said.startswith(f"time: at least about {expected} for 6 runs on this machine; each ")
    assert said.endswith("each further learning rate of an arm: about 13 min; do less")
    config.arms.fast, config.arms.slow = {"optimizer": {"learning_rate": 1e-2}}, {}
    assert " for 9 runs on" in timing.estimate(quiet(config))
    assert "the arm tries the learning rates 1e-3" in plan.describe(quiet(config))
    config.rates, config.arms = (1e-3,), {}
    said = timing.estimate(quiet(config), "do less")
    assert said == f"time: about {duration(3100)} for 3 runs on this machine"


def test_one_rate_for_all_is_that_of_the_plan():
    config = small(depth=1)
    config.rates, config.optimizer.schedule = (0.125,), "constant"
    assert "at quarters of training: 1.25e-01" in plan.describe(quiet(config))


def test_a_plan_whitens_patches_of_the_images():
    config = small(depth=1)
    config.scheme = (Whitened(),)
    assert "of the covariance that is given" in " ".join(plan.describe(quiet(config)).split())


def test_steps_are_timed(trained, monkeypatch):
    """By a clock of our own, which says how often each function was called."""
    (arm, *_) = trained.comparison.arms.values()
    calls, seconds = [], [0.0]
    run_steps, evaluate = arm.program.run_steps, arm.program.evaluate

    def counted(states, arrays, keys, count, rates):
        calls.append(count)
        seconds[0] += 0.25 * count
        return run_steps(states, arrays, keys, count, rates)

    def tested(*given):
        seconds[0] += 3.0 + 100.0 * ("test" not in calls)  # it compiles once
        calls.append("test")
        return evaluate(*given)

    monkeypatch.setattr(arm.program, "run_steps", counted)
    monkeypatch.setattr(arm.program, "evaluate", tested)
    monkeypatch.setattr(timing.time, "perf_counter", lambda: seconds[0])
    compiled, run = timing._costs(arm)
    steps = arm.program.steps
    assert calls[:2] == [0, 1]
    every = evaluation_every(arm.config.eval, arm.program.feed.steps_per_epoch)
    tests = 2 + ((steps - 1) // every if every else 0)
    assert (compiled, run) == (pytest.approx(100), pytest.approx(0.25 * steps + 3.0 * tests))


def test_without_data_no_time_is_given():
    config = small(depth=1)
    config.data.name = "cifar10"
    assert timing.estimate(quiet(config)).startswith("time: not estimated, cifar10 needs the")
