"""Where arms look before training, as the command `plan` prints it."""

import re

import numpy as np
import pytest
from ml_collections import ConfigDict

from configs import text
from mimetic_jax.analysis import looking
from mimetic_jax.analysis.attention import attention_maps, maps_by_example
from mimetic_jax.analysis.capture import Snapshot, initial
from mimetic_jax.schemes import Impulse, Layers, NormMatched, ZeroOut
from tests import words
from tests.analysis.networks import small
from tests.training import quiet

NUMBERS = re.compile(
    r"^(\w+) +(\d+) +(impulse|own offset)" + r"(?: +([\d.]+)%? +([\d.]+) +([\d.]+))?" * 2 + "$",
    re.M,
)


def table(said: str) -> dict[str, list[float]]:
    """Numbers of the first layer of each arm."""
    found = {row[0]: row[3:] for row in NUMBERS.findall(said) if row[1] == "1"}
    return {arm: [float(cell) for cell in cells if cell] for arm, cells in found.items()}


def targets(said: str, layer: int) -> dict[str, str]:
    return {row[0]: row[2] for row in NUMBERS.findall(said) if row[1] == str(layer)}


@pytest.fixture(scope="module")
def impulses():
    config: ConfigDict = small(depth=2)
    config.model.update(width=96, heads=3, patch=1)  # 64 positions
    config.arms.impulse = {"scheme": (Impulse(),)}
    config.arms.noise = {"scheme": (NormMatched(Impulse()),)}
    config.arms.scattered = {"scheme": (Impulse(order="scattered"),)}
    config.arms.random = {"scheme": (Impulse(order="random"),)}
    # In the first of two layers alone; and by the last but one of its schemes.
    config.arms.part = {"scheme": (Layers(Impulse(order="scattered"), 0, 0.5),)}
    frame = Impulse(amplitude=None, position_scale=1.0)
    config.arms.frame_last = {
        "scheme": (Impulse(order="scattered", alpha_vo=None, beta_vo=None), frame)
    }
    config.arms.zeros = {"scheme": (ZeroOut(),)}
    return quiet(config)


def test_impulses_and_their_noise_are_told_apart(impulses):
    said = looking.describe(impulses)
    alone = table(said)
    aimed = {"impulse", "scattered", "random", "part", "frame_last"}
    assert alone.keys() == {*aimed, "noise"}  # zeros write neither
    assert min(alone[arm][0] for arm in aimed) > 90
    assert alone["noise"][0] < 5  # a target is one of 64 tokens
    # The key decides where random ones aim, and no impulse aims in the second layer of `part`.
    first = {arm: "own offset" if arm == "random" else "impulse" for arm in alone}
    assert targets(said, layer=1) == first
    assert targets(said, layer=2) == {**first, "part": "own offset"}
    assert alone["impulse"][2] < 10 < alone["noise"][2]

    impulses.arms.load_data()
    said = looking.describe(impulses)
    both = table(said)
    assert both["noise"][:3] == alone["noise"]
    # With content rows attend to more tokens; most still have their largest weight there.
    (hits, weight, tokens), (own, at, seen) = both["impulse"][:3], both["impulse"][3:]
    assert hits >= own > 50
    assert both["scattered"][3] > 40 > 10 > both["noise"][3]
    assert weight > at > 5 / 64
    assert tokens < seen < 64
    assert "fewer than half of the rows do in noise" in said


def test_maps_by_example_average_to_the_maps(impulses):
    impulses.arms.load_data()
    arm = impulses.arms["impulse"]
    network = Snapshot(arm, "initial", initial(impulses, arm).variables)
    inputs = network.inputs(6)
    ((layer, _),) = maps_by_example(network.model, network.variables, [inputs])
    assert layer.shape[0] == 6
    np.testing.assert_allclose(layer.sum(axis=-1), 1, rtol=1e-5)
    mean, _ = attention_maps(network.model, network.variables, inputs)
    np.testing.assert_allclose(layer.mean(axis=0), mean, rtol=1e-5, atol=1e-7)


def test_heads_of_a_text_look_back(tmp_path):
    """By a batch alone, as no positions are added."""
    arms = ("positional", "norm_matched_positional")
    config = text.get_config("word", width=64, depth=1, heads=4, length=24, init=arms)
    config.data.dir = words.numbered(tmp_path / "text.txt", 50_000)
    comparison = quiet(config)
    assert looking.describe(comparison) == ""
    comparison.arms.load_data()
    said = looking.describe(comparison)
    assert "positions alone" not in said
    found = table(said)
    assert found["positional"][0] > 80 > found["norm_matched_positional"][0]
    assert set(targets(said, layer=1).values()) == {"own offset"}
    assert found["positional"][2] < found["norm_matched_positional"][2] < 24


def test_large_models_are_named(impulses, monkeypatch):
    monkeypatch.setattr(looking, "MOST_PARAMETERS", 1000)
    said = " ".join(looking.describe(impulses).split())
    arms = "impulse, noise, scattered, random, part, frame_last"
    assert said.endswith(f"isn't computed in {arms}: more than 1,000 parameters")


def test_arms_that_need_data_that_is_not_here_are_left_out(tmp_path):
    config = text.get_config("word", width=64, depth=1, heads=4, length=24, init=("counts_half",))
    config.data.dir = str(tmp_path / "nothing")
    config.data.name = "ptb_word"  # whose sizes are known
    assert looking.describe(quiet(config)) == ""
