"""Pictures of what an arm starts from: the patches and positions that it draws, its products."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from mimetic_jax.analysis import style
from mimetic_jax.analysis.capture import initial
from mimetic_jax.train.arm import Arm
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.store.files import AnyPath
from mimetic_jax.trained.check import check
from mimetic_jax.tree.layers import paired
from mimetic_jax.tree.rewrite import blocks

PATCHES, POSITIONS, PRODUCTS = "patches", "positions", "products"
"""What pictures show."""

_FILTERS = (4, 8)
"""Rows and columns of the filters of a picture, the first ones of a patch embedding."""


def path_of_start(folder: AnyPath, arm: str, seed: int, what: str) -> AnyPath:
    """Return the picture of an arm's start, which may not be drawn."""
    return folder / f"{arm}.{seed}.{what}.png"


def draw(comparison: Comparison, arm: Arm, folder: AnyPath) -> None:
    """Draw what an arm's first seed has before the first step that noise doesn't have.

    Patches and positions are drawn if its scheme writes them, products if any of attention is
    outside of noise.
    """
    params = jax.device_get(initial(comparison, arm).variables["params"])
    seed = arm.config.seeds[0]
    scheme, options = arm.config.scheme, arm.program.rewrite_options
    written = {write.role for write in arm.program.plan(scheme)} if scheme else set()
    views = blocks(params, **options)
    for _, _, block in views:
        for role, what, picture in (
            ("patch", PATCHES, _filters),
            ("position", POSITIONS, _positions),
        ):
            if role in written and role in block:
                with style.canvas(4.8, 2.6, **{"axes.labelsize": 10}) as figure:
                    picture(figure.subplots(), np.asarray(block[role]))
                    style.save(figure, path_of_start(folder, arm.name, seed, what))
    if not paired(views):  # a model without attention and MLPs, such as a ConvMixer
        return
    if (checked := check(params, **options)).outside_of_noise()[0]:
        style.save(checked.plot(), path_of_start(folder, arm.name, seed, PRODUCTS))


def _filters(axes: Any, kernel_UxVxCxD: np.ndarray) -> None:
    """The first filters, each from its lowest to its highest possible color; 0 is gray."""
    kernel = kernel_UxVxCxD
    if kernel.shape[2] != 3:
        kernel = kernel.mean(axis=2, keepdims=True).repeat(3, axis=2)
    rows, columns = _FILTERS
    height, width = kernel.shape[0] + 1, kernel.shape[1] + 1
    sheet = np.ones((rows * height - 1, columns * width - 1, 3))
    for number in range(min(rows * columns, kernel.shape[3])):
        one = kernel[..., number]
        top, left = number // columns * height, number % columns * width
        scaled = 0.5 + 0.5 * one / (np.abs(one).max() or 1.0)
        sheet[top : top + height - 1, left : left + width - 1] = scaled
    axes.imshow(sheet, interpolation="nearest")
    axes.set_axis_off()


def _positions(axes: Any, table_NxD: np.ndarray) -> None:
    style.signed(axes, table_NxD, style.limit([table_NxD]))
    axes.set_aspect("auto")
    axes.set_xlabel("channel")
    axes.set_ylabel("position")
