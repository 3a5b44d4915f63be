"""The lean of attention products, whatever the storage of the kernels."""

from __future__ import annotations

import re

import jax
import numpy as np
import pytest

from mimetic_jax.analysis import products
from mimetic_jax.schemes import Mimetic
from tests.analysis.networks import small
from tests.training import quiet

ROLES = ("query", "key", "value", "out")
D, H, K = 24, 4, 6


def layer(seed, groups=H):
    draw = np.random.default_rng(seed).standard_normal
    return {
        "query": {"kernel": draw((D, H, K), np.float32)},
        "key": {"kernel": draw((D, groups, K), np.float32)},
        "value": {"kernel": draw((D, groups, K), np.float32)},
        "out": {"kernel": draw((H, K, D), np.float32)},
    }


def by_hand(kernels):
    """(query/key, its noise, value/out, its noise) in float64, head by head."""
    query, key, value, out = (np.asarray(kernels[role]["kernel"], np.float64) for role in ROLES)
    reads = np.arange(H) // (H // key.shape[1])
    query_key = np.stack([query[:, h] @ key[:, g].T for h, g in enumerate(reads)])
    value_out = sum(value[:, g] @ out[h] for h, g in enumerate(reads))[None]
    off = ~np.eye(D, dtype=bool)
    return [
        number
        for product in (query_key, value_out)
        for number in (np.trace(product.mean(axis=0)) / D, product[:, off].std())
    ]


def numbers(lean):
    return [lean.query_key, lean.query_key_noise, lean.value_out, lean.value_out_noise]


@pytest.mark.parametrize("groups", [H, 2, 1])
def test_stacked_layers_lean_as_single_ones(groups):
    single = {f"block_{index}": {"attention": layer(index, groups)} for index in range(11)}
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *single.values())
    apart, together = products.leans(single), products.leans({"blocks": stacked})
    assert [lean.layer for lean in apart] == [f"block_{index}/attention" for index in range(11)]
    assert [lean.layer for lean in together] == [f"blocks/attention[{i}]" for i in range(11)]
    for left, right, tree in zip(apart, together, single.values(), strict=True):
        assert numbers(left) == numbers(right)
        np.testing.assert_allclose(numbers(left), by_hand(tree["attention"]), rtol=1e-4, atol=1e-5)


def test_analyze_reads_models_with_scan(tmp_path):
    config = small(scan=True, fused_qkv=True)
    config.arms = {"default": {}, "mimetic": {"scheme": (Mimetic(),)}}
    said = products.analyze(quiet(config), tmp_path)
    of_each = re.findall(r"blocks/attention\[(\d)\].*W_V W_out (\S+)", said)
    assert [index for index, _ in of_each] == ["0", "1", "0", "1"]
    leans = [float(lean) for _, lean in of_each]
    assert leans == pytest.approx([0, 0, -0.4, -0.4], abs=0.1)
