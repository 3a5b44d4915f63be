"""What channel mixing alone can't restore of a block when its filters are replaced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import jax
import numpy as np

from mimetic_jax.analysis import style
from mimetic_jax.analysis.capture import entering, plain
from mimetic_jax.base.errors import InputError
from mimetic_jax.host.cores import limited_blas
from mimetic_jax.models import Model
from mimetic_jax.models.depthwise import depthwise_conv
from mimetic_jax.train.store.files import AnyPath
from mimetic_jax.weights.conv import conv_filters

KINDS: tuple[Literal["random"], Literal["impulse"], Literal["box"]] = ("random", "impulse", "box")

# Relative to the largest eigenvalue of a Gram matrix of float32 activations, whose rounding is
# 1e-14 there: a direction below it is noise.
_RANK = 1e-12


def mixing_residual(spatial: np.ndarray, target: np.ndarray) -> float:
    """min_W ‖S W − Y‖ / ‖Y‖, the relative residual of channel mixing by least squares.

    S is [N, D], pixels of all images after spatial mixing, and Y [N, K]; 0 where Y is.

    >>> mixing_residual(np.array([[1.0], [0.0]]), np.array([[3.0], [4.0]]))
    0.8

    Reference: Structured Initialization for Vision Transformers, proposition 1.
    """
    spatial, target = np.asarray(spatial, np.float64), np.asarray(target, np.float64)
    with limited_blas():
        values, vectors = np.linalg.eigh(spatial.T @ spatial)
        kept = values > _RANK * values[-1]
        basis = vectors[:, kept]
        mixing = basis @ ((basis.T @ (spatial.T @ target)) / values[kept, None])
        rest = np.linalg.norm(spatial @ mixing - target)
    size = np.linalg.norm(target)
    return float(rest / size) if size else 0.0


def channel_mixing_residuals(
    model: Model, variables: Mapping[str, Any], inputs: jax.Array, *, seed: int = 0
) -> dict[str, np.ndarray]:
    """The residual per block of a ConvMixer, for other filters of its size in place of its own.

    Y = P (F * X) is what a block's filters F and channel mixing P make of its input X, without
    biases and what lies between. Other filters F' are fixed and W is solved for: W (F' * X) ≈ Y.

    Args:
        model: with blocks block_0 … of "depthwise" and "pointwise" kernels.
        variables: "params" and the model's other collections.
        inputs: examples as the model is tested on them, [B, …]; pixels of all of them are
            equations, so that there should be many more than D.
        seed: of the random and of the impulse filters.

    Returns:
        For "random", "impulse" and "box" filters the relative residuals, [L].

    Raises:
        InputError: if the model has no such blocks.

    Reference: Structured Initialization for Vision Transformers, proposition 1: it is 0 where M of
    F' (`analysis.span`) is at least the rank of X.
    """
    model, variables = plain(model, variables)
    found_inputs = jax.jit(lambda variables: entering("depthwise", model, variables, inputs))
    into_filters = found_inputs(variables)  # [B, h, w, D] each
    blocks = [variables["params"].get(f"block_{layer}", {}) for layer in range(len(into_filters))]
    if not blocks or not all("pointwise" in block for block in blocks):
        raise InputError(f"model {model.name} has no blocks of depthwise and pointwise kernels")
    convolve = jax.jit(depthwise_conv)
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for x, block, key in zip(
        into_filters, blocks, jax.random.split(jax.random.key(seed), len(blocks)), strict=True
    ):
        filters = block["depthwise"]["kernel"][:, :, 0]
        target = _pixels(convolve(x, filters)) @ np.asarray(block["pointwise"]["kernel"])
        for kind in KINDS:
            fixed = conv_filters(key, len(filters), filters.shape[-1], kind)
            found[kind].append(mixing_residual(_pixels(convolve(x, fixed)), target))
    return {kind: np.array(values) for kind, values in found.items()}


def _pixels(x: jax.Array) -> np.ndarray:
    return np.asarray(x, np.float64).reshape(-1, x.shape[-1])


def draw(path: AnyPath, residuals: Mapping[str, Mapping[str, np.ndarray]]) -> list[AnyPath]:
    """Draw the relative residual per block and kind of fixed filters: a panel per network.

    Reference: Structured Initialization for Vision Transformers, proposition 1.
    """
    rows: list[list[object]] = []
    with style.panels(len(residuals), 2.4) as (figure, panels):
        for axes, (label, of_kind) in zip(panels, residuals.items(), strict=True):
            lines = style.line_styles(of_kind)
            for (kind, line), marker in zip(lines.items(), style.MARKERS, strict=False):
                layers = list(range(1, len(of_kind[kind]) + 1))
                # Open and of different sizes, as random and impulse filters often agree.
                size = 8 if kind == "random" else 4
                open_ = {"marker": marker, "markerfacecolor": "none", "markersize": size}
                axes.plot(layers, of_kind[kind], label=kind, **line, **open_)
                pairs = zip(layers, of_kind[kind].tolist(), strict=True)
                rows += [[label, kind, layer, value] for layer, value in pairs]
            axes.set_ylim(0, 1.03)
            axes.set_title(label)
            axes.set_xlabel("layer")
            axes.xaxis.get_major_locator().set_params(integer=True)
            style.tidy(axes)
        panels[0].set_ylabel("residual of channel mixing alone")
        style.legend(figure)
        return style.write(figure, path, ["label", "filters", "layer", "residual"], rows)
