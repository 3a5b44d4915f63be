"""Sharpness as layers reach it: by `check`, and by a decoder of one's own with random tokens."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax import Rule, attention_rules, check, rewrite
from mimetic_jax.schemes import PositionalHeads
from mimetic_jax.weights import rotary_rates

KEY, BASE, V, D, H, T = jax.random.key(0), 10_000.0, 512, 64, 4, 64
SCHEME = PositionalHeads(BASE, channel=0)
EMBEDDINGS = {"Linen's": D**-0.5, "PyTorch's": 0.02, "unit": 1.0}
RULES = (
    *attention_rules(),
    Rule("tokens/embedding", "embedding", "t d"),
    Rule("gate/kernel", "mlp_gate", "d f"),
    Rule("up/kernel", "mlp_in", "d f"),
    Rule("down/kernel", "mlp_out", "f d"),
)


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        h = nn.RMSNorm()(x)
        query, key, value = (
            nn.DenseGeneral((H, D // H), use_bias=False, name=name)(h)
            for name in ("query", "key", "value")
        )
        angles = jnp.arange(T)[:, None, None] * rotary_rates(D // H, BASE)[:, 0]
        query, key = (turned(y, angles) for y in (query, key))
        logits = jnp.einsum("bnhk,bmhk->bhnm", query, key) / (D // H) ** 0.5
        self.sow("intermediates", "logits", logits)
        weights = jax.nn.softmax(logits, where=jnp.tri(T, dtype=bool))
        gathered = jnp.einsum("bhnm,bmhk->bnhk", weights, value)
        x += nn.DenseGeneral(D, axis=(-2, -1), use_bias=False, name="out")(gathered)
        h = nn.RMSNorm()(x)
        gate, up = (nn.Dense(4 * D, use_bias=False, name=name)(h) for name in ("gate", "up"))
        return x + nn.Dense(D, use_bias=False, name="down")(nn.silu(gate) * up)


def turned(x, angles):
    first, second = jnp.split(x, 2, axis=-1)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    return jnp.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)


TABLE, BLOCK = nn.Embed(V, D), Block()
"""A decoder, of which every layer is the same program."""


def initial(depth, size, seed):
    """Parameters as Linen draws them: normal kernels of variance 1 / inputs."""
    random = np.random.default_rng(seed)

    def kernel(path, leaf):
        if path[-1].key == "scale":
            return jnp.ones(leaf.shape)
        inputs = np.prod(leaf.shape[:-1] if path[0].key in ("out", "down") else leaf.shape[:1])
        return jnp.asarray(random.normal(size=leaf.shape, scale=inputs**-0.5), jnp.float32)

    shapes = jax.eval_shape(BLOCK.init, KEY, jnp.ones((1, T, D)))["params"]
    layers = {f"block_{i}": jax.tree_util.tree_map_with_path(kernel, shapes) for i in range(depth)}
    table = random.normal(size=(V, D), scale=size)
    return {"tokens": {"embedding": jnp.asarray(table, jnp.float32)}, **layers}


def reached(depth, size, seed=0):
    """S of each head [L, H], by `check` and by a forward pass; and the constant share, [L]."""
    params = rewrite(KEY, initial(depth, size, seed), SCHEME, rules=RULES)
    tokens = jax.random.randint(jax.random.key(5), (256, T), 0, V)
    x, by_logits = TABLE.apply({"params": params["tokens"]}, tokens), []
    for layer in range(depth):
        x, kept = _applied(params[f"block_{layer}"], x)
        (logits,) = kept["intermediates"]["logits"]
        by_logits.append(_coefficients(np.asarray(logits.mean(axis=0), float)))
    checked = check(params, rules=RULES, rotary=BASE).positional
    by_check = np.array([layer.sharpness for layer in checked])
    return by_check, np.array(by_logits), np.array([layer.energy for layer in checked])


def _coefficients(logits_HxTxT):
    """What mean logits have of Σ_f w_f cos θ_f(n − m − δ), by head, between the later tokens."""
    late = np.arange(T // 2, T)
    rates = np.asarray(rotary_rates(D // H, BASE)[:, 0], float)
    rates = rates[rates >= SCHEME.slowest]
    offsets = np.array([offset for offset, _ in SCHEME.heads(H)])[:, None, None, None]
    bumps = np.cos((late[:, None, None] - late[:, None] - offsets) * rates).mean(axis=-1)
    common = (logits_HxTxT[:, late][:, :, late] * bumps).sum(axis=(1, 2))
    return common / (bumps**2).sum(axis=(1, 2))


@jax.jit
def _applied(params, x):
    return BLOCK.apply({"params": params}, x, mutable="intermediates")


@pytest.mark.parametrize("size", EMBEDDINGS.values(), ids=EMBEDDINGS)
@pytest.mark.parametrize("depth", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (6, 12))])
def test_every_layer_reaches_its_sharpness(depth, size):
    """The table of docs/schemes.md: 8 in every layer, however much the blocks add."""
    by_check, by_logits, energy = reached(depth, size)
    np.testing.assert_allclose(by_check[:, : H // 2], 8, rtol=1e-3)
    np.testing.assert_allclose(by_logits[:, : H // 2], 8, rtol=0.05)
    assert np.abs([by_check, by_logits])[:, :, H // 2 :].max() < 0.3  # those that don't look
    assert 0 < energy[-1] <= energy[0] <= 0.7001


def test_heads_of_a_channel_that_is_not_constant_do_not_peak():
    """Another embedding than the one that they were made for has no constant channel."""
    params = rewrite(KEY, initial(2, 1.0, 0), SCHEME, rules=RULES)
    params["tokens"] = initial(1, 1.0, 1)["tokens"]
    found = check(params, rules=RULES, rotary=BASE)
    for layer in found.positional:
        assert max(layer.sharpness) < 0.3
        assert max(layer.assumed) > 4
    assert "the channel isn't constant in what 2 of 2 layers read" in str(found)
    assert "peak at distance" not in str(found)
