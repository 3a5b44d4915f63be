"""CIFAR-10 at paper scale, as one queue for whoever has a GPU. From the root of the repository:

    python launch/gpu_results.py --data_dir=DIR [--workdir=runs/gpu] [--results=results]

For ViT-Tiny 192/12/3 and then 192/12/6 (width/depth/heads, patch 2, batch 512, 100 epochs,
bfloat16) it measures throughput, then trains mimetic, norm-matched, default and sin-cos with seed
0, then all four with seed 1, then 2. Stop it whenever you like: the same command skips what has
its row in the results and continues the run it was in from its last checkpoint.

DIR holds CIFAR-10 (see mimetic_jax/data/cifar.py). Each finished run is a line of
results/cifar10_vit.jsonl, each measurement a line of results/throughput.jsonl; the tables printed
at the end are made from those lines alone, whichever machines wrote them. The workdir holds
checkpoints and compiled programs. Exit code 2: an input can't be used, or a run failed.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

# A cluster's checkout may not be installed.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from configs import cifar10_vit
from mimetic_jax.errors import InputError
from mimetic_jax.train import report
from mimetic_jax.train.compare import Comparison
from mimetic_jax.train.loop import Run, train
from mimetic_jax.train.metrics import MetricsFile, write_atomically
from mimetic_jax.train.state import TrainState, stream

ROOT = pathlib.Path(__file__).resolve().parent.parent

COMMAND = "python launch/gpu_results.py --data_dir=DIR"
"""What made a row. Only folders can be given, and where they lie changes no number."""

ARMS = ("mimetic", "norm_matched", "default", "sincos")
"""In the order they train: what the claim needs comes first."""

THROUGHPUT_SECONDS = 30.0

PEAK_TFLOPS = {
    "A100": 312.0,
    "L4": 121.0,
    "L40": 181.0,
    "L40S": 362.0,
    "H100 PCIe": 756.0,
    "H100 NVL": 835.0,
    "H100": 989.0,
    "H200": 989.0,
    "V100": 125.0,  # float16: it has no units for bfloat16
}
"""Dense bfloat16, by words of JAX's device kind; the first match counts."""

_RUN_KEY = ("config", "arm", "seed")
_THROUGHPUT_KEY = ("config", "device_kind", "devices")

Say = Callable[[str], None]
Row = dict[str, Any]


def paper_jobs(data_dir: str) -> list[ConfigDict]:
    """The two comparisons, in the order they run."""
    return [_job(f"width=192,depth=12,heads={heads}", data_dir) for heads in (3, 6)]


def _job(arguments: str, data_dir: str) -> ConfigDict:
    config = cifar10_vit.get_config(arguments)
    config.data.dir = data_dir
    config.model.dtype = "bfloat16"
    config.checkpoint_every = 5 * config.log_every  # 5 epochs: half a minute at 10k images/s
    config.arms = ConfigDict({arm: config.arms[arm] for arm in ARMS}, sort_keys=False)
    return config


def run_queue(
    jobs: Sequence[ConfigDict],
    results: pathlib.Path,
    workdir: pathlib.Path,
    command: str,
    *,
    seconds: float = THROUGHPUT_SECONDS,
    say: Say = print,
) -> None:
    """Do what the results don't have yet, job by job, then say a table for each job.

    A run that fails is told and left for the next call; the others still run.

    Args:
        jobs: comparisons with different names.
        results: folder of the JSON lines that are kept.
        workdir: folder of checkpoints, a subfolder for each job.
        command: what to write into each row as its origin.
        seconds: how long to measure throughput.
        say: prints a line.

    Raises:
        InputError: if an input can't be used, or, after everything else, if runs failed.
    """
    comparisons = [Comparison(config, say) for config in jobs]
    origin = _origin(command)
    say(f"{origin['devices']} x {origin['device_kind']}, JAX {origin['jax']}")
    if jax.default_backend() == "cpu":
        say("no GPU or TPU found, so this runs on the CPU: paper scale would take weeks")
    failures = []
    for comparison in comparisons:
        _measure(comparison, results / "throughput.jsonl", origin, seconds)
        failures += _train(comparison, _runs_file(results, comparison), workdir, origin)
    for comparison in comparisons:
        rows = read_rows(_runs_file(results, comparison))
        say(f"\n{comparison.config.name}\n\n{table(comparison, rows)}")
    if failures:
        raise InputError(f"not every run finished: {'; '.join(failures)}")


