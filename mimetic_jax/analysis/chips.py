"""Accelerators by their published numbers."""

from __future__ import annotations

import dataclasses
import math
import re

from mimetic_jax.errors import InputError


@dataclasses.dataclass(frozen=True)
class Chip:
    """An accelerator's published numbers.

    Attributes:
        name: shown in a plan.
        flops: FLOP/s of dense products of bfloat16, at the peak.
        flops32: of float32 numbers, in the precision that JAX takes for them: TF32 on GPUs, one
            pass of bfloat16 on TPUs.
        memory: bytes.
        bandwidth: of that memory, bytes/s.
        link: bytes/s one way, of one link of a torus or of a chip into its domain.
        domain: chips that such links connect.
        network: bytes/s one way of a chip between domains; 0 for none.
        ring: chips along an axis of a torus form a ring if there is a multiple of these; 0 if a
            switch connects all.
        axes: of that torus.
        flash: whether attention in bfloat16 keeps no probabilities, as cuDNN's does.
    """

    name: str
    flops: float
    flops32: float
    memory: float
    bandwidth: float
    link: float
    domain: int
    network: float = 0.0
    ring: int = 0
    axes: int = 2
    flash: bool = False

    def seconds(self, payload: float, size: int, inner: int = 1, chips: int = 0) -> float:
        """Seconds to all-gather, or to reduce-scatter, `payload` bytes over a group of chips.

        A chip sends (n − 1) / n of the payload. Where the group has m chips in each of several
        domains, these share what goes between domains, 1 / m of the payload each, at the same time
        as the rest goes within: the slower one counts. Latency doesn't.

        Args:
            payload: bytes that a chip holds after a gather, or before a reduce.
            size: n, of the group.
            inner: chips from one of the group to the next.
            chips: of all groups together, which gives the shape of the torus; 0 for its domain.

        Raises:
            InputError: if the group reaches out of a domain that has no network.

        Example:
            >>> V5E.seconds(1.8e11, 256)  # both axes of the torus, both ways around
            0.99609375
        """
        near = max(1, min(size, self.domain // inner))
        far = size / near
        if far > 1 and not self.network:
            raise InputError(f"{size * inner} chips are more than the {self.domain} of {self.name}")
        within = payload * (1 - 1 / near) / self._rate(near, inner, chips or self.domain)
        between = payload / near * (1 - 1 / far) / self.network if far > 1 else 0.0
        return max(within, between)

    def _rate(self, size: int, inner: int, chips: int) -> float:
        if not self.ring or size == 1:
            return self.link
        # Slices are as square as powers of two allow: 4 x 4, 4 x 8, 8 x 8, ...
        row, left, extents = 2 ** math.ceil(math.log2(chips) / self.axes), size, []
        for _ in range(self.axes - 1):
            extents.append(max(1, min(left, row // inner)))
            left, inner = left / extents[-1], max(1, inner // row)
        # A line sends one way at a time, a ring both; the axes of the torus at once.
        return sum(
            self.link * (2 if extent % self.ring == 0 else 1)
            for extent in (*extents, left)
            if extent > 1
        )


# Google Cloud, "TPU v5e", "TPU v5p" and "TPU v6e": FLOP/s, memory and its bandwidth, chips a pod. A
# link's bytes/s, and which slices have rings: "How to Scale Your Model" (Austin et al.), chapters 2
# and 3.
V5E = Chip("TPU v5e", 197e12, 197e12, 16e9, 819e9, link=4.5e10, domain=256, ring=16)
V5P = Chip("TPU v5p", 459e12, 459e12, 95e9, 2.765e12, link=9e10, domain=8960, ring=4, axes=3)
V6E = Chip("TPU v6e", 918e12, 918e12, 32e9, 1.64e12, link=9e10, domain=256, ring=16)

# NVIDIA, "H100 Tensor Core GPU" (SXM, without sparsity), and "DGX H100": 900 GB/s of NVLink in both
# directions together, a network card of 400 Gb/s for each of 8 GPUs. "H200 Tensor Core GPU" has the
# same but its memory. "A100 Tensor Core GPU" (SXM, 80 GB) and "DGX A100": 600 GB/s, 200 Gb/s.
H100 = Chip(
    "H100", 989e12, 494.5e12, 80e9, 3.35e12, link=4.5e11, domain=8, network=5e10, flash=True
)
H200 = dataclasses.replace(H100, name="H200", memory=141e9, bandwidth=4.8e12)
A100 = Chip("A100", 312e12, 156e12, 80e9, 2.039e12, link=3e11, domain=8, network=2.5e10, flash=True)

# Of GPUs that nothing is planned for: NVIDIA's data sheets, without sparsity. V100 has no units for
# bfloat16: its number is float16's.
_OTHER_PEAKS = {
    "L4": 121e12,
    "L40": 181e12,
    "L40S": 362e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "V100": 125e12,
}
_PEAKS = _OTHER_PEAKS | {chip.name: chip.flops for chip in (A100, H100, H200)}


def peak_flops(device_kind: str) -> float | None:
    """Dense bfloat16 FLOP/s of a whole GPU by JAX's name of it; None for devices not in the table.

    >>> peak_flops("NVIDIA A100-SXM4-40GB")
    312000000000000.0
    """
    if "MIG" in device_kind:  # a slice has the name of the whole GPU
        return None
    # Whole words: an RTX A1000 is no A100. The first match counts: "H100 PCIe" before "H100".
    peaks = (peak for name, peak in _PEAKS.items() if re.search(rf"\b{name}\b", device_kind))
    return next(peaks, None)
