"""Measure the speed of training steps, and of PyTorch's equivalents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from benchmarks.gpu import peers, process
from benchmarks.timing import seconds_per_step
from mimetic_jax.base.chips import peak_flops
from mimetic_jax.base.errors import InputError
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.program import Program
from mimetic_jax.train.state import stream
from mimetic_jax.train.store.files import AnyPath, Line, Lines
from mimetic_jax.train.tasks import TASKS

Say = Callable[[str], None]

_RATES = {"images": "images_per_second", "text": "tokens_per_second"}


def measure(
    config: ConfigDict, results: AnyPath, origin: Line, seconds: float, say: Say
) -> list[str]:
    """Measure a comparison whose arms have the same step, unless it is known; returns failures.

    Ours goes to throughput.jsonl, the comparison with the peer to peers.jsonl. Each is measured in
    its own process, one after the other: JAX takes most of a GPU's memory and keeps it, and peak
    memory is counted per process.
    """
    name, task = config.name, config.task
    rate = _RATES[task]
    here = {"config": name, **{of: origin[of] for of in ("device_kind", "devices")}}
    own, both = (Lines(results / f"{of}.jsonl") for of in ("throughput", "peers"))
    known, compared = (
        next((line for line in lines.read() if here.items() <= line.items()), None)
        for lines in (own, both)
    )
    obstacle = _obstacle(config, origin)
    if known and (compared or obstacle):
        say(f"{name}: measured before: {_shown(known, rate)}{_ratio(compared)}")
        return []
    say(f"{name}: measuring throughput")
    try:
        # Again if only the peer's is missing: a comparison is made within one call.
        ours = process.call(throughput, config, seconds)
        if not known:
            own.append(ours | origin)
        say(f"  {_shown(ours, rate)}")
        if obstacle:
            say(f"  not compared with PyTorch: {obstacle}")
        elif not compared:
            device = "cuda" if origin["platform"] == "gpu" else "cpu"
            info = TASKS[task].describe(config)
            theirs = process.call(peers.throughput, config, info, device, seconds)
            compared = _joined(ours, theirs, rate)
            both.append(compared | origin)
            say(f"  {_shown(ours, rate)}{_ratio(compared)}")
    except InputError as error:
        say(f"{name}: failed: {error}")
        return [f"{name}: {error}"]
    return []


def throughput(config: ConfigDict, seconds: float) -> Line:
    """Training speed of a comparison's arms on random data, as the median of groups of steps.

    MFU is relative to the dense bfloat16 peak of all devices, None if that is unknown; memory is
    the peak of this process on one device so far.
    """
    comparison = Comparison(config, lambda line: None)
    arm, device = next(iter(comparison.arms.values())), jax.devices()[0]
    program = arm.program
    flops = program.flops_per_step
    step, groups = seconds_per_step(trainer(program, config), seconds)
    peak = peak_flops(device.device_kind)
    return {
        "config": config.name,
        "dtype": arm.config.model.dtype,
        "batch": program.batch,
        _RATES[config.task]: program.task.per_step / step,
        "seconds_per_step": step,
        "groups": groups,
        "flops_per_step": flops,
        "mfu": flops / (step * peak * jax.device_count()) if peak else None,
        "peak_memory_bytes": (device.memory_stats() or {}).get("peak_bytes_in_use"),
    }


def trainer(program: Program, config: ConfigDict) -> Callable[[int], None]:
    """Returns a function that takes a number of steps on random data."""
    arrays, keys = synthetic(program, config), (stream(0, "data"), stream(0, "dropout"))
    state = program.initial_state(0)

    def run(steps: int) -> None:
        nonlocal state
        while steps:
            count = min(steps, program.feed.max_dispatch)
            state, _ = program.run_steps(state, arrays, *keys, jnp.int32(count))
            steps -= count
        jax.block_until_ready(state)

    return run


def synthetic(program: Program, config: ConfigDict) -> Any:
    """Random data of the published shape and size, in the form that the program's steps take."""
    info, random = TASKS[config.task].describe(config), np.random.default_rng(0)
    classes = info.vocabulary if config.task == "text" else info.num_classes

    def drawn(of: jax.ShapeDtypeStruct) -> jax.Array:
        below = 256 if of.dtype == np.uint8 else classes
        return jax.device_put(random.integers(below, size=of.shape, dtype=of.dtype), of.sharding)

    return jax.tree.map(drawn, program.feed.shapes())


def _obstacle(config: ConfigDict, origin: Line) -> str:
    """Why PyTorch can't be compared here; "" if it can."""
    if config.task == "images" and config.data.augment.randaugment:
        return "its step doesn't augment"
    if lacking := peers.not_installed(config.task):
        return f"{' and '.join(lacking)} not installed"
    if origin["platform"] not in ("cpu", "gpu"):
        return f"it doesn't run on a {origin['platform']} as it does on a GPU"
    return "it would use one device of several" if origin["devices"] > 1 else ""


def _joined(ours: Line, theirs: Line, rate: str) -> Line:
    """The comparison of two steps that train on the same number of images or tokens."""
    ratio = theirs["seconds_per_step"] / ours["seconds_per_step"]
    return {
        "config": ours["config"],
        "peer": theirs["peer"],
        "dtype": ours["dtype"],
        "batch": ours["batch"],
        rate: ours[rate],
        f"peer_{rate}": ours[rate] / ratio,
        "ratio": ratio,
        "peak_memory_bytes": ours["peak_memory_bytes"],
        "peer_peak_memory_bytes": theirs["peak_memory_bytes"],
    }


def _shown(record: Line, rate: str) -> str:
    mfu = "unknown" if record["mfu"] is None else f"{100 * record['mfu']:.1f} %"
    return f"{record[rate]:,.0f} {rate.removesuffix('_per_second')}/s, MFU {mfu}"


def _ratio(compared: Line | None) -> str:
    return f", {compared['ratio']:.2f} times {compared['peer']}" if compared else ""