def throughput(comparison: Comparison, seconds: float) -> Row:
    """Training speed of a comparison's first arm, by the median of at least three dispatches.

    MFU is against the dense bfloat16 peak of all devices, None where that isn't known; memory is
    the most that this process has held on one device so far.
    """
    arm = next(iter(comparison.arms))
    comparison.open()
    program, data = comparison.program(arm), comparison.placed(arm)
    flops, device = program.describe()["flops_per_step"], jax.devices()[0]
    keys = stream(0, "data"), stream(0, "dropout")
    session = program.feed.session(data, 0, 0, program.steps)

    def dispatch(state: TrainState, count: int) -> tuple[TrainState, float]:
        began = time.perf_counter()
        out = program.run_steps(state, session.arrays(), *keys, jnp.int32(count))
        state, _ = jax.block_until_ready(out)
        return state, time.perf_counter() - began

    state, _ = dispatch(program.initial_state(0, ()), 0)  # no steps: compiles
    state, _ = dispatch(state, program.feed.max_dispatch)
    times: list[float] = []
    while len(times) < 3 or sum(times) < seconds:
        state, elapsed = dispatch(state, program.feed.max_dispatch)
        times.append(elapsed)
    step = statistics.median(times) / program.feed.max_dispatch
    peak = peak_flops(device.device_kind)
    return {
        "config": comparison.config.name,
        "dtype": comparison.arms[arm].model.dtype,
        "batch": program.batch,
        "images_per_second": program.batch / step,
        "seconds_per_step": step,
        "dispatches": len(times),
        "flops_per_step": flops,
        "mfu": flops / (step * peak * jax.device_count()) if peak else None,
        "peak_memory_bytes": (device.memory_stats() or {}).get("peak_bytes_in_use"),
    }


def peak_flops(device_kind: str) -> float | None:
    """Dense bfloat16 FLOP/s of a whole device; None for what isn't in the table.

    >>> peak_flops("NVIDIA A100-SXM4-40GB")
    312000000000000.0
    """
    if "MIG" in device_kind:  # a slice carries the name of the whole
        return None
    # Whole words: an RTX A1000 is no A100.
    peaks = (p for name, p in PEAK_TFLOPS.items() if re.search(rf"\b{name}\b", device_kind))
    return next((1e12 * peak for peak in peaks), None)


def table(comparison: Comparison, rows: Sequence[Row]) -> str:
    """The comparison's table of rows, with n; from the rows alone, not from a workdir."""
    ours = [row for row in rows if row["config"] == comparison.config.name]
    results = []
    for arm in comparison.arms:
        of_seed = {row["seed"]: row for row in ours if row["arm"] == arm}
        curves = {
            seed: [(step, 100 * accuracy) for step, accuracy in row["curve"]]
            for seed, row in of_seed.items()
        }
        accuracies = {seed: curve[-1][1] for seed, curve in curves.items()}
        seconds = {seed: row["seconds"] for seed, row in of_seed.items()}
        results.append(report.ArmResult(arm, accuracies, curves, seconds))
    return report.table(results)


def read_rows(path: pathlib.Path) -> list[Row]:
    """The whole lines of a results file; what a kill left of the last one isn't there.

    Raises:
        InputError: if any other line is damaged: what follows it must not be run again.
    """
    rows = MetricsFile(path).read()
    lines = path.read_text().splitlines() if path.exists() else []
    if len(rows) < len(lines) - 1:
        raise InputError(f"{path} line {len(rows) + 1} isn't JSON: mend or delete that line")
    return rows


