"""Time the forward and backward pass of a depthwise convolution in both of its forms, on this CPU.

    python benchmarks/depthwise.py

Ours (one product per channel) against XLA's grouped convolution: 32 images of 64 channels, float32,
gradients of inputs and filters. Medians of 5 repeats, interleaved in one run; the ratio is XLA's
time over ours.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from mimetic_jax.models import depthwise

BATCH, CHANNELS, REPEATS = 32, 64, 5
GRIDS, SIZES = (8, 16, 32), (3, 5, 7, 8)


def gradient(form: Callable[[jax.Array, jax.Array], jax.Array]) -> Callable[..., Any]:
    """The compiled gradient of a loss of the form's output."""
    return jax.jit(jax.grad(lambda x, kernel: jnp.sin(form(x, kernel)).sum(), argnums=(0, 1)))


def seconds(function: Callable[..., Any], *args: jax.Array) -> float:
    """Wall time of one call."""
    began = time.perf_counter()
    jax.block_until_ready(function(*args))
    return time.perf_counter() - began


def main() -> None:
    """Print one line per grid and filter size."""
    forms = {"ours": depthwise._product, "grouped": depthwise._grouped}
    print("grid   filter   ours ms   grouped ms   ratio")
    for side in GRIDS:
        for size in SIZES:
            x = jax.random.normal(jax.random.key(0), (BATCH, side, side, CHANNELS))
            kernel = jax.random.normal(jax.random.key(1), (size, size, CHANNELS))
            functions = {name: gradient(form) for name, form in forms.items()}
            for function in functions.values():
                seconds(function, x, kernel)  # compiles
            times: dict[str, list[float]] = {name: [] for name in forms}
            for _ in range(REPEATS):
                for name, function in functions.items():
                    times[name].append(seconds(function, x, kernel))
            ours, grouped = (1e3 * statistics.median(times[name]) for name in forms)
            ratio = grouped / ours
            print(f"{side:2}x{side:<3} {size}x{size} {ours:12.1f} {grouped:12.1f} {ratio:7.1f}")


if __name__ == "__main__":
    main()
