"""What `--mode=compile` prints: whether a training step fits on hardware that isn't here.

XLA compiles for TPUs and NVIDIA GPUs on any machine; nothing is executed. The numbers are JAX's own
`memory_analysis()`. On the real hardware a profiler shows the rest.
"""

from __future__ import annotations

import importlib.util
import math
import os
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import topologies

from mimetic_jax.base.chips import CHIPS, Target
from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.base.extras import advice
from mimetic_jax.base.table import duration
from mimetic_jax.train.arm import Arm
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.program import Program
from mimetic_jax.train.together import together

_AXES = {"v5e": 2, "v5p": 3, "v6e": 2}
"""TPUs, with the number of axes of their torus."""

# Compute capability, cores, lanes, shared memory of a core and of a block, cache, bandwidth, clock:
# NVIDIA, "CUDA C++ Programming Guide", compute capabilities, and the architectures' white papers.
_GPUS = {
    "a100": (8, 108, 64, 167_936, 166_912, 41_943_040, 2_039_000_000_000, 1.41),
    "h100": (9, 132, 128, 233_472, 232_448, 52_428_800, 3_350_000_000_000, 1.98),
    "h200": (9, 132, 128, 233_472, 232_448, 52_428_800, 4_800_000_000_000, 1.98),
}

# libtpu asks a metadata server and reads these before it describes a topology; their values don't
# have to be those of the target.
_LIBTPU_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # it locks a chip, of which there is none
}

_ADVICE = "try a smaller batch, --config.model.remat=True, or mesh.fsdp"


def devices(target: Target) -> Sequence[jax.Device]:
    """Devices to compile for; nothing can be computed on them.

    Leaves JAX the CPU as its only backend: call this before JAX computes anything.
    """
    kind, tpu = target.chip, target.chip in _AXES
    shape = "x".join(map(str, _torus(target) if tpu else _nodes(target)))
    module, extra = ("libtpu", "tpu") if tpu else ("jax_cuda12_plugin", "gpu")
    if importlib.util.find_spec(module) is None:
        raise InputError(f"compiling for {kind} needs {module}: {advice(extra)}")
    jax.config.update("jax_platforms", "cpu")
    if tpu:
        os.environ.update(_LIBTPU_ENVIRONMENT)
        given = {"topology_name": f"{kind}:{shape}", "platform": "tpu"}
    else:
        given = {"topology_name": kind, "platform": "cuda", "topology": f"1x{shape}"}
        given["target_config"] = _gpu_config(kind)
    try:
        return topologies.get_topology_desc(**given).devices
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise InputError(f"no compiler for {kind}:{shape}: {reason}") from error


def _torus(target: Target) -> tuple[int, ...]:
    """The sides of a TPU's torus."""
    axes = _AXES[target.chip]
    if len(target.shape) == axes:
        return target.shape
    sides = [1] * axes
    for power in range(target.count.bit_length() - 1 if target.shape else 4):
        sides[-1 - power % axes] *= 2
    raise InputError(
        f"TPU {target.chip} is a torus of {axes} axes: write --target={target.chip}:"
        f"{'x'.join(map(str, sides))} for {math.prod(sides)} chips"
    )


def _nodes(target: Target) -> tuple[int, int]:
    """The number of nodes, and of the GPUs in each."""
    if target.chip not in _GPUS:
        raise unknown("target", target.chip, [*_AXES, *_GPUS])
    if target.count > 8 and target.count % 8:
        raise InputError(f"{target.count} GPUs is not a multiple of 8, the GPUs of a node")
    return max(1, target.count // 8), min(8, target.count)


def _gpu_config(kind: str) -> str:
    """A GPU in the text format of XLA's GpuTargetConfigProto."""
    major, cores, lanes, shared, shared_of_block, cache, bandwidth, clock = _GPUS[kind]
    return f"""platform_name: "CUDA" dnn_version_info {{ major: 9 minor: 10 }} gpu_device_info {{
        cuda_compute_capability {{ major: {major} minor: 0 }} core_count: {cores}
        fpus_per_core: {lanes} shared_memory_per_core: {shared} shared_memory_per_block: 49152
        shared_memory_per_block_optin: {shared_of_block} l2_cache_size: {cache}
        memory_bandwidth: {bandwidth} clock_rate_ghz: {clock}
        device_memory_size: {CHIPS[kind].memory:.0f} threads_per_warp: 32
        threads_per_block_limit: 1024 threads_per_core_limit: 2048
        registers_per_core_limit: 65536 registers_per_block_limit: 65536
        block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535 }}
        device_description_str: "NVIDIA {kind.upper()}" """


def describe(comparison: Comparison, target: Target) -> Iterator[str]:
    """Compile the training step of each program of a comparison, on the target's devices."""
    described: list[Program] = []
    for arm in comparison.arms.values():
        if arm.program not in described:
            described.append(arm.program)
            mesh = ", ".join(f"{name} {size}" for name, size in arm.program.mesh.shape.items())
            yield f"{arm.config.name}, arm {arm.name}, for {target.count} {target.chip} ({mesh})"
            began = time.perf_counter()
            # Models choose their kernels by the default device.
            with jax.default_device(arm.program.mesh.devices.flat[0]):
                text = _compiled(_lowered(arm), target)
            yield f"{text}\n  compiled in {duration(time.perf_counter() - began)}"


def _lowered(arm: Arm) -> jax.stages.Lowered:
    program, arrays, runs = arm.program, arm.program.feed.shapes(), arm.config.together
    lanes = () if runs == 1 else (runs,)
    key = jax.eval_shape(lambda: jnp.broadcast_to(jax.random.key(0), lanes))
    count = jax.ShapeDtypeStruct((), jnp.int32)
    rates = jax.ShapeDtypeStruct((*lanes, 2), jnp.float32)
    group = together(program, runs)
    return group.compiled_dispatch.lower(group.shapes, arrays, key, key, count, rates)


def _compiled(lowered: jax.stages.Lowered, target: Target) -> str:
    # Without a GPU, XLA takes tiles of its own products untimed, and some don't exist.
    options: Any = {} if target.chip in _AXES else {"xla_gpu_enable_triton_gemm": False}
    try:
        compiled = lowered.compile(options)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        used = re.search(r"Used \S+ of \S+ hbm", str(error))
        return f"  does not fit: {used[0] if used else 'out of memory'}; {_ADVICE}"
    memory: Any = compiled.memory_analysis()
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes
    held -= memory.alias_size_in_bytes
    needed, room = held + memory.temp_size_in_bytes, CHIPS[target.chip].memory
    fits = "fits" if needed <= room else f"does not fit; {_ADVICE}"
    return (
        f"  {fits}: a training step needs {needed / 1e9:.3g} of {room / 1e9:.0f} GB per device, "
        f"{held / 1e9:.3g} of it state and data"
    )
