"""The structured paper's released families beside our schemes, on the same noise."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mimetic_jax
from mimetic_jax.schemes import Impulse, Mimetic
from mimetic_jax.weights import attention

D, HEADS = 20, 4
FAMILIES = {
    "mimetic": Mimetic.port(),
    "impulse": Impulse(),
    "impulse3_2_1": Impulse(position_scale=3.0, norm=2.0),
}


def flax(arrays, family):
    """The attention layer and position table of a family, as our ViT stores them."""

    def array(name):
        return arrays.get(f"{family}/{name}", arrays[f"before/{name}"])

    kernels = array("qkv.weight").T.reshape(D, 3, HEADS, D // HEADS)
    biases = array("qkv.bias").reshape(3, HEADS, D // HEADS)
    layer = {
        role: {"kernel": kernels[:, index], "bias": biases[index]}
        for index, role in enumerate(("query", "key", "value"))
    }
    out = array("proj.weight").T.reshape(HEADS, D // HEADS, D)
    layer["out"] = {"kernel": out, "bias": array("proj.bias")}
    return jax.tree.map(
        jnp.asarray, {"block_0": {"attention": layer}, "pos_embed": array("pos_embed")}
    )


@pytest.fixture
def same_noise(golden, monkeypatch):
    """The golden arrays; our draws are the noise of these."""
    arrays = golden("released")
    uniform = np.random.RandomState(0)

    def draw(keys, dim, noise):
        assert noise == "uniform"
        bound = (3 / dim) ** 0.5
        return jnp.asarray(uniform.uniform(-bound, bound, (len(keys), dim, dim)), jnp.float32)

    def truncated_normal(key, lower, upper, shape, dtype):
        assert dtype == jnp.float32
        assert upper == -lower == pytest.approx(2 / 0.6)
        assert shape == arrays["trunc_normal"].shape
        return jnp.asarray(arrays["trunc_normal"]) / 0.6

    monkeypatch.setattr(attention, "_draw", draw)
    monkeypatch.setattr(jax.random, "truncated_normal", truncated_normal)
    return arrays


def test_the_default_family_changes_nothing(golden):
    assert not any(name.startswith("default/") for name in golden("released"))


@pytest.mark.parametrize("family", FAMILIES)
def test_family(same_noise, family):
    start, expected = flax(same_noise, "before"), flax(same_noise, family)
    found = mimetic_jax.rewrite(jax.random.key(0), start, FAMILIES[family])
    ours, theirs = (
        {
            role: np.asarray(tree["block_0"]["attention"][role]["kernel"], np.float64)
            for role in ("query", "key", "value", "out")
        }
        for tree in (found, expected)
    )

    def assert_close(of, tolerance=1e-5):
        got, want = of(ours), of(theirs)
        np.testing.assert_allclose(got, want, atol=tolerance * np.abs(want).max())

    # Singular vectors have arbitrary signs: products and norms are what both must share.
    assert_close(lambda k: np.einsum("dhk,ehk->hde", k["query"], k["key"]))
    assert_close(lambda k: np.linalg.norm([k["query"], k["key"]], axis=(1, 3)))
    assert_close(lambda k: np.linalg.norm(k["value"].reshape(D, D), axis=0))
    assert_close(lambda k: np.linalg.norm(k["out"].reshape(D, D), axis=1))
    if family == "mimetic":  # stored untransposed there: L R, and (R L)ᵀ up to signs
        assert_close(lambda k: k["value"].reshape(D, D).T @ k["out"].reshape(D, D).T)
        assert_close(lambda k: np.abs(k["value"].reshape(D, D) @ k["out"].reshape(D, D)))
    else:
        assert_close(lambda k: np.einsum("dhk,hke->de", k["value"], k["out"]))
    np.testing.assert_allclose(found["pos_embed"], expected["pos_embed"], rtol=1e-6)
    for role in ours:  # the model's own biases stay
        biases = [tree["block_0"]["attention"][role]["bias"] for tree in (start, found)]
        assert biases[0].any()
        np.testing.assert_array_equal(*biases)
