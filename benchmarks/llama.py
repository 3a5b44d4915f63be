"""Time initializing Llama-7B-sized attention (D 4096, 32 heads, 32 layers) by `method="fast"`.

    python -m benchmarks.llama

Four heads of a layer's query/key and one layer's value/out are measured, the rest is extrapolated:
a layer is 8 times the former plus the latter, the model 32 layers. The energy that the fast route
captures is measured on one head, relative to the exact route.
"""

from __future__ import annotations

import jax
import numpy as np

from benchmarks.timing import seconds
from mimetic_jax.weights import factorize, query_key, value_out

DIM, HEADS, WIDTH, LAYERS, MEASURED = 4096, 32, 128, 32, 4


def main() -> None:
    """Print seconds per layer and for the model, and the captured energy."""
    key = jax.random.key(0)
    query_key(key, DIM, num_heads=1, head_dim=WIDTH, method="fast")  # compiles the drawing
    pair = seconds(lambda: query_key(key, DIM, MEASURED, head_dim=WIDTH, method="fast"))
    exact = seconds(lambda: query_key(key, DIM, MEASURED, head_dim=WIDTH))
    joint = seconds(lambda: value_out(key, DIM, HEADS))
    layer = pair * HEADS / MEASURED + joint
    noise = np.random.default_rng(0).standard_normal((1, DIM, DIM), np.float32) / DIM**0.5
    target = 0.7 * noise + 0.7 * np.eye(DIM, dtype=np.float32)
    energies = [
        np.linalg.norm(factorize(target, WIDTH, method)[0], axis=1) ** 4  # σ² of each column
        for method in ("fast", "exact")
    ]
    print(f"query/key, per head: fast {pair / MEASURED:.2f} s, exact {exact / MEASURED:.2f} s")
    print(f"value/out, per layer (full rank, exact): {joint:.1f} s")
    print(f"per layer: {layer:.0f} s; {LAYERS} layers, estimated: {LAYERS * layer / 60:.1f} min")
    print(f"energy of the fast route: {energies[0].sum() / energies[1].sum():.4f} of the exact")


if __name__ == "__main__":
    main()
