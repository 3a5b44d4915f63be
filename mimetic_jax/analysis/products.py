"""How much attention products lean to the identity, before and after training."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from mimetic_jax.analysis.capture import networks
from mimetic_jax.pairs import Pair, attention_pairs
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.store.places import AnyPath


@dataclasses.dataclass(frozen=True)
class Lean:
    """Mean diagonals of a layer's products, and the spread around them.

    Attributes:
        layer: path of the attention layer.
        query_key: mean of diag(W_Q W_Kᵀ) over heads.
        value_out: mean of diag(W_V W_out).
        query_key_noise, value_out_noise: standard deviation off the diagonal.
    """

    layer: str
    query_key: float
    query_key_noise: float
    value_out: float
    value_out_noise: float


def leans(params: Any, **options: Any) -> list[Lean]:
    """The lean of every attention layer of a parameter tree.

    Args:
        params: a parameter tree; layers may be stacked, kernels fused.
        **options: those of `mimetic_jax.blocks`: rules, num_heads, num_kv_heads.

    Raises:
        InputError: as `mimetic_jax.blocks`; or if a product isn't square.

    Example:
        >>> query, out = np.ones((1, 4, 2, 3)), np.ones((1, 2, 3, 4))
        >>> kernels = {"query": query, "key": query, "value": query, "out": out}
        >>> layers = {role: {"kernel": kernel} for role, kernel in kernels.items()}
        >>> [(lean.layer, lean.value_out) for lean in leans({"blocks": {"attention": layers}})]
        [('blocks/attention[0]', 6.0)]

    Reference: Mimetic Initialization of Self-Attention Layers, figures 1-3.
    """
    return [
        Lean(layer.name, *_diagonal(layer.query_key), *_diagonal(layer.value_out))
        for layer in attention_pairs(params, **options)
        if layer.query_key and layer.value_out
    ]


def analyze(comparison: Comparison, workdir: AnyPath) -> str:
    """A table of leans at initialization and, where a run has a checkpoint, after training."""
    lines = []
    for network in networks(comparison, workdir, data=False):
        lines.append(f"{network.label}: mean diagonal (std off it)")
        params = jax.device_get(network.variables["params"])
        found = leans(params, rules=network.arm.program.rules)
        if not found:
            lines.append(f"  model {network.model.name} has no attention products")
        width = max((len(lean.layer) for lean in found), default=0)
        lines += [
            f"  {lean.layer:<{width}}  W_Q W_K^T {lean.query_key:+.3f} "
            f"({lean.query_key_noise:.3f})  "
            f"W_V W_out {lean.value_out:+.3f} ({lean.value_out_noise:.3f})"
            for lean in found
        ]
    return "\n".join(lines)


def _diagonal(pair: Pair) -> tuple[float, float]:
    products_HxDxD = pair.left @ pair.right.swapaxes(1, 2)
    off = ~np.eye(products_HxDxD.shape[-1], dtype=bool)
    diagonals = products_HxDxD.diagonal(axis1=1, axis2=2)
    return float(diagonals.mean()), float(products_HxDxD[:, off].std())
