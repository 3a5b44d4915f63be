"""Constants read off trees, whatever the storage; `fit` undoes `rewrite` with `Mimetic`."""

import math
import re

import jax
import numpy as np
import pytest

import mimetic_jax
from mimetic_jax import InputError
from mimetic_jax.command.expressions import parse_rules
from mimetic_jax.schemes import Mimetic
from mimetic_jax.schemes.mimetic import mimetic_language
from tests.schemes.blocks import kernels

ROLES = ("query", "key", "value", "out")


def layer(dim=96, heads=3, groups=None, seed=0, head_dim=None):
    shapes = kernels(dim, heads, groups or heads, head_dim or dim // heads)
    draw = np.random.default_rng(seed).standard_normal
    return {role: {"kernel": np.float32(0.1 * draw(shape))} for role, shape in shapes.items()}


def check(found, scheme, rel=0.05):
    for pair, short in (("query_key", "qk"), ("value_out", "vo")):
        got = getattr(found, pair)
        alpha, beta = (getattr(scheme, f"{name}_{short}") for name in ("alpha", "beta"))
        assert got.alpha == pytest.approx(alpha, rel=rel)
        assert got.beta == pytest.approx(beta, rel=rel)
        assert abs(got.alpha - alpha) < 5 * got.alpha_error
        assert abs(got.beta - beta) < 5 * got.beta_error
        assert got.residual < 0.05


OTHER = Mimetic(alpha_qk=1.1, beta_qk=-0.6, alpha_vo=0.2, beta_vo=0.5)


@pytest.mark.parametrize(
    ("dim", "heads", "groups"), [(64, 1, 1), (64, 8, 8), (96, 6, 2), (192, 3, 3)]
)
@pytest.mark.parametrize("scheme", [Mimetic(), OTHER], ids=("paper", "other"))
def test_fit_undoes_rewrite(dim, heads, groups, scheme):
    params = mimetic_jax.rewrite(jax.random.key(1), layer(dim, heads, groups), scheme)
    (found,) = mimetic_jax.fit(params)
    check(found, scheme)


def test_by_hand_at_full_rank():
    """Without truncation α and β are moments of the product's entries."""
    params = layer(dim=24, heads=4)
    (found,) = mimetic_jax.fit({"attention": params})
    value, out = (np.asarray(params[role]["kernel"], float) for role in ("value", "out"))
    product = np.einsum("dhk,hke->de", value, out)
    beta = product.diagonal().mean()
    alpha = np.linalg.norm(product - beta * np.eye(24)) / math.sqrt(24)
    assert found.value_out.beta == pytest.approx(beta)
    assert found.value_out.alpha == pytest.approx(alpha)
    assert found.name == "attention"


def test_language_is_without_noise():
    params = mimetic_jax.rewrite(jax.random.key(0), layer(192, 6), mimetic_language())
    (found,) = mimetic_jax.fit(params)
    pair = found.query_key
    assert (pair.alpha, pair.alpha_error) == (0, 0)
    assert pair.beta == pytest.approx(0.5, rel=1e-4)
    assert pair.residual < 1e-4


@pytest.mark.parametrize("heads", [1, 4])
def test_noise_does_not_lean(heads):
    for seed in range(5):
        (found,) = mimetic_jax.fit(layer(64, heads, seed=seed))
        for pair in (found.query_key, found.value_out):
            assert abs(pair.beta) < 4 * pair.beta_error
            assert pair.alpha > 10 * pair.alpha_error
            assert pair.residual > 0.1  # a product of two draws isn't one draw


def test_errors_are_the_spread_of_fits():
    scheme = Mimetic(alpha_qk=0.5, beta_qk=0.3)
    params = {f"block_{i}": layer(32, 2) for i in range(40)}
    found = mimetic_jax.fit(mimetic_jax.rewrite(jax.random.key(0), params, scheme))
    for pair in ("query_key", "value_out"):
        for name in ("alpha", "beta"):
            values = [getattr(getattr(one, pair), name) for one in found]
            errors = [getattr(getattr(one, pair), f"{name}_error") for one in found]
            assert 0.4 * np.mean(errors) < np.std(values) < 1.4 * np.mean(errors)


def test_heads_that_disagree_have_large_errors():
    leaning, opposite = (
        mimetic_jax.rewrite(jax.random.key(0), layer(64, 1, head_dim=16), Mimetic(beta_qk=beta))
        for beta in (0.7, -0.7)
    )
    both = {}
    for role in ROLES:
        pair = [leaning[role]["kernel"], opposite[role]["kernel"]]
        both[role] = {"kernel": np.concatenate(pair, axis=int(role != "out"))}
    (found,) = mimetic_jax.fit(both)
    assert found.query_key.beta == pytest.approx(0, abs=0.1)
    assert found.query_key.beta_error == pytest.approx(0.7, abs=0.1)


def test_scheme_gives_the_layers_again():
    per_layer = Mimetic(beta_qk=(0.3, 0.6), alpha_vo=(0.4, 0.2))
    params = {f"block_{i}": layer(96, 2) for i in range(2)}
    first = mimetic_jax.fit(mimetic_jax.rewrite(jax.random.key(0), params, per_layer))
    assert first.scheme.beta_qk.values == pytest.approx((0.3, 0.6), rel=0.05)
    again = mimetic_jax.fit(mimetic_jax.rewrite(jax.random.key(1), params, first.scheme))
    assert again.scheme.alpha_vo.values == pytest.approx((0.4, 0.2), rel=0.05)
    assert first.constant.beta_qk == pytest.approx(0.45, rel=0.05)
    assert str(first).endswith(f"beta_vo={first.scheme.beta_vo})")
    assert len(str(first).splitlines()) == 4


def test_pairs_that_are_missing_or_zero():
    given = layer(48, 3)
    (found,) = mimetic_jax.fit({"attention": {role: given[role] for role in ("value", "out")}})
    assert found.query_key is None
    given["out"]["kernel"][:] = 0
    found = mimetic_jax.fit({"attention": given})
    assert found[0].value_out.alpha == found[0].value_out.beta == 0
    assert found.scheme.alpha_vo is found.scheme.beta_vo is None
    assert found.constant.alpha_vo is None
    two = {"block_0": layer(48, 3), "block_1": {role: given[role] for role in ("query", "key")}}
    found = mimetic_jax.fit(two)
    assert str(found).endswith("block_1 has no value and out, but other layers do")
    with pytest.raises(InputError, match="block_1 has no value and out"):
        _ = found.scheme


@pytest.mark.parametrize("names", [("decoder", "encoder"), ("tower_1", "tower_2")])
def test_several_kinds_of_layers_are_several_schemes(names):
    one, other = names
    tree = {one: {"block_0": layer(), "block_1": layer()}, other: {"block_0": layer()}}
    found = mimetic_jax.fit(tree)
    assert len(found) == 3
    words = f"no single scheme describes {one}/block and {other}/block: .*out with rules=(.*)$"
    with pytest.raises(InputError, match=words) as refused:
        _ = found.scheme
    alone = mimetic_jax.fit(tree, rules=parse_rules(re.search(words, str(refused.value))[1]))
    assert alone.scheme == mimetic_jax.fit({one: tree[one]}).scheme


def test_bad_input():
    dense = {"fc1": {"kernel": np.ones((4, 8))}, "out": {"kernel": np.ones((8, 4))}}
    with pytest.raises(InputError, match=r"^there is no attention or MLP to fit among the paths f"):
        mimetic_jax.fit(dense)
    with pytest.raises(InputError, match=r"attention or MLP to fit among the paths \(none\)$"):
        mimetic_jax.fit({})
    broken = layer(48, 3)
    broken["query"]["kernel"][0, 0, 0] = np.nan
    with pytest.raises(InputError, match=r"^block/0: its weights are not finite$"):
        mimetic_jax.fit({"block": [broken]})
    crossed = {**layer(48, 3), "key": layer(24, 3, head_dim=16)["key"]}
    with pytest.raises(InputError, match="must have the same width and head width"):
        mimetic_jax.fit({"attention": crossed})
