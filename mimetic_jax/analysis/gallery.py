"""A picture of each arm's start: weight products, and attention on an image."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from mimetic_jax.analysis import style
from mimetic_jax.errors import InputError
from mimetic_jax.models import ViT
from mimetic_jax.train.compare import Comparison
from mimetic_jax.train.tasks.images import ImageTask
from mimetic_jax.train.warm_start import initial_state
from mimetic_jax.train.workdir.paths import AnyPath

CLIP = 64
"""Products are shown up to this many rows and columns, as in the papers' figures."""


def draw(comparison: Comparison, path: AnyPath) -> str:
    """Draw a row for each arm at initialization, as PNG.

    First layer, first head: W_Q W_Kᵀ, W_V W_out (one color scale each, zero is white), the
    attention map over all tokens, and where the middle patch of a test image looks.

    Args:
        comparison: its arms are the rows; its data gives the image.
        path: of the picture.

    Returns:
        A line that names the file.

    Raises:
        InputError: if matplotlib isn't installed.
    """
    height = 2.1 * len(comparison.arms)
    with style.canvas(9, height) as figure:
        comparison.open()
        _draw(comparison, figure)
        style.save(figure, path)
    return f"{len(comparison.arms)} schemes drawn: {path}"


def _draw(comparison: Comparison, figure: Any) -> None:
    config = comparison.config
    grid = figure.subplots(len(comparison.arms), 4, squeeze=False)
    for row, (name, arm) in zip(grid, comparison.arms.items(), strict=True):
        program = arm.program
        task = program.task
        if not isinstance(task, ImageTask):
            raise InputError(f"arm {name} doesn't train on images: there is nothing to draw")
        model = task.model.module
        if not isinstance(model, ViT) or model.scan or model.fused_qkv:
            raise InputError(
                f"arm {name}: drawing needs a ViT with model.scan=False and model.fused_qkv=False"
            )
        image = task.view(program.feed.sample(arm.data))
        params = initial_state(program, arm.config, name, config.seeds[0], comparison.say).params
        query_key, value_out = (product[:CLIP, :CLIP] for product in products(params))
        attention = attention_map(task, params, image)
        height, width = task.grid() or (1, 1)
        tokens = len(attention) - height * width
        middle = tokens + (height // 2) * width + width // 2
        looks = attention[middle, tokens:].reshape(height, width)
        row[0].set_ylabel(name, fontsize=9)
        _signed(row[0], query_key, "W_Q W_Kᵀ, head 0")
        _signed(row[1], value_out, "W_V W_out")
        _positive(row[2], attention, "attention, head 0")
        _positive(row[3], looks, "where the middle patch looks")


def products(params: Any) -> tuple[np.ndarray, np.ndarray]:
    """W_Q W_Kᵀ of the first head [D, D] and W_V W_out [D, D] of the first layer."""
    layer = params["block_0"]["attention"]
    query, key, value, out = (
        np.asarray(layer[role]["kernel"]) for role in ("query", "key", "value", "out")
    )
    return query[:, 0] @ key[:, 0].T, np.einsum("dhk,hke->de", value, out)


def attention_map(task: ImageTask, params: Any, images: jax.Array) -> np.ndarray:
    """Attention of the first layer's first head on the first image [N, N]; rows sum to 1."""
    _, captured = task.model.module.apply(
        {"params": params},
        images,
        capture_intermediates=lambda module, _: module.name in ("query", "key"),
        mutable=["intermediates"],
    )
    layer = captured["intermediates"]["block_0"]["attention"]
    query, key = (layer[role]["__call__"][0][0, :, 0] for role in ("query", "key"))
    return np.asarray(jax.nn.softmax(query @ key.T / np.sqrt(query.shape[-1]), axis=-1))


def _signed(axes: Any, matrix: np.ndarray, title: str) -> None:
    _finish(axes, style.signed(axes, matrix, style.limit([matrix], 1.0)), title)


def _positive(axes: Any, matrix: np.ndarray, title: str) -> None:
    _finish(axes, style.positive(axes, matrix), title)


def _finish(axes: Any, shown: Any, title: str) -> None:
    axes.set_title(title)
    axes.figure.colorbar(shown, ax=axes, shrink=0.8)
