"""Time initialization on eight virtual devices against one: sharding must not make it crawl.

    python -m benchmarks.devices

The model has attention of two shapes and is initialized in two ways: concrete (as the trainer does:
draw, rewrite on the host, place shard by shard) and traced (all in one `jax.jit` with
`out_shardings`, compilation included). Medians of 5, one process per number of devices.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.timing import medians
from mimetic_jax import rewrite
from mimetic_jax.schemes import Mimetic
from mimetic_jax.train.cluster.mesh import make_mesh, shardings

RULES = ((r".", "fsdp"),)


def draw(key: jax.Array) -> dict[str, Any]:
    """Six layers of width 192 with 3 heads and six of 96 with 4, drawn as Flax would."""
    shapes = {"wide": (192, 3, 64), "narrow": (96, 4, 24)}
    tree: dict[str, Any] = {}
    for name, (dim, heads, width) in shapes.items():
        for layer in range(6):
            kernel = jax.random.normal(jax.random.fold_in(key, layer), (dim, heads, width))
            roles = {role: {"kernel": kernel} for role in ("query", "key", "value")}
            tree[f"{name}_{layer}"] = {**roles, "out": {"kernel": jnp.moveaxis(kernel, 0, 2)}}
    return tree


def measure() -> dict[str, float]:
    """Median seconds of both ways on this process's devices."""
    mesh = make_mesh(data=1, fsdp=jax.device_count())
    where = shardings(jax.eval_shape(draw, jax.random.key(0)), mesh, RULES)
    start = jax.jit(draw, out_shardings=where)

    def concrete() -> Any:
        return rewrite(jax.random.key(1), start(jax.random.key(0)), Mimetic())

    def traced() -> Any:
        def whole(key: jax.Array) -> Any:
            return rewrite(key, draw(key), Mimetic())

        return jax.jit(whole, out_shardings=where)(jax.random.key(1))

    found = medians([concrete, traced])
    return dict(zip(("concrete", "traced"), found, strict=True))


def main() -> None:
    """Measure in one process per number of devices and print the ratios."""
    measured = {}
    for count in (1, 8):
        flags = f"--xla_force_host_platform_device_count={count}"
        command = [sys.executable, "-m", "benchmarks.devices", "child"]
        done = subprocess.run(
            command, env=os.environ | {"XLA_FLAGS": flags}, capture_output=True, check=True
        )
        measured[count] = json.loads(done.stdout.splitlines()[-1])
    print("way        1 device s  8 devices s  ratio")
    for way, one in measured[1].items():
        eight = measured[8][way]
        print(f"{way:<10} {one:<11.2f} {eight:<12.2f} {eight / one:.2f}")


if __name__ == "__main__":
    if sys.argv[1:] == ["child"]:
        print(json.dumps(measure()))
    else:
        main()
