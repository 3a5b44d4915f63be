"""Time training steps on an accelerator, beside PyTorch's. From the root of the repository:

    python -m benchmarks.gpu [--results=results] [--workdir=runs/gpu]

Images or tokens per second, MFU and memory in bfloat16, on random data: DeiT-Ti, -S and -B at 224
pixels, ViT-Tiny on CIFAR-10, language models of the Penn Treebank. Where PyTorch (for images also
timm) is installed, its compiled step is measured after each step that it has an equivalent of.

Results are JSON lines with device, commit and command: throughput.jsonl and peers.jsonl. The same
command skips what they contain. Exit code 2: bad input, or something failed.

It has not been run on a GPU yet.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import pathlib
from collections.abc import Callable, Sequence

from benchmarks.gpu import jobs, process
from benchmarks.gpu.throughput import Measurement, measure
from mimetic_jax.errors import InputError
from mimetic_jax.exits import reported
from mimetic_jax.train.record import Origin
from mimetic_jax.train.store.places import Place

COMMAND = "python -m benchmarks.gpu"
SECONDS = 10.0
"""Duration of each measurement."""


def measure_all(
    measurements: Sequence[Measurement],
    results: Place,
    seconds: float = SECONDS,
    say: Callable[[str], None] = print,
) -> None:
    """Measure what the results lack.

    Failures are reported and left for the next call; everything else still runs.

    Raises:
        InputError: for damaged results, or, after everything else, if something failed.
    """
    # In another process, so that this one takes no device.
    origin = {**dataclasses.asdict(process.call(Origin.here)), "command": COMMAND}
    say(f"{origin['devices']} x {origin['device_kind']}, JAX {origin['jax']}")
    failures = []
    for job in measurements:
        failures += measure(job, results, origin, seconds, say)
    if failures:
        raise InputError(f"not everything was done: {'; '.join(failures)}")


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
        measure_all(jobs.measurements(), Place.of(flags.results), say=say)


if __name__ == "__main__":
    main()