def append_row(path: pathlib.Path, row: Row) -> None:
    """Add a line, on the disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.read_text().endswith("\n"):
        write_atomically(path, "".join(json.dumps(whole) + "\n" for whole in read_rows(path)))
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _runs_file(results: pathlib.Path, comparison: Comparison) -> pathlib.Path:
    return results / f"{comparison.info.name}_vit.jsonl"


def _has(rows: Sequence[Row], key: Sequence[str], values: tuple[Any, ...]) -> bool:
    return any(tuple(row[name] for name in key) == values for row in rows)


def _measure(comparison: Comparison, path: pathlib.Path, origin: Row, seconds: float) -> None:
    name = comparison.config.name
    if _has(read_rows(path), _THROUGHPUT_KEY, (name, origin["device_kind"], origin["devices"])):
        comparison.say(f"{name}: throughput measured before")
        return
    comparison.say(f"{name}: measures throughput")
    row = throughput(comparison, seconds)
    append_row(path, row | origin)
    mfu = "unknown" if row["mfu"] is None else f"{100 * row['mfu']:.1f} %"
    comparison.say(f"  {row['images_per_second']:,.0f} images/s, MFU {mfu}")


def _train(
    comparison: Comparison, path: pathlib.Path, workdir: pathlib.Path, origin: Row
) -> list[str]:
    """Train what has no row, a row for each finished run; returns what went wrong."""
    name, rows, failures = comparison.config.name, read_rows(path), []
    runs = [(arm, seed) for seed in comparison.config.seeds for arm in comparison.arms]
    for number, (arm, seed) in enumerate(runs, 1):
        label = f"[{number}/{len(runs)}] {name} {arm} seed {seed}"
        if _has(rows, _RUN_KEY, (name, arm, seed)):
            comparison.say(f"{label}: finished before")
            continue
        comparison.say(f"{label}: starts")
        comparison.open()  # missing data is told before the workdir is touched
        data = comparison.placed(arm)
        comparison.claim(workdir / name)
        run = Run.of(workdir / name, arm, seed)
        try:
            # Nothing is computed where only the row is missing: the last call was stopped there.
            if not run.finished():
                train(run, comparison.arms[arm], comparison.program(arm), data, comparison.say)
        except InputError as error:
            comparison.say(f"{label}: failed: {error}")
            failures.append(f"{name}: {error}")
        else:
            append_row(path, _run_row(comparison, run) | origin)
    return failures


def _run_row(comparison: Comparison, run: Run) -> Row:
    evaluations, program = run.evaluations(), comparison.program(run.arm)
    last = evaluations[-1]
    return {
        "config": comparison.config.name,
        "arm": run.arm,
        "seed": run.seed,
        "steps": program.steps,
        "batch": program.batch,
        "dtype": comparison.arms[run.arm].model.dtype,
        "accuracy": last["eval_accuracy"],
        "loss": last["eval_loss"],
        "seconds": last["seconds"],
        "images_per_second": program.steps * program.batch / last["seconds"],
        "curve": [[record["step"], record["eval_accuracy"]] for record in evaluations],
    }


def _origin(command: str) -> Row:
    """What made a row: the device of the call that finished it, versions, command."""
    return {
        "device_kind": jax.devices()[0].device_kind,
        "devices": jax.device_count(),
        "jax": jax.__version__,
        "commit": _commit(),
        "command": command,
    }


def _commit() -> str | None:
    """The commit of this code, with "-dirty" where the code differs; None without git."""
    commit = _git("rev-parse", "HEAD")
    changed = _git("status", "--porcelain", "--", "mimetic_jax", "configs", "launch")
    return f"{commit}-dirty" if commit and changed else commit


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def main() -> None:
    """Run the paper's queue."""
    parser = argparse.ArgumentParser(usage=f"{COMMAND} [--workdir=DIR] [--results=DIR]")
    parser.add_argument("--data_dir", required=True, help="the folder that holds CIFAR-10")
    parser.add_argument("--workdir", type=pathlib.Path, default=pathlib.Path("runs/gpu"))
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("results"))
    flags = parser.parse_args()
    # A call of a few minutes shouldn't spend one of them compiling again.
    jax.config.update("jax_compilation_cache_dir", str(flags.workdir / "compiled"))
    say = functools.partial(print, flush=True)  # a log must tell what a kill stopped
    try:
        run_queue(paper_jobs(flags.data_dir), flags.results, flags.workdir, COMMAND, say=say)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
