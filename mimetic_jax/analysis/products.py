"""How much attention products lean to the identity, before and after training."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from mimetic_jax.analysis.capture import networks
from mimetic_jax.rewrite import blocks
from mimetic_jax.train.compare import Comparison
from mimetic_jax.train.workdir.paths import AnyPath


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
        InputError: as `mimetic_jax.blocks`.

    Example:
        >>> query, out = np.ones((1, 4, 2, 3)), np.ones((1, 2, 3, 4))
        >>> kernels = {"query": query, "key": query, "value": query, "out": out}
        >>> layers = {role: {"kernel": kernel} for role, kernel in kernels.items()}
        >>> [(lean.layer, lean.value_out) for lean in leans({"blocks": {"attention": layers}})]
        [('blocks/attention[0]', 6.0)]

    Reference: Mimetic Initialization of Self-Attention Layers, figures 1-3.
    """
    found = []
    for path, layer, block in blocks(params, **options):
        if not {"query", "key", "value", "out"} <= block.keys():
            continue
        query, key, value, out = (
            np.asarray(block[role]) for role in ("query", "key", "value", "out")
        )
        group = query.shape[1] // key.shape[1]
        key, value = np.repeat(key, group, axis=1), np.repeat(value, group, axis=1)
        query_key = np.einsum("dhk,ehk->hde", query, key)
        value_out = np.einsum("dhk,hke->de", value, out)[None]
        name = path if layer is None else f"{path}[{layer}]"
        found.append(Lean(name, *_diagonal(query_key), *_diagonal(value_out)))
    return found


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


def _diagonal(products: np.ndarray) -> tuple[float, float]:
    off = ~np.eye(products.shape[-1], dtype=bool)
    diagonals = products.diagonal(axis1=-2, axis2=-1)
    return float(diagonals.mean()), float(products[:, off].std())
