"""A picture of each arm's start: weight products, and attention on an example."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from mimetic_jax.analysis import style
from mimetic_jax.analysis.attention import attention_maps
from mimetic_jax.analysis.capture import Network, initial
from mimetic_jax.analysis.products import head_products
from mimetic_jax.errors import InputError
from mimetic_jax.train.arm import Arm
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.store.places import Place
from mimetic_jax.train.tasks.images import ImageTask

NAME = "schemes.png"
"""The picture, in the workdir."""

CLIP = 64
"""Products are shown up to this many rows and columns, as in the papers' figures."""

_TITLES = ("W_Q W_Kᵀ, head 0", "W_V W_out", "attention, head 0", "where the middle token looks")
_ACROSS = ("dimension", "dimension", "token it looks at", "column")


def analyze(comparison: Comparison, workdir: Place) -> str:
    """Draw a row for each arm at initialization, WORKDIR/schemes.png.

    First attention layer, first head: W_Q W_Kᵀ, W_V W_out (zero is white), the attention map over
    all tokens, or those of a window, and where the middle token looks, in the shape of the grid or
    window. All arms share a column's color scale; those of attention are logarithmic. Above them is
    the example, if it is an image. Arms whose model has no attention say so.

    Args:
        comparison: its arms are the rows; its data gives the example.
        workdir: of the picture.

    Returns:
        A line that names the file.

    Raises:
        InputError: if no arm has attention, or matplotlib isn't installed.
    """
    comparison.recognize(workdir)
    comparison.open()
    pictures = {name: _picture(comparison, arm) for name, arm in comparison.arms.items()}
    models = " and ".join(sorted({arm.config.model.name for arm in comparison.arms.values()}))
    if not any(pictures.values()):
        raise InputError(f"model {models} has no attention to draw")
    config, image = comparison.config, _example(next(iter(comparison.arms.values())))
    above = 0 if image is None else 1
    with style.canvas(9, 2.0 * (len(pictures) + above) + 0.8, 0.08) as figure:
        figure.suptitle(f"{models} on {config.data.name}, seed {config.seeds[0]}, initialized")
        grid = figure.subplots(len(pictures) + above, 4, squeeze=False)
        if image is not None:
            for axes in grid[0, 1:]:
                axes.axis("off")
            _draw_example(grid[0, 0], image)
        _draw_arms(figure, grid[above:], pictures)
        style.save(figure, picture := Place.of(workdir) / NAME)
    return f"{len(pictures)} schemes drawn: {picture}"


@dataclasses.dataclass(frozen=True)
class _Picture:
    query_key: np.ndarray
    value_out: np.ndarray
    attention: np.ndarray
    looks: np.ndarray  # attention of the middle token, [h, w]


def _picture(comparison: Comparison, arm: Arm) -> _Picture | None:
    network = Network(arm, "initial", initial(comparison, arm).variables)
    params = jax.device_get(network.variables["params"])
    layers = head_products(params, CLIP, rules=arm.program.rules)
    if not layers:
        return None
    attention = attention_maps(network.model, network.variables, network.inputs(1))[0][0]
    looks = _looks(attention, arm.program.task.grid())
    return _Picture(layers[0].query_key[0], layers[0].summed[0], attention, looks)


def _looks(attention: np.ndarray, grid: tuple[int, int] | None) -> np.ndarray:
    """Attention of the token in the middle of the grid, of the window, or of a text: [h, w]."""
    count = len(attention)
    side = math.isqrt(count)
    if grid is None or math.prod(grid) > count:
        grid = (side, side) if side**2 == count else (1, count)
    front = count - math.prod(grid)  # a class token
    middle = front + grid[0] // 2 * grid[1] + grid[1] // 2
    return attention[middle, front:].reshape(grid)


def _example(arm: Arm) -> np.ndarray | None:
    """The first test image as it is stored, uint8 [h, w, C]; None for other data."""
    if not isinstance(arm.program.task, ImageTask):
        return None
    return np.asarray(arm.program.feed.sample(arm.data)[0])


def _draw_example(axes: Any, image: np.ndarray) -> None:
    gray = image.shape[-1] == 1
    axes.imshow(image[..., 0] if gray else image, **({"cmap": "gray"} if gray else {}))
    axes.set_title("the example")
    axes.set_xlabel(f"{image.shape[1]} pixels")
    axes.set_ylabel(f"{image.shape[0]} pixels")
    axes.set_xticks([])
    axes.set_yticks([])


def _draw_arms(figure: Any, grid: Any, pictures: Mapping[str, _Picture | None]) -> None:
    """Draw a row of panels per arm, and a color bar above each column."""
    from matplotlib.colors import LogNorm

    found = [picture for picture in pictures.values() if picture]
    bounds = [
        style.limit(matrices)
        for matrices in zip(*((p.query_key, p.value_out) for p in found), strict=True)
    ]
    # From a tenth of uniform attention, which has entries of 1/N, to the highest.
    least = 0.1 / max(len(picture.attention) for picture in found)
    norm = LogNorm(least, max(picture.attention.max() for picture in found))
    for row, (name, picture) in zip(grid, pictures.items(), strict=True):
        for axes, label in zip(row, ("dimension", "dimension", "token", "row"), strict=True):
            axes.set_xticks([])
            axes.set_yticks([])
            axes.set_ylabel(label)
        row[0].set_ylabel(f"{name}\ndimension")
        if picture is None:
            row[0].text(0.5, 0.5, "no attention\nin this model", ha="center", va="center")
            continue
        shown = [
            style.signed(row[0], picture.query_key, bounds[0]),
            style.signed(row[1], picture.value_out, bounds[1]),
            style.positive(row[2], np.maximum(picture.attention, least), norm=norm),
            style.positive(row[3], np.maximum(picture.looks, least), norm=norm),
        ]
        if len(picture.looks) == 1:  # a text: a line of one pixel's height would be invisible
            row[3].set_aspect("auto")
    for column, (image, title, label, extend) in enumerate(
        zip(shown, _TITLES, _ACROSS, ("both", "both", "min", "min"), strict=True)
    ):
        panels = list(grid[:, column])
        panels[-1].set_xlabel(label)
        bar = {"location": "top", "pad": 0.05 / len(grid), "shrink": 0.8, "extend": extend}
        figure.colorbar(image, ax=panels, label=title, **bar)
