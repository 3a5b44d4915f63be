"""Time training steps on an accelerator, beside PyTorch's. From the root of the repository:

    python -m benchmarks.gpu [--results=results] [--workdir=runs/gpu]

Images or tokens per second, MFU and memory in bfloat16, on random data: DeiT-Ti, -S and -B at 224
pixels, ViT-Tiny on CIFAR-10, language models of the Penn Treebank. Where PyTorch (for images also
timm) is installed, its compiled step is measured after each step that it has an equivalent of.

Results are JSON lines with device, commit and command: throughput.jsonl and peers.jsonl. The same
command skips what they contain. Exit code 2: bad input, or something failed.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import pathlib
from collections.abc import Callable, Sequence

from ml_collections import ConfigDict

from benchmarks.gpu import process
from benchmarks.gpu.throughput import measure
from configs import cifar10_vit, ptb_char, ptb_word, recipes
from mimetic_jax.base.errors import InputError
from mimetic_jax.base.exits import reported
from mimetic_jax.train.record import Origin
from mimetic_jax.train.store.files import AnyPath, path_of

COMMAND = "python -m benchmarks.gpu"
SECONDS = 10.0
"""Duration of each measurement."""


def measure_all(
    configs: Sequence[ConfigDict],
    results: AnyPath,
    seconds: float = SECONDS,
    say: Callable[[str], None] = print,
) -> None:
    """Measure what the results lack.

    Failures are reported and left for the next call; everything else still runs.
    """
    # In another process, so that this one takes no device.
    origin = {**dataclasses.asdict(process.call(Origin.here)), "command": COMMAND}
    say(f"{origin['devices']} x {origin['device_kind']}, JAX {origin['jax']}")
    failures = []
    for config in configs:
        failures += measure(config, results, origin, seconds, say)
    if failures:
        raise InputError(f"not everything was done: {'; '.join(failures)}")


def measurements() -> list[ConfigDict]:
    """The training steps to time, most informative first, all on random data."""
    vit, of_six_heads = (cifar10_vit.get_config(heads=heads) for heads in (3, 6))
    return [
        _one_arm(vit),
        _one_arm(ptb_char.get_config()),
        *map(deit, ("S", "Ti", "B")),
        _one_arm(ptb_word.get_config()),
        _one_arm(of_six_heads),
    ]


def deit(variant: str) -> ConfigDict:
    """A DeiT at 224 pixels whose step is model and optimizer alone, as PyTorch's is.

    PyTorch would augment on the host, ours on the device; here neither augments.
    """
    config = recipes.deit(variant)
    config.name = f"deit_{variant}_224"
    config.batch = 128 if variant == "B" else 256
    config.ema = 0.0
    config.data.augment.update(flip=False, randaugment="", erase=0.0)
    config.data.mix.update(mixup=0.0, cutmix=0.0)
    return config


def _one_arm(config: ConfigDict) -> ConfigDict:
    """The default arm of a recipe at full size, in bfloat16."""
    config.model.dtype = "bfloat16"
    config.arms = ConfigDict({"default": config.arms["default"]})
    return config


def main() -> None:
    """Measure all steps."""
    parser = argparse.ArgumentParser(
        prog=COMMAND, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workdir", type=pathlib.Path, default=pathlib.Path("runs/gpu"))
    parser.add_argument("--results", default="results")
    flags = parser.parse_args()
    # So that a call of a few minutes doesn't spend one of them compiling again.
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(flags.workdir / "compiled")
    say = functools.partial(print, flush=True)  # a log is complete even after a kill
    with reported():
        measure_all(measurements(), path_of(flags.results), say=say)


if __name__ == "__main__":
    main()
