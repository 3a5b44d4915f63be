"""Attention of the size of Llama-7B's (D 4096, 32 heads, 32 layers): seconds here, or on paper.

    python -m benchmarks.llama
    python -m benchmarks.llama --target=h200    # needs what docs/compile.md installs

Here: one head of query/key, from a key as a user calls it (LAPACK), and inside `jax.jit` by both
methods, and one layer's value/out. The model is 32 layers of 32 heads and one value/out.

On paper: the program of one head by `method="fast"`, compiled for a target, with the turns of its
loop that the run here needs. Products are float32's: 67 TFLOP/s of an H100 or H200 (NVIDIA's data
sheet), six passes of bfloat16 on a TPU. QR and the eigensolver of a block are a library's, and not
counted; neither is latency.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from benchmarks.timing import seconds
from mimetic_jax.analysis.compile.hlo import parse
from mimetic_jax.analysis.compile.kernels import step_kernels
from mimetic_jax.analysis.compile.roofline import roofline
from mimetic_jax.analysis.compile.target import Target
from mimetic_jax.weights import factorize, query_key, value_out

DIM, HEADS, WIDTH, LAYERS = 4096, 32, 128, 32
TURNS = 4
FLOAT32 = {"h100": 67e12, "h200": 67e12}


def here() -> None:
    """Print seconds on this machine, and how far the products of both methods differ."""
    key = jax.random.key(0)
    head = functools.partial(query_key, key, DIM, 1, head_dim=WIDTH)
    head(method="exact")  # compiles the drawing
    host, joint = seconds(lambda: head()), seconds(lambda: value_out(key, DIM, HEADS))
    total = LAYERS * (HEADS * host + joint) / 60
    print(f"head: {host:.1f} s; value/out: {joint:.1f} s; {LAYERS} layers: {total:.0f} min")
    found = {}
    for method in ("exact", "fast"):
        compiled = jax.jit(functools.partial(head, method=method)).lower().compile()
        query, keys = compiled()
        found[method] = np.asarray(query[:, 0]) @ np.asarray(keys[:, 0]).T
        print(f"head inside jax.jit, {method}: {seconds(compiled):.1f} s")
    apart = np.linalg.norm(found["fast"] - found["exact"]) / np.linalg.norm(found["exact"])
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
