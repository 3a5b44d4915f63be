"""The papers as data: complete, consistent, and of configurations that exist."""

import dataclasses
import doctest
import pathlib
import re
from collections.abc import Iterator
from types import ModuleType

import pytest

import papers
from launch import tables
from launch.runner import load
from mimetic_jax.analysis.figures import DRAW
from mimetic_jax.train import config as configs
from mimetic_jax.train import rates
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.tasks.images import ImageTask
from papers import FIGURES, TABLES, rows_of, starts_of
from papers.ratios import FAR, FILTERS, LOCATED, MEAN
from papers.record import Row
from tests import words

ROWS = {
    "attention/table1": 10,
    "attention/table2": 10,
    "attention/table3": 4,
    "attention/table4": 3,
    "attention/table5": 5,
    "attention/table6": 5,
    "attention/table7": 8,
    "attention/convolution": 4,
    "attention/scale": 2,
    "structured/table1": 6,
    "structured/positive_filters": 1,
    "structured/table2": 3,
    "structured/table3": 3,
    "structured/table4": 8,
    "structured/table5": 3,
    "structured/table7": 6,
    "mlp/runs": 6,
    "mlp/imagenet": 1,
    "mlp/anti_correlated": 2,
    "mlp/populations": 4,
}

# Read anew in the papers: table, row from 1, arm, score.
TRUTHS = [
    ("attention/table1", 2, "default", 84.75),
    ("attention/table1", 9, "mimetic", 92.17),
    ("attention/table2", 9, "not trained here", 91.21),
    ("attention/table3", 2, "default", 67.80),
    ("attention/table4", 2, "mimetic", 67.33),
    ("attention/table5", 3, "best of 10", 89.90),
    ("attention/table6", 3, "mimetic", 28.21),
    ("attention/table7", 4, "mimetic", 92.74),
    ("attention/convolution", 2, "not trained here", 87.5),
    ("structured/table1", 6, "impulse", 50.84),
    ("structured/table2", 2, "mimetic", 80.26),
    ("structured/table3", 2, "mimetic", 89.24),
    ("structured/table4", 7, "mixed, not trained here", 81.07),
    ("structured/table5", 3, "mimetic", 80.56),
    ("structured/table7", 6, "impulse", 89.61),
    ("mlp/imagenet", 1, "mean_shift", 68.8),
]

EVERY = [(name, table, row) for name, table in TABLES.items() for row in table.rows]


def forms(name: str) -> list[Row]:
    """The rows of a table or figure, full and small."""
    return [*rows_of(name), *rows_of(name, small=True)]


def test_doctests() -> None:
    assert doctest.testmod(papers).failed == 0


def test_no_row_of_a_paper_is_lost() -> None:
    assert {name: len(TABLES[name].rows) for name in ROWS} == ROWS
    assert all(name.startswith("questions/") for name in TABLES.keys() - ROWS.keys())


def test_labels_are_unique() -> None:
    for name, table in TABLES.items():
        labels = [row.label for row in table.rows]
        assert len(set(labels)) == len(labels), name


@pytest.mark.parametrize("name", TABLES)
def test_a_configuration_has_the_arms_of_its_row(name: str) -> None:
    for row in forms(name):
        assert row.is_untrained or tuple(configs.arms_of(load(row))) == row.arms, row.label


@pytest.mark.parametrize("name", FIGURES)
def test_a_configuration_has_the_networks_of_its_figure(name: str) -> None:
    figure = FIGURES[name]
    panels = [*figure.options.get("series", {}).values(), figure.options.get("panels", {})]
    points = {point for lines in panels for line in lines.values() for point in line}
    for row in forms(name):
        arms = configs.arms_of(load(row)).keys()
        assert row.label in points or points <= arms
        assert set(figure.options.get("lines", ())) <= arms
    for row in starts_of(name):
        assert tuple(configs.arms_of(load(row))) == row.arms


def test_figures_are_drawn_by_known_functions() -> None:
    assert {figure.draw for figure in FIGURES.values()} == DRAW.keys()
    printed = {f"attention/figure{n}" for n in range(1, 11)}
    printed |= {f"structured/figure{n}" for n in range(1, 7) if n != 2}  # its axes are lost
    printed |= {f"mlp/figure{n}" for n in range(1, 5)}
    ours = {name for name in FIGURES if name.startswith("questions/")}
    assert FIGURES.keys() - ours == printed


@pytest.mark.parametrize(("name", "number", "arm", "score"), TRUTHS)
def test_numbers_read_anew(name: str, number: int, arm: str, score: float) -> None:
    row = TABLES[name].rows[number - 1]
    assert {**row.published, **row.others}[arm] == score


