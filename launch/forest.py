"""The figure of claims, docs/claims.png: differences and intervals of tables, as they stand there.

    python -m launch.forest

A claim names a table of results/closed or of results/tables, a row of it and an arm.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Sequence
from typing import NamedTuple

from launch.results import ResultStore
from launch.tables import block
from mimetic_jax.analysis import style

PAGE = pathlib.Path("docs/claims.png")
_INTERVAL = re.compile(r"([+-]\d+\.\d+) \[([+-]\d+\.\d+), ([+-]\d+\.\d+)\]")


class Claim(NamedTuple):
    """A line of the figure, its arm in a row of a table, and which sign is better."""

    label: str
    table: str
    row: str
    arm: str


class Panel(NamedTuple):
    """Claims in one unit; `sign` is −1 where less is better."""

    title: str
    sign: int
    claims: Sequence[Claim]


PANELS = (
    Panel(
        "Accuracy, points",
        1,
        (
            Claim(
                "Whitened patches, zeros: ViT, 20 epochs",
                "questions/small_images",
                "1.",
                "whitened_zero_mlp",
            ),
            Claim(
                "The same, an earlier table", "questions/first_images", "2.", "whitened_zero_mlp"
            ),
            Claim("The same, 100 epochs", "questions/small_images", "3.", "whitened_zero_mlp"),
            Claim("Mimetic in PyTorch's default: ViT", "questions/bases", "2.", "mimetic"),
            Claim("Mimetic in Flax's default: ViT", "questions/bases", "3.", "mimetic"),
        ),
    ),
    Panel(
        "Bits per character or byte",
        -1,
        (
            Claim(
                "Embeddings from counts: WikiText-2, 400 steps",
                "questions/first_length",
                "1.",
                "counts_std_25",
            ),
            Claim("The same, 1,600 steps", "questions/first_length", "2.", "counts_std_25"),
            Claim("Mimetic with twice the −I: text, 200 steps", "trained/text_again", "", "strong"),
            Claim("Fixed-offset heads: 21 million parameters", "questions/large", "1.", "half"),
        ),
    ),
)

BASELINES = {
    "default": (("default", "sincos"), "#000000", "o", "default"),
    "noise": (("norm-matched",), style.COLORS[1], "s", "norm-matched control"),
    "permuted": (("permuted",), style.COLORS[0], "D", "permuted control"),
}
"""What arms are compared with: columns, color, marker and name."""


def differences(claim: Claim, results: ResultStore) -> dict[str, tuple[float, float, float]]:
    """Read the mean, the lower and the upper end of each difference that a table has of a claim."""
    lines = [
        [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        for line in block(claim.table, results).splitlines()
        if line.startswith("|")
    ]
    head = lines[0]
    (cells,) = [
        line
        for line in lines[2:]
        if claim.arm in line[:2] and (not claim.row or line[0].startswith(claim.row))
    ]
    found = {}
    for name, (columns, *_) in BASELINES.items():
        for title, cell in zip(head, cells, strict=True):
            is_its = title.startswith(tuple(f"Δ {column}" for column in columns))
            if is_its and (interval := _INTERVAL.fullmatch(cell)):
                mean, low, high = map(float, interval.groups())
                found[name] = mean, low, high
    return found


def draw(path: pathlib.Path, results: ResultStore) -> None:
    """Draw all panels, better to the right."""
    rows = [len(panel.claims) for panel in PANELS]
    with style.canvas(style.PAGE, 0.42 * sum(rows) + 0.9) as figure:
        every = figure.subplots(len(PANELS), 1, height_ratios=rows)
        for axes, panel in zip(every, PANELS, strict=True):
            for place, claim in enumerate(panel.claims):
                shown = differences(claim, results)
                for number, name in enumerate(BASELINES):
                    if name not in shown:
                        continue
                    _, color, marker, label = BASELINES[name]
                    low, mean, high = sorted(panel.sign * x for x in shown[name])
                    axes.errorbar(
                        mean,
                        place + 0.22 * (number - 1),
                        xerr=[[mean - low], [high - mean]],
                        color=color,
                        marker=marker,
                        capsize=2,
                        label=label if place == 0 else None,
                    )
            axes.axvline(0, color="#888888", linewidth=0.8)
            axes.set_yticks(range(len(panel.claims)), [claim.label for claim in panel.claims])
            axes.set_ylim(len(panel.claims) - 0.5, -0.5)
            axes.set_xlabel(f"{panel.title} better than")
            style.tidy(axes)
        style.legend(figure)
        style.save(figure, path)


if __name__ == "__main__":
    draw(PAGE, ResultStore("results"))
