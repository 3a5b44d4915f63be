"""The measurement of populations, on networks of one block."""

from __future__ import annotations

import re
from typing import Any

import pytest

from benchmarks import many_networks
from benchmarks.many_networks import Ours, Way
from configs import mlp_population


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = mlp_population.get_config

    def config(text: str) -> Any:
        small = whole(text)
        small.batch, small.model.width, small.model.depth, small.model.patch = 4, 4, 1, 8
        return small

    monkeypatch.setattr(mlp_population, "get_config", config)
    monkeypatch.setattr(many_networks, "IMAGES", 16)
    monkeypatch.setattr(many_networks, "IN_TURN", 2)
    monkeypatch.setattr(many_networks.importlib.util, "find_spec", lambda name: None)


@pytest.mark.slow  # the trainer's programs take seconds to compile, however small the network
@pytest.mark.usefixtures("small")
def test_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    many_networks.main(["--model=vit", "--members=2", "--seconds=0"])
    lines = capsys.readouterr().out.splitlines()
    rows = [re.split(r" *\| *", line)[1:-1] for line in lines if line.startswith("| ours")]
    assert [row[:2] for row in rows] == [["ours, one after the other", "1"], ["ours, at once", "2"]]
    for row in rows:
        assert float(row[2].replace(",", "")) > 0
    assert rows[0][6] == ""
    assert float(rows[1][6]) > 0


def test_rates_and_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of 4 s for 10 steps of 6 images, and of 2 s for half of the processor's time."""
    clock = {"wall": 0.0, "processor": 0.0}

    def run_for(seconds: float, processor: float) -> Any:
        def run(steps: int) -> None:
            clock["wall"] += seconds * steps
            clock["processor"] += processor * steps

        return run

    monkeypatch.setattr(many_networks.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(many_networks.time, "perf_counter", lambda: clock["wall"])
    monkeypatch.setattr(many_networks.time, "process_time", lambda: clock["processor"])
    ways = [Way("slow", 1, 60, 10, run_for(4, 4)), Way("quick", 3, 60, 1, run_for(2, 1), 6 * 2**20)]
    measured = many_networks.rates(ways, 5.0)
    assert measured == [(15.0, 15.0), (30.0, 60.0)]
    monkeypatch.setattr(many_networks, "peak_flops", lambda kind: 1e14)
    assert many_networks.table(ways, measured, 1e11).splitlines()[2:] == [
        "| slow | 1 | 15 | 1.00 | 15 | 1.00 |  | 1.50 | 1.50 % |",
        "| quick | 3 | 30 | 2.00 | 60 | 4.00 | 2.0 | 3.00 | 3.00 % |",
    ]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("model", ["convnext", "vit"])
def test_the_peer_is_the_same_network(model: str) -> None:
    pytest.importorskip("torch")
    from benchmarks.torch_networks import Trainer

    ours = Ours(model, images=16)
    trainer = Trainer(ours.config, ours.info, ours.pixels, ours.labels, "cpu")
    many_networks.check_same(ours, trainer)
    ours.config.model.depth = 2
    with pytest.raises(AssertionError):
        many_networks.check_same(ours, trainer)
