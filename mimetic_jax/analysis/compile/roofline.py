"""The least seconds that a step's kernels can take on a chip."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

from mimetic_jax.analysis.chips import Chip
from mimetic_jax.analysis.compile.flops import Flops
from mimetic_jax.analysis.compile.kernels import Kernel, Sent


class Part(NamedTuple):
    """Kernels that belong together: bytes, FLOPs and least seconds of all their runs in a step."""

    name: str
    bytes: float
    flops: float
    seconds: float


@dataclasses.dataclass(frozen=True)
class Roofline:
    """The least seconds of a step on each device.

    Attributes:
        memory: to move all bytes at the memory's bandwidth.
        arithmetic: to multiply all products at the chip's peak.
        links: to send what collectives send, at the links' bandwidth.
        kernels: one kernel after the other, each bound by memory or arithmetic.
    """

    memory: float
    arithmetic: float
    links: float
    kernels: float

    @property
    def seconds(self) -> float:
        """The least time of a step: links may send while kernels run."""
        return max(self.kernels, self.links)

    @property
    def bound(self) -> str:
        """What takes longest: memory, arithmetic or links."""
        return max(("memory", "arithmetic", "links"), key=lambda name: getattr(self, name))


def roofline(kernels: Sequence[Kernel], chip: Chip, chips: int) -> Roofline:
    """The least seconds of a step.

    A kernel that moves b bytes and multiplies f FLOPs takes max(b / bandwidth, f / peak) or longer.
    What a cache holds between two kernels is counted as moved: a step of small arrays may beat
    this.

    Args:
        kernels: of a step on each device.
        chip: of which there are several.
        chips: number of them.

    Example:
        >>> from mimetic_jax.analysis.chips import H100
        >>> product = Kernel("dot", "MLP", "", 2, 3.35e9, Flops(half=9.89e9), None, 0.0, ())
        >>> found = roofline([product], H100, 1)
        >>> f"{1e3 * found.seconds:.1f} ms, bound by {found.bound}"
        '2.0 ms, bound by memory'
    """
    return Roofline(
        memory=sum(k.times * k.bytes for k in kernels) / chip.bandwidth,
        arithmetic=sum(k.times * _multiplying(k.flops, chip) for k in kernels),
        links=sum(k.times * sending(k.sent, chip, chips) for k in kernels if k.sent),
        kernels=sum(k.times * _least(k, chip) for k in kernels),
    )


def sending(sent: Sent, chip: Chip, chips: int) -> float:
    """Seconds of a collective, without latency: an all-reduce scatters, then gathers.

    >>> from mimetic_jax.analysis.chips import V5E
    >>> sending(Sent("collective-permute", 4.5e10, 2, 255), V5E, 256)  # to a neighbor on the ring
    1.0
    """
    if sent.size == 1:
        return 0.0
    if sent.kind == "collective-permute":  # a device sends to one other, over one link
        away = min(sent.stride, chips - sent.stride)
        return sent.bytes / (chip.link if away < chip.domain else chip.network)
    once = chip.seconds(sent.bytes, sent.size, sent.stride, chips)
    return 2 * once if sent.kind == "all-reduce" else once


def parts(kernels: Sequence[Kernel], chip: Chip, name: Callable[[Kernel], str]) -> list[Part]:
    """Kernels that share a name, the most bytes first."""
    groups = collections.defaultdict(list)
    for kernel in kernels:
        groups[name(kernel)].append(kernel)
    found = [
        Part(
            named,
            sum(k.times * k.bytes for k in group),
            sum(k.times * k.flops.total for k in group),
            sum(k.times * _least(k, chip) for k in group),
        )
        for named, group in groups.items()
    ]
    return sorted(found, key=lambda part: part.bytes, reverse=True)


def _multiplying(flops: Flops, chip: Chip) -> float:
    return flops.half / chip.flops + flops.full / chip.flops32


def _least(kernel: Kernel, chip: Chip) -> float:
    return max(kernel.bytes / chip.bandwidth, _multiplying(kernel.flops, chip))
