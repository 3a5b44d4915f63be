"""Time training steps against the same models in PyTorch, eager, on the CPU.

    python -m benchmarks.step

Needs PyTorch (pip install torch timm) beside this package. Float32, AdamW, random data, no
augmentation; PyTorch has its own fused attention. Medians of 5 times 4 steps each, interleaved in
one run; all positions of a window of text count as tokens. Our step's FLOP/s stand beside those of
a product of square matrices, which has all cores to itself too. The models:

    language: width 256, depth 6, 8 heads, 10,000 words, 8 windows of 128 tokens, dropout 0.1
    ViT: 32 x 32 pixels, patches of 4, a class token: 96/6/3 with 128 images, 192/12/3 with 64
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from benchmarks.gpu import peers
from benchmarks.gpu.throughput import trainer
from benchmarks.timing import medians
from configs.default import default
from mimetic_jax.host.memory import keep_freed_memory
from mimetic_jax.train.comparison import Comparison

STEPS = 4


def text() -> ConfigDict:
    """A small language model by words."""
    config = default("text")
    config.data.name, config.data.length, config.data.valid = "ptb_word", 128, 128
    config.model.update(width=256, depth=6, heads=8, dropout=0.1)
    config.update(batch=8, steps=100)
    return config


def vit(width: int, depth: int, heads: int, batch: int) -> ConfigDict:
    """A ViT on images of CIFAR-10's size."""
    config = default()
    config.data.name = "cifar10"
    config.model.update(width=width, depth=depth, heads=heads, patch=4)
    config.update(batch=batch, steps=100)
    return config


def theirs(config: ConfigDict, info: Any) -> Callable[[], None]:
    """Returns a function that takes STEPS steps in PyTorch."""
    import torch

    _, model, loss, batch = peers.model_and_loss(config, info, "cpu")
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.01)

    def step() -> None:
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss(*batch).backward()
            optimizer.step()

    return step


def square_product() -> jax.Array:
    """A product of two square matrices of 1024."""
    matrix = jnp.ones((1024, 1024))
    return matrix @ matrix


def main() -> None:
    """Print examples per second and the ratio, a line for each model."""
    keep_freed_memory()  # as commands do; PyTorch's memory comes from the same allocator
    models = {
        "language 256/6/8": (text(), "tokens"),
        "ViT 96/6/3": (vit(96, 6, 3, batch=128), "images"),
        "ViT 192/12/3": (vit(192, 12, 3, batch=64), "images"),
    }
    for name, (config, unit) in models.items():
        arm = Comparison(config, lambda line: None).arms["run"]
        program = arm.program
        try:
            peers_step = theirs(config, arm.dataset.info)
        except ImportError as error:
            sys.exit(f"this benchmark compares with PyTorch: pip install torch timm ({error})")
        step = functools.partial(trainer(program, config), STEPS)
        own, peer, product = medians([step, peers_step, square_product])
        own, peer = own / STEPS, peer / STEPS
        count = config.batch * (config.data.length if config.task == "text" else 1)
        print(
            f"{name:<18}{count / own:7.0f} {unit}/s, PyTorch eager {count / peer:.0f}, "
            f"ratio {peer / own:.2f}; {program.flops_per_step / own / 1e9:.0f} GFLOP/s, "
            f"a product {2 * 1024**3 / product / 1e9:.0f}"
        )


if __name__ == "__main__":
    main()
