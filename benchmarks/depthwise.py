"""Time the forward and backward pass of a depthwise convolution in all of its forms, on this CPU.

    python -m benchmarks.depthwise

Ours (one product per channel) against XLA's grouped convolution: 32 images of 64 channels, float32,
gradients of inputs and filters. Then the forms under `vmap`, where each of 8 members has filters of
its own. Medians of 5 repeats, interleaved in one run; a ratio is XLA's time over ours.
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
MEMBERS = 8, 64, 8, 16, 7
"""Members, images of each, side of their grid, channels, side of the filters."""


def seconds(forms: list[Callable[..., jax.Array]], x: Any, kernel: Any) -> list[float]:
    """Of the gradient of a loss of each form's output, for arrays of these shapes."""
    arrays = jax.random.normal(jax.random.key(0), x), jax.random.normal(jax.random.key(1), kernel)

    def gradient(form: Callable[..., jax.Array]) -> Callable[..., Any]:
        return jax.jit(jax.grad(lambda x, kernel: jnp.sin(form(x, kernel)).sum(), argnums=(0, 1)))

    return medians([functools.partial(gradient(form), *arrays) for form in forms])


def main() -> None:
    """Print one line per grid and filter size, and one per form under `vmap`."""
    print("grid   filter   ours ms   grouped ms   ratio")
    for side in GRIDS:
        for size in SIZES:
            x, kernel = (BATCH, side, side, CHANNELS), (size, size, CHANNELS)
            ours, grouped = seconds([depthwise._product, depthwise._grouped], x, kernel)
            print(
                f"{side:2}x{side:<3} {size}x{size} {1e3 * ours:12.1f} {1e3 * grouped:12.1f} "
                f"{grouped / ours:7.1f}"
            )
    members, batch, side, channels, size = MEMBERS
    forms = [depthwise._of_pixels, depthwise._of_rows, depthwise._grouped]
    found = seconds(
        [jax.vmap(form) for form in forms],
        (members, batch, side, side, channels),
        (members, size, size, channels),
    )
    print(f"\nof {members} members   ms   ratio")
    for form, time in zip(forms, found, strict=True):
        print(f"{form.__name__.removeprefix('_'):12} {1e3 * time:7.1f} {found[-1] / time:7.1f}")


if __name__ == "__main__":
    main()
