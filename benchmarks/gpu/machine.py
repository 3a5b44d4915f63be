"""The origin of a result: device, commit and command."""

from __future__ import annotations

import re

from benchmarks.gpu import process
from benchmarks.gpu.records import Record
from mimetic_jax.train.workdir.origin import origin as devices

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
"""Dense bfloat16 peak by words of JAX's device kind; the first match counts."""


def peak_flops(device_kind: str) -> float | None:
    """Dense bfloat16 FLOP/s of a whole device; None for devices not in the table.

    >>> peak_flops("NVIDIA A100-SXM4-40GB")
    312000000000000.0
    """
    if "MIG" in device_kind:  # a slice has the name of the whole GPU
        return None
    # Whole words: an RTX A1000 is no A100.
    peaks = (p for name, p in PEAK_TFLOPS.items() if re.search(rf"\b{name}\b", device_kind))
    return next((1e12 * peak for peak in peaks), None)


def origin(command: str) -> Record:
    """A record's origin, read in another process so that this one takes no device."""
    return {**process.call(devices), "command": command}