def test_published_numbers_are_here_alone() -> None:
    """Docstrings of config files have none of a row of theirs."""
    scores: dict[ModuleType, set[str]] = {}
    for name, table, row in EVERY:
        if not name.startswith("questions/"):
            printed = {tables.printed(score) for score in row.published.values()}
            scores.setdefault(row.config or table.config, set()).update(printed)
    for config, printed in scores.items():
        header = str(config.__doc__).partition("\nDiffers")[0]
        assert printed.isdisjoint(re.findall(r"\d+\.\d+\b", header)), config


def test_a_row_that_is_scaled_down_keeps_what_its_method_depends_on() -> None:
    """Or says why not; where it keeps all, it has nothing to say."""
    rows = [(row, scaled) for name in (*TABLES, *FIGURES) for row, scaled in scaled_rows(name)]
    assert len(rows) > 50
    for row, scaled in rows:
        assert scaled.small is not None
        assert scaled.small.keeps, f"{row.place.table}, {row.label}"
        factors = [ratio.apart(load(row), load(scaled)) for ratio in scaled.small.keeps]
        off = max(factors) > 0.99 * FAR  # 1/2 for 1/3 is off, too
        assert bool(scaled.small.apart) == off, f"{row.place.table}, {row.label}: {factors}"


def test_rates_of_rows_that_are_scaled_down_are_chosen_on_10_000_images() -> None:
    """Of CIFAR-10; those of a row whose seeds have parts of their own are in none of them."""
    checked = 0
    for row in (row for name in TABLES for row in rows_of(name, small=True)):
        if row.ladder and not row.is_untrained and (config := load(row)).data.name == "cifar10":
            trial = rates.trial(config, {1e-3: ["default"]}, row.ladder.trials)
            assert ImageTask.describe(trial).num_test == 10_000, f"{row.place.table}, {row.label}"
            checked += 1
    assert checked > 20


def scaled_rows(name: str) -> Iterator[tuple[Row, Row]]:
    """The rows of a table or figure, and its networks that aren't trained, beside their small."""
    for of in (rows_of, *([starts_of] if name in FIGURES else [])):
        full = {row.place.number: row for row in of(name)}
        small = (row for row in of(name, small=True) if not row.is_untrained)
        yield from ((full[row.place.number], row) for row in small)


def test_ratios_of_networks_whose_regime_is_known() -> None:
    """Measured by other code, at the sizes of the papers and at a width of 48."""
    published, small = rows_of("structured/table1")[0], rows_of("structured/table1", small=True)[0]
    narrow = load(small)
    narrow.model.width = 48
    hits = [LOCATED.of(config) for config in (load(published), load(small), narrow)]
    assert hits == pytest.approx([0.99, 1.0, 0.61], abs=0.06)
    mean = [MEAN.of(load(row)) for row in rows_of("mlp/runs")]
    assert mean == pytest.approx([4.6] * 3 + [4.0] * 3, abs=0.05)
    mean = [MEAN.of(load(row)) for row in rows_of("mlp/populations")]
    assert mean == pytest.approx([1.2, 1.2, 4.6, 4.0], abs=0.05)
    frozen = [FILTERS.of(load(row)) for row in rows_of("structured/table7")]
    assert frozen == pytest.approx([28, 10, 4, 57, 20, 8], abs=0.6)


def test_one_network_has_one_score() -> None:
    """Tables that print the same arm of the same comparison agree, but for what a doubt names."""
    seen: dict[tuple[object, ...], float] = {}
    conflicts = {}
    for name, table, row in EVERY:
        for arm, score in row.published.items():
            key = (row.config or table.config, str(sorted(row.arguments.items())), arm)
            if seen.setdefault(key, score) != score:
                conflicts[name, row.label, arm] = (seen[key], score)
    assert conflicts == {("attention/convolution", "plain attention", "default"): (86.07, 88.1)}
    assert "88.1" in TABLES["attention/convolution"].doubt


@pytest.mark.slow
@pytest.mark.parametrize("name", [*TABLES, *FIGURES])
def test_checks_of_every_row_pass(name: str, tmp_path: pathlib.Path) -> None:
    """Those of main.py before it loads anything; a text of one's own stands in for another."""
    text = words.numbered(tmp_path / "text.txt", 100_000)
    joined: dict[object, Row] = {}
    for row in (row for row in forms(name) if not row.is_untrained):
        arms = joined[row.recipe()].arms if row.recipe() in joined else ()
        every = tuple(dict.fromkeys((*arms, *row.arms)))
        joined[row.recipe()] = dataclasses.replace(row, arms=every)
    for row in joined.values():
        config = load(row)
        if config.data.name.startswith("text_"):
            config.data.dir = text
        Comparison(config, say=lambda line: None)
