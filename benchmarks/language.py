"""Time a training step of the language model against the same model in PyTorch, on the CPU.

    python benchmarks/language.py

Needs PyTorch (pip install torch) beside this package. Width 256, 6 layers, 8 heads, 10,000 words,
8 rows of 128 tokens, dropout 0.1, AdamW, float32; PyTorch eager with its own fused attention.
Medians of 5 steps each, interleaved in one run; all positions of a window count as tokens.
"""

from __future__ import annotations

import pathlib
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

# The root of the repository, for benchmarks.gpu.torch_gpt.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import jax
import jax.numpy as jnp
import numpy as np

from configs.default import default_text
from mimetic_jax.data.text import corpus as texts
from mimetic_jax.host.memory import keep_freed_memory
from mimetic_jax.train.cluster.mesh import make_mesh
from mimetic_jax.train.program import Program
from mimetic_jax.train.state import stream

WIDTH, DEPTH, HEADS, VOCABULARY, ROWS, LENGTH, REPEATS = 256, 6, 8, 10_000, 8, 128, 5


def ours() -> Callable[[], Any]:
    """Returns a function that takes one step of the trainer."""
    config = default_text()
    config.data.name, config.data.length, config.data.valid = "ptb_word", LENGTH, LENGTH
    config.batch, config.steps, config.max_dispatch, config.eval.batch = ROWS, 100, 1, ROWS
    config.model.update(width=WIDTH, depth=DEPTH, heads=HEADS, dropout=0.1)
    program = Program(config, texts.describe("ptb_word"), make_mesh())
    rows = jnp.asarray(np.random.default_rng(0).integers(0, VOCABULARY, (ROWS, 2000), np.int32))
    keys = stream(0, "data"), stream(0, "dropout")
    held = [program.initial_state(0, ())]

    def step() -> Any:
        held[0], history = program.run_steps(held[0], rows, *keys, jnp.int32(1))
        return jax.block_until_ready(history)

    return step


def theirs() -> Callable[[], Any]:
    """Returns the same for PyTorch."""
    import torch

    from benchmarks.gpu.torch_gpt import GPT

    model = GPT(VOCABULARY, WIDTH, DEPTH, HEADS, LENGTH, dropout=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.01)
    tokens = torch.from_numpy(np.random.default_rng(0).integers(0, VOCABULARY, (ROWS, LENGTH + 1)))

    def step() -> Any:
        optimizer.zero_grad()
        model.loss(tokens, LENGTH).backward()
        optimizer.step()

    return step


def main() -> None:
    """Print tokens per second and the ratio."""
    keep_freed_memory()  # as commands do; PyTorch's memory comes from the same allocator
    try:
        steps = [ours(), theirs()]
    except ImportError:
        sys.exit("this benchmark compares with PyTorch: pip install torch")
    times: list[list[float]] = []
    for _ in range(REPEATS + 2):  # two to compile and warm up
        row = []
        for step in steps:
            began = time.perf_counter()
            step()
            row.append(time.perf_counter() - began)
        times.append(row)
    medians = [statistics.median(column) for column in zip(*times[2:], strict=True)]
    for name, median in zip(("mimetic_jax", "PyTorch eager"), medians, strict=True):
        print(f"{name:<14} {ROWS * LENGTH / median:8.0f} tokens/s")
    print(f"ratio          {medians[1] / medians[0]:8.2f}")


if __name__ == "__main__":
    main()
