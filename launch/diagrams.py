"""The diagrams of docs/: the controls of a comparison, and the way from a tree to a scheme.

python -m launch.diagrams
"""

from __future__ import annotations

import pathlib
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from mimetic_jax import rewrite
from mimetic_jax.analysis import style
from mimetic_jax.schemes import Mimetic, NormMatched, Permuted, Scheme

FOLDER = pathlib.Path("docs")
_DIM, _SHOWN = 96, 32


def controls() -> None:
    """Draw W_V W_out of one layer as each arm of a comparison has it: docs/controls.png."""
    scheme = Mimetic(alpha_qk=None, beta_qk=None)
    layer = nn.MultiHeadDotProductAttention(num_heads=1)
    params = layer.init(jax.random.key(1), np.ones((1, 1, _DIM), np.float32))["params"]

    def product(*schemes: Scheme) -> np.ndarray:
        drawn = rewrite(jax.random.key(0), params, schemes) if schemes else params
        value, out = (np.asarray(drawn[name]["kernel"], np.float64) for name in ("value", "out"))
        return value.reshape(_DIM, -1) @ out.reshape(-1, _DIM)

    products = {
        "default\nFlax's own draw": product(),
        "norm-matched control\nrandom, norms of the scheme": product(NormMatched(scheme)),
        "permuted control\nchannels permuted": product(Permuted(scheme)),
        "scheme\nW_V W_out ≈ αZ − βI": product(scheme),
    }
    bound = style.limit(products.values())
    with style.matrices(1, len(products), most=1.55, beside=0.1, above=0.62) as (figure, axes):
        for panel, (title, matrix) in zip(axes[0], products.items(), strict=True):
            style.signed(panel, matrix[:_SHOWN, :_SHOWN], bound)
            alignment = np.trace(matrix) / np.linalg.norm(matrix) / np.sqrt(_DIM)
            panel.set_title(title)
            panel.set_xlabel(f"alignment {alignment:+.2f}".replace("-", "−"))
        style.save(figure, FOLDER / "controls.png")


def pipeline() -> None:
    """Draw how `rewrite` leads from a parameter tree to a new one: docs/pipeline.png."""
    boxes = (
        ("tree", "nested arrays\nof any library"),
        ("rules", "path → role, layout\nquery: d (h k)"),
        ("blocks", "one layer's arrays,\ncanonical axes"),
        ("scheme", "key, block, context\n→ new arrays"),
        ("tree", "same structure,\ndtypes, shardings"),
    )
    with style.canvas(style.PAGE, 0.75) as figure:
        axes: Any = figure.subplots()
        axes.set_axis_off()
        axes.set_xlim(-0.5, len(boxes) - 0.5)
        axes.set_ylim(-1, 1)
        for place, (name, what) in enumerate(boxes):
            frame = {"boxstyle": "round,pad=0.6", "facecolor": "#EAF2F8", "edgecolor": "#0072B2"}
            axes.text(place, 0, f"{name}\n{what}", ha="center", va="center", bbox=frame)
            if place:
                arrow = {"arrowstyle": "->", "color": "#0072B2"}
                axes.annotate("", (place - 0.42, 0), (place - 0.58, 0), arrowprops=arrow)
        style.save(figure, FOLDER / "pipeline.png")


if __name__ == "__main__":
    controls()
    pipeline()
