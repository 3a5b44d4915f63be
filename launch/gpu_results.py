"""Everything to measure and train on a GPU, as one queue. From the root of the repository:

    python launch/gpu_results.py --data_dir=DIR [--text_dir=DIR] [--only=throughput|cifar|text]
        [--text_epochs=100] [--workdir=runs/gpu] [--results=results]

1. throughput: images or tokens per second, MFU and memory of training steps in bfloat16, on random
   data: language models of the Penn Treebank, DeiT-Ti, -S and -B at 224 pixels, ViT-Tiny on
   CIFAR-10. Where PyTorch (for images also timm) is installed, its compiled step is measured after
   each step that it has an equivalent of.
2. cifar: ViT-Tiny 192/12/3 (width/depth/heads, patch 2, batch 512, 100 epochs), mimetic,
   norm-matched, default and sin-cos with seed 0, then all four with seed 1, then 2.
3. text: the GPT 384/12/8 on the characters of the Penn Treebank, mimetic, default and
   norm-matched, seeds likewise.
4. ViT-Tiny 192/12/6 as 2.

It may be stopped at any time: the same command skips what the results already contain and resumes
the interrupted run from its last checkpoint. --only selects one part, if time on the machine is
short; --text_epochs=20 trains a fifth of each text run.

The folders hold CIFAR-10 (see mimetic_jax/data/sets/cifar.py) and ptb.*.txt (see
mimetic_jax/data/text/corpus.py); a part whose folder isn't given is skipped. Results are JSON lines
with device, commit and command: throughput.jsonl, peers.jsonl (against PyTorch), cifar10_vit.jsonl
and ptb_char.jsonl (one line per finished run). The tables printed at the end use these lines alone,
whichever machines wrote them. The workdir holds checkpoints and compiled programs. Exit code 2: bad
input, or something failed.

It has not been run on a GPU yet.
"""

from __future__ import annotations

import argparse
import functools
import os
import pathlib
import sys
from collections.abc import Callable, Sequence

# On a cluster the package may not be installed.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import jax
from ml_collections import ConfigDict

from benchmarks.gpu import machine
from benchmarks.gpu.throughput import Measurement, measure
from launch.gpu import jobs
from launch.gpu.runs import check_data, table, train_missing
from mimetic_jax.errors import InputError
from mimetic_jax.train.compare import Comparison

SECONDS = 10.0
"""Duration of each throughput measurement."""

Say = Callable[[str], None]


def run_queue(
    measurements: Sequence[Measurement],
    trainings: Sequence[ConfigDict],
    results: pathlib.Path,
    workdir: pathlib.Path,
    command: str,
    *,
    seconds: float = SECONDS,
    say: Say = print,
) -> None:
    """Do what the results lack, in this order, then print one table per comparison.

    Failures are reported and left for the next call; everything else still runs.

    Args:
        measurements: training steps to time.
        trainings: comparisons with different names.
        results: folder of the JSON lines.
        workdir: folder of checkpoints, one subfolder per comparison.
        command: recorded in each line as its origin.
        seconds: how long to measure each step.
        say: prints a line.

    Raises:
        InputError: for bad input, or, after everything else, if something failed.
    """
    for config in trainings:
        check_data(config, results)
    origin = machine.origin(command)
    say(f"{origin['devices']} x {origin['device_kind']}, JAX {origin['jax']}")
    if origin["platform"] == "cpu":
        say("no GPU or TPU found, so this runs on the CPU: paper scale would take weeks")
    failures = []
    for job in measurements:
        failures += measure(job, results, origin, seconds, say)
    # From here on this process holds the devices, and no measuring process could use them.
    comparisons = [Comparison(config, say) for config in trainings]
    for comparison in comparisons:
        failures += train_missing(comparison, results, workdir, origin)
    for comparison in comparisons:
        say(f"\n{comparison.config.name}\n\n{table(comparison, results)}")
    if failures:
        raise InputError(f"not everything was done: {'; '.join(failures)}")


def main() -> None:
    """Run the queue, or a part of it."""
    say = functools.partial(print, flush=True)  # a log is complete even after a kill
    try:
        flags = parse(sys.argv[1:])
        # So that a call of a few minutes doesn't spend one of them compiling again.
        cache = str(flags.workdir / "compiled")
        jax.config.update("jax_compilation_cache_dir", cache)
        os.environ["JAX_COMPILATION_CACHE_DIR"] = cache  # for the measuring processes
        measurements = jobs.measurements() if flags.only in ("", "throughput") else []
        queue = measurements, trainings(flags, say)
        run_queue(*queue, flags.results, flags.workdir, command(flags), say=say)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse and validate the flags."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data_dir", help="the folder that holds CIFAR-10")
    parser.add_argument("--text_dir", help="the folder that holds ptb.*.txt")
    parser.add_argument("--only", choices=("throughput", "cifar", "text"), default="")
    parser.add_argument("--text_epochs", type=int, default=jobs.TEXT_EPOCHS)
    parser.add_argument("--workdir", type=pathlib.Path, default=pathlib.Path("runs/gpu"))
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("results"))
    flags = parser.parse_args(arguments)
    if flags.text_epochs < 1:
        raise InputError(f"--text_epochs={flags.text_epochs} is not positive")
    for part, folder in (("cifar", "data_dir"), ("text", "text_dir")):
        if flags.only == part and not getattr(flags, folder):
            raise InputError(f"--only={part} needs --{folder}=DIR")
    return flags


def trainings(flags: argparse.Namespace, say: Say) -> list[ConfigDict]:
    """The comparisons whose data folders are given, most informative first."""
    cifar: list[ConfigDict] = []
    text: list[ConfigDict] = []
    if flags.only in ("", "cifar"):
        if flags.data_dir:
            cifar = [jobs.cifar(heads, flags.data_dir) for heads in (3, 6)]
        else:
            say("no --data_dir: skipping the training on CIFAR-10")
    if flags.only in ("", "text"):
        if flags.text_dir:
            text = [jobs.text(flags.text_dir, flags.text_epochs)]
        else:
            say("no --text_dir: skipping the training on text")
    return [*cifar[:1], *text, *cifar[1:]]


def command(flags: argparse.Namespace) -> str:
    """The command to record; folders are written as DIR, since they change no result."""
    parts = ["python launch/gpu_results.py"]
    parts += [f"--{flag}=DIR" for flag in ("data_dir", "text_dir") if getattr(flags, flag)]
    parts += [f"--only={flags.only}"] if flags.only else []
    if flags.text_epochs != jobs.TEXT_EPOCHS:
        parts.append(f"--text_epochs={flags.text_epochs}")
    return " ".join(parts)


if __name__ == "__main__":
    main()
