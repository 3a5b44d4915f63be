"""Draw the attention of a model of 1.2 billion parameters from its shapes, eager and compiled.

    python -m benchmarks.billion                 # on this machine, in a process each
    python -m benchmarks.billion --target=h200   # or v5e:2x2: compiled for it, not run
    python -m benchmarks.billion --target=v5e:1x1 --scheme="Mimetic(alpha_vo=None,beta_vo=None)" \\
        --layers=1

The time to compile grows with the number of layers, as each has its own eigensolver.

The sizes are those of Llama 3.2 1B: 16 layers of width 2,048 with 32 heads of width 64 and 8 of key
and value, 168 million parameters of attention. The compiled draw is `method="fast"` with the heads
sharded over all devices.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import resource
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.gpu.process import call
from mimetic_jax import draw
from mimetic_jax.analysis.compile import Target
from mimetic_jax.analysis.timing import timed
from mimetic_jax.command.expressions import parse_scheme
from mimetic_jax.host.sums import compile_right_sums
from mimetic_jax.schemes import Mimetic

LAYERS, D, H, G, K, F, VOCABULARY = 16, 2048, 32, 8, 64, 8192, 128_256
_INTO, _OUT_OF = P(None, "model"), P("model")
_SPECS = {"query": _INTO, "key": _INTO, "value": _INTO, "out": _OUT_OF}


def shapes(layers: int = LAYERS) -> dict[str, Any]:
    """The model's parameters in float32, by stock names."""

    def leaf(*shape: int) -> dict[str, Any]:
        return {"kernel": jax.ShapeDtypeStruct(shape, jnp.float32)}

    attention = {"query": leaf(D, H, K), "key": leaf(D, G, K), "value": leaf(D, G, K)}
    attention["out"] = leaf(H, K, D)
    mlp = {"gate": leaf(D, F), "up": leaf(D, F), "down": leaf(F, D)}
    blocks = {f"layer_{i}": {"attention": attention, "mlp": mlp} for i in range(layers)}
    return {"embedding": leaf(VOCABULARY, D), **blocks}


def lowered(devices: Any, scheme: Mimetic, layers: int) -> jax.stages.Lowered:
    """The draw, sharded over the heads."""
    mesh = jax.make_mesh((len(devices),), ("model",), (AxisType.Auto,), devices=devices)
    fast = dataclasses.replace(scheme, method="fast")
    drawing = functools.partial(draw, shapes=shapes(layers), scheme=fast)
    key = jax.eval_shape(lambda: jax.random.key(0))

    def where(path: Any, leaf: Any) -> NamedSharding:
        return NamedSharding(mesh, _SPECS[path[-2].key])

    out = jax.tree.map_with_path(where, jax.eval_shape(drawing, key))
    key = jax.ShapeDtypeStruct(key.shape, key.dtype, sharding=NamedSharding(mesh, P()))
    return jax.jit(drawing, out_shardings=out).lower(key)


def eager(_: int) -> tuple[float, float, float, Any]:
    """Seconds to compile and to draw, GiB at the peak, and the arrays of some layers."""
    drawing, drawn = timed(lambda: draw(jax.random.key(0), shapes(), Mimetic()))
    return 0.0, drawing, *_ends(drawn)


def compiled(count: int) -> tuple[float, float, float, Any]:
    """As `eager`, of the compiled draw on so many virtual devices."""
    compile_right_sums()
    jax.config.update("jax_num_cpu_devices", count)
    compiling, program = timed(lambda: lowered(jax.devices(), Mimetic(), LAYERS).compile())
    drawing, drawn = timed(lambda: program(jax.random.key(0)))
    return compiling, drawing, *_ends(drawn)


def _ends(drawn: Any) -> tuple[float, Any]:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    kept = {name: drawn[name]["attention"] for name in ("layer_0", f"layer_{LAYERS - 1}")}
    return peak, jax.tree.map(np.asarray, kept)


def products(attention: Any) -> tuple[np.ndarray, np.ndarray]:
    """W_Q W_Kᵀ of the first head, and W_V W_out."""
    query, key, value, out = (attention[role]["kernel"] for role in _SPECS)
    value = value.repeat(H // G, axis=1).reshape(D, -1)
    return query[:, 0] @ key[:, 0].T, value @ out.reshape(-1, D)


def main() -> None:
    """Print a line for each way to draw, and how much the products differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", help="such as h200 or v5e:2x2")
    parser.add_argument("--layers", type=int, default=LAYERS, help="with --target")
    parser.add_argument("--scheme", type=parse_scheme, default=Mimetic(), help="with --target")
    parser.add_argument("--devices", type=int, default=1, help="virtual devices on this machine")
    options = parser.parse_args()
    if options.target:
        target = Target.of(options.target)
        program = lowered(target.devices(), options.scheme, options.layers)
        compiling, compiled_for = timed(program.compile)
        memory: Any = compiled_for.memory_analysis()
        print(
            f"{options.target}: compiled in {compiling:.0f} s; per device "
            f"{memory.output_size_in_bytes / 2**30:.2f} GiB drawn, "
            f"{memory.temp_size_in_bytes / 2**30:.2f} GiB beside it"
        )
        return
    found = {}
    for way in (eager, compiled):
        compiling, drawing, peak, found[way] = call(way, options.devices)
        print(
            f"{way.__name__}: compiled in {compiling:.0f} s, drawn in {drawing:.0f} s, "
            f"{peak:.2f} GiB at the peak",
            flush=True,
        )
    for name, attention in found[eager].items():
        pairs = zip(products(attention), products(found[compiled][name]), strict=True)
        differences = (np.abs(left - right).max() for left, right in pairs)
        print(f"{name}: products differ by {' and '.join(f'{d:.1e}' for d in differences)}")


if __name__ == "__main__":
    main()
