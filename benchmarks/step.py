"""Time training steps beside the same models in PyTorch, compiled, on a GPU or a CPU.

    python -m benchmarks.step [--bfloat16] [MODEL ...]

Needs PyTorch (pip install torch) beside this package. AdamW, random data, neither augmentation nor
dropout; PyTorch has `torch.compile`, its fused attention and, for bfloat16, autocast. Medians of 5
times STEPS steps each, interleaved in one process. MFU is of the GPU's dense bfloat16 peak.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # PyTorch needs memory too

import jax
import numpy as np
from ml_collections import ConfigDict

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional
except ImportError as error:
    sys.exit(f"this benchmark compares with PyTorch: pip install torch ({error})")

from configs.default import default
from mimetic_jax.analysis.timing import timed
from mimetic_jax.host.memory import keep_freed_memory
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.program import Program

STEPS = 8
RATES = np.array([(1e-3, 1.0)], np.float32)  # highest of the schedule, and a factor
MODELS = {  # width, depth, heads, batch, tokens of a text
    "text_256_6": (256, 6, 8, 8, 128),
    "text_384_12": (384, 12, 8, 32, 400),
    "vit_96_6": (96, 6, 3, 128, None),
    "vit_192_12": (192, 12, 3, 64, None),
}
PATCH, PATCHES = 4, 64  # of an image of CIFAR-10


class Transformer(nn.Module):
    """`models.GPT` on tokens [B, N], or `models.ViT` with a class token on patches [B, N, P]."""

    def __init__(self, name: str, classes: int) -> None:
        super().__init__()
        width, depth, heads, _, tokens = MODELS[name]
        self.embed = nn.Embedding(classes, width) if tokens else nn.Linear(3 * PATCH**2, width)
        self.register_parameter("token", None if tokens else nn.Parameter(torch.zeros(width)))
        self.positions = nn.Parameter(torch.zeros(tokens or PATCHES + 1, width), not tokens)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, depth, nn.LayerNorm(width), False)
        self.head = nn.Linear(width, classes)
        if tokens:
            self.head.weight = self.embed.weight
            self.mask = nn.Buffer(nn.Transformer.generate_square_subsequent_mask(tokens))

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        if self.token is None:
            return self.head(self.blocks(x + self.positions, self.mask, is_causal=True))
        x = torch.cat([self.token.expand(len(x), 1, -1), x], 1) + self.positions
        return self.head(self.blocks(x)[:, 0])


def config_of(name: str, dtype: str) -> ConfigDict:
    """The configuration of our step."""
    width, depth, heads, batch, tokens = MODELS[name]
    config = default("text" if tokens else "images")
    config.update(batch=batch, steps=100)
    config.model.update(width=width, depth=depth, heads=heads, dtype=dtype)
    if tokens:
        config.data.update(name="ptb_word", length=tokens, valid=tokens)
    else:
        config.data.name, config.model.patch = "cifar10", PATCH
    return config


def ours(program: Program, classes: int) -> Callable[[], Any]:
    """Returns a function that takes STEPS steps of the trainer on random data."""
    random, state = np.random.default_rng(0), program.initial_state(0)

    def drawn(of: jax.ShapeDtypeStruct) -> jax.Array:
        below = 256 if of.dtype == np.uint8 else classes
        return jax.device_put(random.integers(below, size=of.shape, dtype=of.dtype), of.sharding)

    arrays = jax.tree.map(drawn, program.feed.shapes())

    def run() -> Any:
        nonlocal state
        state, _ = program.run_steps(state, arrays, program.keys([0]), STEPS, RATES)
        return state

    return run


def theirs(name: str, classes: int, dtype: str) -> Callable[[], None]:
    """Returns a function that takes STEPS steps in PyTorch on one random batch."""
    *_, batch, tokens = MODELS[name]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")  # TF32 on GPUs, as in JAX
    model = Transformer(name, classes).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    images = torch.randn(batch, PATCHES, 3 * PATCH**2, device=device)
    texts = torch.randint(classes, (batch, tokens or 1), device=device)
    x, labels = texts if tokens else images, texts.flatten()
    loss = torch.compile(lambda: functional.cross_entropy(model(x).flatten(0, -2), labels))

    def run() -> None:
        for _ in range(STEPS):
            with torch.autocast(device, torch.bfloat16, enabled=dtype == "bfloat16"):
                value = loss()
            value.backward()
            optimizer.step()
            optimizer.zero_grad()
        if device == "cuda":
            torch.cuda.synchronize()

    return run


def main() -> None:
    """Print examples per second and the ratio, a line for each model."""
    parser = argparse.ArgumentParser("python -m benchmarks.step")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--bfloat16", action="store_true")
    flags = parser.parse_args()
    dtype = "bfloat16" if flags.bfloat16 else "float32"
    keep_freed_memory()  # as commands do; PyTorch's memory comes from the same allocator
    for name in flags.models or MODELS:
        program = (arm := Comparison(config_of(name, dtype)).arms["run"]).program
        classes = getattr(arm.source.info, "vocabulary", 0) or arm.source.info.num_classes
        both = ours(program, classes), theirs(name, classes, dtype)
        rounds = [[timed(step)[0] for step in both] for _ in range(6)]
        seconds = map(statistics.median, zip(*rounds[1:], strict=True))  # the first compiles
        own, peer = (program.task.per_step * STEPS / each for each in seconds)
        share = f"; MFU {own * program.share_of_peak:.1%}" if program.share_of_peak else ""
        speeds = f"{own:9,.0f} {program.task.unit}/s, PyTorch {torch.__version__} {peer:,.0f}"
        print(f"{name:<12}{speeds}, ratio {own / peer:.2f}{share}", flush=True)


if __name__ == "__main__":
    main()
