"""Least seconds of kernels, against arithmetic by hand."""

from __future__ import annotations

import pytest

from mimetic_jax.analysis.chips import H100, V5E, V5P
from mimetic_jax.analysis.compile.flops import Flops
from mimetic_jax.analysis.compile.kernels import Kernel, Sent
from mimetic_jax.analysis.compile.roofline import parts, roofline


def kernel(kind, bytes_=0.0, half=0.0, sent=None, times=1):
    return Kernel(kind, "other", "", times, bytes_, Flops(half), sent, 0.0, ())


def test_each_kernel_has_its_own_bound():
    product = kernel("dot", bytes_=3.35e9, half=3 * 989e9)  # 1 ms and 3 ms
    copy = kernel("copy", bytes_=3.35e9, times=4)
    found = roofline([product, copy], H100, 1)
    assert 1e3 * found.memory == pytest.approx(5)
    assert 1e3 * found.arithmetic == pytest.approx(3)
    assert 1e3 * found.seconds == pytest.approx(3 + 4)
    assert found.bound == "memory"
    assert [(part.name, part.bytes) for part in parts([product, copy], H100, lambda k: k.kind)] == [
        ("copy", 4 * 3.35e9),
        ("dot", 3.35e9),
    ]


def test_links():
    """An all-reduce of 1 GB among 4 x 4: a chip sends 15/16 of it twice over two links."""
    reduce = kernel("all-reduce", sent=Sent("all-reduce", 1e9, 16, 1))
    found = roofline([reduce], V5E, 16)
    assert found.links == pytest.approx(2 * 1e9 * 15 / 16 / 9e10)
    assert (found.seconds, found.bound) == (found.links, "links")


@pytest.mark.parametrize(("chips", "links"), [(8, 3), (64, 6)])
def test_a_torus_of_three_axes(chips, links):
    """2 x 2 x 2 has a link along each axis; 4 x 4 x 4 has rings, which send both ways."""
    assert V5P.seconds(1e9, chips, 1, chips) == pytest.approx(
        1e9 * (1 - 1 / chips) / (links * V5P.link)
    )
