"""The lean of attention products, whatever the storage of the kernels."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from configs.default import default
from mimetic_jax import InputError, Rule, rewrite
from mimetic_jax.analysis import products
from mimetic_jax.schemes import Mimetic
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


def test_fused_kernels_lean_as_separate_ones():
    kernels = layer(0)
    qkv = np.concatenate([kernels[role]["kernel"].reshape(D, -1) for role in ROLES[:3]], axis=1)
    tree = {"attn": {"qkv": {"kernel": qkv}, "proj": {"kernel": kernels["out"]["kernel"]}}}
    rules = (
        Rule("qkv/kernel", ROLES[:3], "d (three h k)"),
        Rule("proj/kernel", "out", "h k d"),
    )
    (fused,) = products.leans(tree, rules=rules, num_heads=H)
    (separate,) = products.leans({"attn": kernels})
    assert fused == separate
    with pytest.raises(InputError, match="no rule describes attn/qkv/kernel"):
        products.leans(tree)


def test_other_layers_are_passed_over():
    tree = {"attn": layer(0), "mlp": {"fc1": {"kernel": np.ones((D, 2 * D), np.float32)}}}
    assert [lean.layer for lean in products.leans(tree)] == ["attn"]
    assert products.leans({"mlp": tree["mlp"]}) == []


def test_a_mimetic_tree_leans():
    tree = rewrite(jax.random.key(0), {"attn": layer(0)}, Mimetic())
    (lean,) = products.leans(tree)
    assert lean.value_out == pytest.approx(-0.4, abs=0.05)
    assert lean.value_out_noise == pytest.approx(0.4 / D**0.5, rel=0.2)


def test_analyze_reads_models_with_scan(tmp_path):
    config = default()
    config.batch, config.steps, config.eval.batch = 32, 4, 72
    config.model.update(width=48, depth=2, heads=2, patch=4, scan=True)
    config.arms.mimetic = {"scheme": (Mimetic(),)}
    said = products.analyze(quiet(config), tmp_path)
    for index in range(2):
        assert f"blocks/attention[{index}]" in said
