"""Time the initialization of a ViT's attention against NumPy SVDs, as in the released PyTorch code.

    python -m benchmarks.init

Ours is `rewrite` on the whole parameter tree: 12 layers, noise drawn, factors placed. NumPy's is
`np.linalg.svd` of the same number of matrices of the same sizes, drawn beforehand: one layer per
repeat, times 12. Both may use every core. Medians of 5 repeats, interleaved in one run.

What bounds ours is LAPACK's symmetric eigensolver: the last columns are its share of a layer's
factors on one core, and its GFLOP/s (4/3 D³ to reduce, then 10/3 D³ for all vectors, or 2 D² K
where K ≤ D/4 of them are computed) beside those of a plain product of two matrices of 1024.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.timing import medians
from mimetic_jax import rewrite
from mimetic_jax.host.cores import limited_blas
from mimetic_jax.host.lapack import leading_eigenvectors
from mimetic_jax.schemes import Mimetic
from mimetic_jax.weights import factorize

LAYERS = 12
PAUSE = 0.2
"""Seconds between measurements, until the BLAS threads of one stop spinning."""

SIZES = {"ViT-Ti": (192, 3), "ViT-S": (384, 6), "ViT-B": (768, 12)}


def attention_tree(dim: int, heads: int) -> dict[str, Any]:
    """Zero kernels of LAYERS stock attention layers."""
    into = {"kernel": jnp.zeros((dim, heads, dim // heads))}
    out = {"kernel": jnp.zeros((heads, dim // heads, dim))}
    layer = {"query": into, "key": into, "value": into, "out": out}
    return {f"block_{index}": layer for index in range(LAYERS)}


def numpy_layer(noise: np.ndarray) -> None:
    """One layer as in the released code: one SVD per head, and one for value and out."""
    identity = np.eye(noise.shape[-1], dtype=noise.dtype)
    for head in noise[:-1]:
        np.linalg.svd(0.7 * head + 0.7 * identity)
    np.linalg.svd(0.4 * noise[-1] - 0.4 * identity)


def eigensolver(noise: np.ndarray, rank: int) -> tuple[float, float, float]:
    """Its share of a layer's factors, its GFLOP/s, and those of a product, on one core."""
    dim = noise.shape[-1]
    identity = np.eye(dim, dtype=np.float32)
    heads, joint = 0.7 * noise[:-1] + 0.7 * identity, 0.4 * noise[-1:] - 0.4 * identity
    grams = [(head.T @ head, rank) for head in heads] + [(joint[0].T @ joint[0], dim)]
    square = np.ones((1024, 1024), np.float32)

    def all_factors() -> None:
        for head in heads:
            factorize(head[None], rank)
        factorize(joint, dim)

    with limited_blas():
        factors, solved, product = medians(
            [
                all_factors,
                lambda: [leading_eigenvectors(*gram) for gram in grams],
                lambda: square @ square,
            ],
            PAUSE,
        )
    counts = (10 / 3 * dim if 4 * rank > dim else 2 * rank for _, rank in grams)
    flops = sum((4 / 3 * dim + count) * dim**2 for count in counts)
    return solved / factors, flops / solved / 1e9, 2 * 1024**3 / product / 1e9


def main() -> None:
    """Print one line per size."""
    print(
        "model    ours s   numpy float64 s  ratio   numpy float32 s  ratio   "
        "eigensolver  its GFLOP/s  a product's"
    )
    for name, (dim, heads) in SIZES.items():
        tree = attention_tree(dim, heads)
        shape = (heads + 1, dim, dim)
        noise = np.random.default_rng(0).normal(size=shape) / np.sqrt(dim)
        single = noise.astype(np.float32)
        ways = [
            functools.partial(rewrite, jax.random.key(1), tree, Mimetic()),
            *(functools.partial(numpy_layer, of) for of in (noise, single)),
        ]
        ours, *layers = medians(ways, PAUSE)
        double, half = (LAYERS * seconds for seconds in layers)
        share, reached, product = eigensolver(single, dim // heads)
        print(
            f"{name:<8} {ours:<8.3f} {double:<16.2f} {double / ours:<7.1f} "
            f"{half:<16.2f} {half / ours:<7.1f} {share:<12.0%} {reached:<12.0f} {product:.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
