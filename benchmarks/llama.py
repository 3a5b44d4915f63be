"""Attention of the size of Llama-7B's (D 4096, 32 heads, 32 layers): seconds here, or on paper.

    taskset -c 0 python -m benchmarks.llama     # one core
    python -m benchmarks.llama --target=h200    # needs what docs/compile.md installs

Here: processor time of one head of query/key, of concrete arrays (LAPACK) and inside `jax.jit` by
both methods, and of one layer's value/out, with the drawing of their noise. The model has 32 layers
of 32 heads and one value/out.

On paper: the program of one head by `method="fast"`, compiled for a target, its loop turning as
often as here. Products are float32's: 67 TFLOP/s of an H100 or H200 (NVIDIA's data sheet), six
passes of bfloat16 on a TPU. QR and the eigensolver of the block, which are a library's, aren't
counted, nor is latency.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from mimetic_jax.analysis.compile.hlo import parse
from mimetic_jax.analysis.compile.kernels import step_kernels
from mimetic_jax.analysis.compile.roofline import roofline
from mimetic_jax.analysis.compile.target import Target
from mimetic_jax.weights import factorize, query_key, value_out

DIM, HEADS, WIDTH, LAYERS = 4096, 32, 128, 32
TURNS = 4
FLOAT32 = {"h100": 67e12, "h200": 67e12}


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """Processor time of one call, of all threads, and its result."""
    began = time.process_time()
    result = jax.block_until_ready(function())
    return time.process_time() - began, result


def here() -> None:
    """Print seconds on this machine, and how far the products of both methods differ."""
    key = jax.random.key(0)
    head = functools.partial(query_key, key, DIM, 1, head_dim=WIDTH)
    host, joint = timed(head)[0], timed(lambda: value_out(key, DIM, HEADS))[0]
    total = LAYERS * (HEADS * host + joint) / 60
    print(f"head: {host:.1f} s; value/out: {joint:.1f} s; {LAYERS} layers: {total:.0f} min")
    products = []
    for method in ("exact", "fast"):
        compiled = jax.jit(functools.partial(head, method=method)).lower().compile()
        took, (query, keys) = timed(compiled)
        print(f"head inside jax.jit, {method}: {took:.1f} s")
        products.append(np.asarray(query[:, 0]) @ np.asarray(keys[:, 0]).T)
    exact, fast = products
    apart = np.linalg.norm(fast - exact) / np.linalg.norm(exact)
    print(f"relative difference of their products: {apart:.0e}")


def on_paper(name: str) -> None:
    """Print the roofline of a head, and of all heads."""
    target = Target.of(name)
    (device, *_) = target.devices()
    shape = (1, DIM, DIM)
    matrix = jax.ShapeDtypeStruct(shape, jnp.float32, sharding=SingleDeviceSharding(device))
    with jax.default_device(device):
        compiled = jax.jit(lambda a: factorize(a, WIDTH, "fast")).lower(matrix).compile()
    kernels = step_kernels(parse(compiled.as_text() or ""), TURNS)
    peak = FLOAT32.get(name) or target.chip.flops / 6
    found = roofline(kernels, dataclasses.replace(target.chip, flops32=peak), 1)
    flops = sum(kernel.times * kernel.flops.total for kernel in kernels)
    print(
        f"{target.chip.name}, {target.compiler}: a head multiplies {flops / 1e9:.0f} GFLOP, at "
        f"best {1e3 * found.seconds:.1f} ms, bound by {found.bound}; "
        f"{LAYERS * HEADS} heads {LAYERS * HEADS * found.seconds:.1f} s"
    )


def main() -> None:
    """Measure here, or compile for --target."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--target", help="h200, h100 or v5e:2x2, of which one chip is used")
    target = parser.parse_args().target
    if target:
        on_paper(target)
    else:
        here()


if __name__ == "__main__":
    main()
