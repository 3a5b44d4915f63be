"""Accelerators by their published peak and memory."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import NamedTuple

from mimetic_jax.base.errors import InputError, unknown


class Chip(NamedTuple):
    """JAX's `device_kind` as a regular expression, dense bfloat16 FLOP/s at the peak, and bytes."""

    kind: str
    flops: float
    memory: float


# Google Cloud's pages "TPU v4", "TPU v5e", "TPU v5p" and "TPU v6e"; NVIDIA's data sheets. V100
# has no units for bfloat16: its number is float16's. The first match counts: "H100 PCIe" before
# "H100". Whole words: an RTX A1000 is no A100.
CHIPS = {
    "v4": Chip(r"TPU v4$", 275e12, 32e9),
    "v5e": Chip(r"TPU v5 ?(lite|e)\b", 197e12, 16e9),
    "v5p": Chip(r"TPU v5(p|$)", 459e12, 95e9),
    "v6e": Chip(r"TPU v6 ?(lite|e)\b", 918e12, 32e9),
    "h200": Chip(r"\bH200\b", 989e12, 141e9),
    "h100-pcie": Chip(r"\bH100 PCIe\b", 756e12, 80e9),
    "h100-nvl": Chip(r"\bH100 NVL\b", 835e12, 94e9),
    "h100": Chip(r"\bH100\b", 989e12, 80e9),
    "a100": Chip(r"\bA100\b", 312e12, 80e9),
    "l40s": Chip(r"\bL40S\b", 362e12, 48e9),
    "l40": Chip(r"\bL40\b", 181e12, 48e9),
    "l4": Chip(r"\bL4\b", 121e12, 24e9),
    "v100": Chip(r"\bV100\b", 125e12, 16e9),
}


def peak_flops(device_kind: str) -> float | None:
    """Peak of a whole device by JAX's name of it; None for devices not in the table.

    >>> peak_flops("NVIDIA A100-SXM4-40GB")
    312000000000000.0
    """
    if "MIG" in device_kind:  # a slice has the name of the whole GPU
        return None
    peaks = (chip.flops for chip in CHIPS.values() if re.search(chip.kind, device_kind))
    return next(peaks, None)


_MOST = 4096
_OF_CORES = {"v4": 2, "v5p": 2}
"""TensorCores of a chip, where the types of Google Cloud count these: a v5p-8 has four chips."""
_CLOUD = {"v5litepod": "v5e"}
"""Chips by the names of accelerator types that have another."""


@dataclasses.dataclass(frozen=True)
class Target:
    """Chips that needn't be here, by their name in `CHIPS`, and their number or topology."""

    chip: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, name: str) -> Target:
        """The target of a name: chips as CHIP:NUMBER or CHIP:TOPOLOGY, or a cloud's type.

        >>> Target.of("v5e:16"), Target.of("v5p:2x2x2").count, Target.of("h100").count
        (Target(chip='v5e', shape=(16,)), 8, 1)
        >>> Target.of("v5litepod-16").count, Target.of("v5p-8").count, Target.of("H100:8").count
        (16, 4, 8)
        """
        match = re.fullmatch(r"(?:tpu-)?(.*?)(?:([:-])(\d+(?:x\d+)*))?", name.lower())
        assert match is not None
        chip, sign, numbers = match.groups()
        chip = _CLOUD.get(chip, chip)
        if chip not in CHIPS:
            raise unknown("target", chip, CHIPS)
        shape = tuple(map(int, numbers.split("x"))) if numbers else ()
        if sign == "-" and len(shape) == 1 and (cores := _OF_CORES.get(chip)):
            if shape[0] % cores:
                raise InputError(
                    f"target {name} must have an even number: a type {chip}-N has N TensorCores, "
                    f"{cores} on each chip. {chip}:N has N chips."
                )
            shape = (shape[0] // cores,)
        target = cls(chip, shape)
        if not 1 <= target.count <= _MOST:
            raise InputError(f"target must have 1 to {_MOST:,} chips; got {name!r}")
        return target

    @property
    def count(self) -> int:
        """The number of chips."""
        return math.prod(self.shape)
