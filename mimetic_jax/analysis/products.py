"""How much attention products lean to the identity, before and after training."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from mimetic_jax import paths
from mimetic_jax.train.compare import Comparison
from mimetic_jax.train.workdir.paths import AnyPath
from mimetic_jax.train.workdir.runs import Run


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


def leans(params: Any) -> list[Lean]:
    """The lean of every stock attention layer of a parameter tree.

    Args:
        params: with `…/query/kernel` [D, H, K], key [D, G, K], value [D, G, K], out [H, K, D].

    Reference: Mimetic Initialization of Self-Attention Layers, figures 1-3.
    """
    leaves = dict(paths.flatten(params)[0])
    ends = "/query/kernel"
    layers = sorted((p.removesuffix(ends) for p in leaves if p.endswith(ends)), key=paths.natural)
    found = []
    for layer in layers:
        query, key, value, out = (
            np.asarray(leaves[f"{layer}/{role}/kernel"], np.float32)
            for role in ("query", "key", "value", "out")
        )
        group = query.shape[1] // key.shape[1]
        key, value = np.repeat(key, group, axis=1), np.repeat(value, group, axis=1)
        query_key = np.einsum("dhk,ehk->hde", query, key)
        value_out = np.einsum("dhk,hke->de", value, out)[None]
        found.append(Lean(layer, *_diagonal(query_key), *_diagonal(value_out)))
    return found


def analyze(comparison: Comparison, workdir: AnyPath) -> str:
    """A table of leans at initialization and, where a run has a checkpoint, after training."""
    comparison.recognize(workdir)
    lines = []
    for name, arm in comparison.arms.items():
        seed = arm.config.seeds[0]
        trees = {"initial": arm.program.initial_state(seed, arm.config.scheme).params}
        if (trained := comparison.restored(Run.of(workdir, name, seed))) is not None:
            trees[f"step {int(trained.step)}"] = trained.params
        for when, params in trees.items():
            lines.append(f"{name} seed {seed}, {when}: mean diagonal (std off it)")
            lines += [
                f"  {lean.layer:<24} W_Q W_K^T {lean.query_key:+.3f} ({lean.query_key_noise:.3f})  "
                f"W_V W_out {lean.value_out:+.3f} ({lean.value_out_noise:.3f})"
                for lean in leans(jax.device_get(params))
            ]
    return "\n".join(lines)


def _diagonal(products: np.ndarray) -> tuple[float, float]:
    off = ~np.eye(products.shape[-1], dtype=bool)
    diagonals = products.diagonal(axis1=-2, axis2=-1)
    return float(diagonals.mean()), float(products[:, off].std())
