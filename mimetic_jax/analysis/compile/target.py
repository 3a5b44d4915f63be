"""The hardware that a program is compiled for, and its compiler, which needs none of it."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import math
import os
import re
from collections.abc import Sequence
from typing import Any

import jax
from jax.experimental import topologies

from mimetic_jax.analysis.chips import A100, H100, H200, V5E, V5P, V6E, Chip
from mimetic_jax.errors import InputError, unknown

_TPUS = {"v5e": V5E, "v5p": V5P, "v6e": V6E}

# Sizes that the compiler tiles for: NVIDIA, "CUDA C++ Programming Guide", table of compute
# capabilities, and the architectures' white papers. Bytes and Hz.
_HOPPER = {
    "capability": (9, 0),
    "cores": 132,
    "lanes": 128,
    "shared": 233_472,
    "shared_per_block": 232_448,
    "cache": 52_428_800,
    "clock_ghz": 1.98,
}
_AMPERE = {
    "capability": (8, 0),
    "cores": 108,
    "lanes": 64,
    "shared": 167_936,
    "shared_per_block": 166_912,
    "cache": 41_943_040,
    "clock_ghz": 1.41,
}
_GPUS = {"a100": (A100, _AMPERE), "h100": (H100, _HOPPER), "h200": (H200, _HOPPER)}

# libtpu asks a metadata server and reads these before it describes a topology; their values don't
# have to be those of the target.
_LIBTPU_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # it locks a chip, of which there is none
}


@dataclasses.dataclass(frozen=True)
class Target:
    """Accelerators to compile for.

    Attributes:
        name: as given.
        chip: of which there are several.
        extents: of the TPUs' torus, or nodes and GPUs in each.
    """

    name: str
    chip: Chip
    extents: tuple[int, ...]

    @classmethod
    def of(cls, name: str) -> Target:
        """The target of a name: "v5e:4x4", "v5p:2x2x2", "h200", "h100:8", "a100:2x8".

        Raises:
            InputError: for an unknown chip, or a topology that it doesn't come in.

        Example:
            >>> Target.of("v5e:4x4").count, Target.of("h200").count, Target.of("h100:2x8").count
            (16, 1, 16)
        """
        kind, _, shape = name.partition(":")
        if kind not in _TPUS and kind not in _GPUS:
            raise unknown("target", kind, [*_TPUS, *_GPUS])
        if shape and not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", shape):
            raise InputError(f"target {name!r}: {shape!r} is no topology such as 4x4")
        extents = tuple(int(extent) for extent in shape.split("x")) if shape else ()
        if kind in _TPUS:
            chip = _TPUS[kind]
            if len(extents) != chip.axes:
                example = "x".join(["2"] * (chip.axes - 1) + ["4"])
                raise InputError(
                    f"target {name!r}: {chip.name} is a torus of {chip.axes} axes, such as "
                    f"{kind}:{example}"
                )
        else:
            chip = _GPUS[kind][0]
            if len(extents) > 2 or (extents and extents[-1] > chip.domain):
                raise InputError(
                    f"target {name!r}: a node has {chip.domain} GPUs; give GPUS, or NODESxGPUS"
                )
            extents = (*(1,) * (2 - len(extents)), *(extents or (1,)))[-2:]
        if math.prod(extents) > chip.domain and not chip.network:
            raise InputError(f"target {name!r}: a pod of {chip.name} has {chip.domain} chips")
        return cls(name, chip, extents)

    @property
    def is_tpu(self) -> bool:
        """Whether libtpu compiles for it."""
        return self.chip in _TPUS.values()

    @property
    def count(self) -> int:
        """Number of chips."""
        return math.prod(self.extents)

    @property
    def compiler(self) -> str:
        """The compiler with its version."""
        package = "libtpu" if self.is_tpu else "jax-cuda12-plugin"
        return f"jax {jax.__version__}, {package} {_version(package)}"

    def devices(self) -> Sequence[jax.Device]:
        """Devices to compile for; nothing can be computed on them.

        Sets what libtpu reads from the environment of this process, and leaves JAX the CPU as its
        only backend: call this before JAX computes anything.

        Raises:
            InputError: if the compiler isn't installed, is too old, or doesn't know the topology.
        """
        jax.config.update("jax_platforms", "cpu")
        shape = "x".join(map(str, self.extents))
        kind = self.name.partition(":")[0]
        if self.is_tpu:
            _check_libtpu()
            os.environ.update(_LIBTPU_ENVIRONMENT)
            given = {"topology_name": f"{kind}:{shape}", "platform": "tpu"}
        else:
            _check_cuda()
            given = {
                "topology_name": kind,
                "platform": "cuda",
                "topology": f"1x{shape}",
                "target_config": _gpu_config(*_GPUS[kind]),
            }
        try:
            return topologies.get_topology_desc(**given).devices
        except (RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())[:300]
            raise InputError(f"no compiler for target {self.name!r}: {reason}") from error


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _check_libtpu() -> None:
    found, line = _version("libtpu"), f'pip install "jax[tpu]=={jax.__version__}"'
    if not found:
        raise InputError(f"compiling for a TPU needs libtpu: {line}")
    needs = [
        match[1]
        for requirement in importlib.metadata.requires("jax") or ()
        if (match := re.match(r"libtpu==([\d.]*\d)", requirement))
    ]
    if needs and _numbers(found) < _numbers(needs[0]):
        raise InputError(f"libtpu {found} is older than {needs[0]}, which jax asks for: {line}")


def _check_cuda() -> None:
    found, line = _version("jax-cuda12-plugin"), f'pip install "jax[cuda12]=={jax.__version__}"'
    if not found:
        raise InputError(f"compiling for a GPU needs jax-cuda12-plugin: {line}")
    if found != (jaxlib := _version("jaxlib")):
        raise InputError(f"jax-cuda12-plugin {found} doesn't match jaxlib {jaxlib}: {line}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _gpu_config(chip: Chip, sizes: dict[str, Any]) -> str:
    """A GPU in the text format of XLA's GpuTargetConfigProto."""
    major, minor = sizes["capability"]
    return f"""
        gpu_device_info {{
          threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
          shared_memory_per_block: 49152 shared_memory_per_core: {sizes["shared"]}
          shared_memory_per_block_optin: {sizes["shared_per_block"]}
          core_count: {sizes["cores"]} fpus_per_core: {sizes["lanes"]}
          block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
          registers_per_core_limit: 65536 registers_per_block_limit: 65536
          memory_bandwidth: {chip.bandwidth:.0f} device_memory_size: {chip.memory:.0f}
          l2_cache_size: {sizes["cache"]} clock_rate_ghz: {sizes["clock_ghz"]}
          cuda_compute_capability {{ major: {major} minor: {minor} }}
        }}
        platform_name: "CUDA" dnn_version_info {{ major: 9 minor: 10 }}
        device_description_str: "NVIDIA {chip.name}"
    """
