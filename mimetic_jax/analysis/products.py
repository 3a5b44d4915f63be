"""Products of attention's weights, W_Q W_Kᵀ and W_V W_out, before and after training."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from mimetic_jax.analysis import style
from mimetic_jax.analysis.capture import snapshots
from mimetic_jax.base.errors import InputError
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.store.files import AnyPath
from mimetic_jax.trained.pairs import layer_pairs
from mimetic_jax.tree import label as labeled
from mimetic_jax.tree.layers import views
from mimetic_jax.tree.options import of_tree


def analyze(comparison: Comparison, workdir: AnyPath) -> str:
    """Draw the products of each arm's first seed, before and after training: products.png."""
    every = list(snapshots(comparison, workdir, data=False))
    trees = {network.label: jax.device_get(network.variables["params"]) for network in every}
    leaves = {network.label: network.arm.program.rewrite_options for network in every}
    return f"products drawn: {draw(workdir / 'products', trees, leaves=leaves)[0]}"


@dataclasses.dataclass(frozen=True)
class HeadProducts:
    """The upper left corners of a layer's products W_Q W_Kᵀ and W_V W_out, [H, C, C]."""

    query_key: np.ndarray
    value_out: np.ndarray

    @property
    def summed(self) -> np.ndarray:
        """W_V W_out of the whole layer, summed over heads, [1, C, C]."""
        return self.value_out.sum(0, keepdims=True)


def head_products(params: Any, clip: int = 64, **options: Any) -> list[HeadProducts]:
    """Return the weight products of every head of every attention layer with all four kernels, in
    order.

    C = `clip` rows and columns are kept; options are those of `mimetic_jax.blocks`.

    Example:
        >>> kernels = {"query": (4, 2, 2), "key": (4, 2, 2), "value": (4, 2, 2), "out": (2, 2, 4)}
        >>> layer = {role: {"kernel": np.ones(shape)} for role, shape in kernels.items()}
        >>> head_products({"attention": layer}, clip=3)[0].query_key.shape
        (2, 3, 3)

    Reference: Mimetic Initialization of Self-Attention Layers, figures 1, 7 and 9.
    """
    tree = labeled.label(params, **of_tree(options))
    layers = layer_pairs(tree, views(tree), effective=False)
    factors = [(layer.query_key, layer.by_head) for layer in layers]
    return [
        HeadProducts(*(x.left[:, :clip] @ x.right[:, :clip].swapaxes(1, 2) for x in pairs if x))
        for pairs in factors
        if all(pairs)
    ]


def draw(
    path: AnyPath,
    trees: Mapping[str, Any],
    *,
    clip: int = 64,
    leaves: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> list[AnyPath]:
    """Draw W_Q W_Kᵀ and W_V W_out: per tree and product a row per head and a column per layer.

    A last row sums W_V W_out over heads. Each of the three has a color scale of its own, which all
    trees, layers and heads share: zero is white, and the largest half percent of the entries
    saturates. `leaves` are options of `mimetic_jax.blocks` per label.

    Reference: Mimetic Initialization of Self-Attention Layers, figures 1, 7 and 9.
    """
    by_label = {
        label: head_products(tree, clip, **leaves.get(label, {})) for label, tree in trees.items()
    }
    for label, products in by_label.items():
        if not products:
            raise InputError(f"{label} has no attention layer: there are no products to draw")
    drawn = {label: dict(enumerate(products, 1)) for label, products in by_label.items()}
    kinds = {
        "query_key": "$W_Q W_K^T$",
        "value_out": "$W_V W_{out}$",
        "summed": r"$\sum_h W_V W_{out}$",
    }
    bounds = {
        kind: style.limit(getattr(p, kind) for group in drawn.values() for p in group.values())
        for kind in kinds
    }
    columns = max(map(len, drawn.values()))
    heads = {
        (label, kind): max(len(getattr(product, kind)) for product in group.values())
        for label, group in drawn.items()
        for kind in kinds
    }
    cell = min(0.8, (style.PAGE - 0.9) / columns)
    height = cell * sum(heads.values()) + 0.12 * len(heads) + 0.3
    rows: list[list[object]] = []
    with style.canvas(cell * columns + 0.9, height) as figure:
        outer = figure.subfigures(len(heads), 1, height_ratios=list(heads.values()))
        images: dict[str, Any] = {}
        for (label, kind), part in zip(heads, np.ravel(outer), strict=True):
            axes = part.subplots(heads[label, kind], columns, squeeze=False)
            part.supylabel(f"{label}\n{kinds[kind]}", fontsize=7, ma="center")
            for axis in axes.flat:
                axis.axis("off")
            for column, (number, product) in enumerate(drawn[label].items()):
                axes[0, column].set_title(f"layer {number}" if not column else f"{number}", pad=2)
                for head, matrix in enumerate(getattr(product, kind)):
                    axes[head, column].axis("on")
                    images[kind] = style.signed(axes[head, column], matrix, bounds[kind])
                    rows += style.matrix_rows((label, kind, number, head + 1), matrix)
            end = bounds[kind]
            part.colorbar(
                images[kind],
                ax=list(axes.flat),
                extend="both",
                aspect=14,
                pad=0.01,
                ticks=[-end, 0, end],
                format="%.2f",
            )
        header = ["label", "product", "layer", "head", "row"]
        return style.write(figure, path, header, rows)
