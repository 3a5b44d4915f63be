"""Time the forward and backward pass of a depthwise convolution in both of its forms, on this CPU.

    python -m benchmarks.depthwise

Ours (one product per channel) against XLA's grouped convolution: 32 images of 64 channels, float32,
gradients of inputs and filters. Medians of 5 repeats, interleaved in one run; the ratio is XLA's
time over ours.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.timing import medians
from mimetic_jax.models import depthwise

BATCH, CHANNELS = 32, 64
GRIDS, SIZES = (8, 16, 32), (3, 5, 7, 8)


def gradient(form: Callable[[jax.Array, jax.Array], jax.Array]) -> Callable[..., Any]:
    """The compiled gradient of a loss of the form's output."""
    return jax.jit(jax.grad(lambda x, kernel: jnp.sin(form(x, kernel)).sum(), argnums=(0, 1)))


def main() -> None:
    """Print one line per grid and filter size."""
    forms = depthwise._product, depthwise._grouped
    print("grid   filter   ours ms   grouped ms   ratio")
    for side in GRIDS:
        for size in SIZES:
            x = jax.random.normal(jax.random.key(0), (BATCH, side, side, CHANNELS))
            kernel = jax.random.normal(jax.random.key(1), (size, size, CHANNELS))
            ours, grouped = medians(
                [functools.partial(gradient(form), x, kernel) for form in forms]
            )
            print(
                f"{side:2}x{side:<3} {size}x{size} {1e3 * ours:12.1f} {1e3 * grouped:12.1f} "
                f"{grouped / ours:7.1f}"
            )


if __name__ == "__main__":
    main()
