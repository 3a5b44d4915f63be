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
        self.sow("intermediates", "constant", h[..., 0])
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


def initial(depth, size):
    """Parameters as Linen draws them: normal kernels of variance 1 / inputs."""
    random = np.random.default_rng(0)

    def kernel(path, leaf):
        if path[-1].key == "scale":
            return jnp.ones(leaf.shape)
        inputs = np.prod(leaf.shape[:-1] if path[0].key in ("out", "down") else leaf.shape[:1])
        return jnp.asarray(random.normal(size=leaf.shape, scale=inputs**-0.5), jnp.float32)

    shapes = jax.eval_shape(BLOCK.init, KEY, jnp.ones((1, T, D)))["params"]
    layers = {f"block_{i}": jax.tree_util.tree_map_with_path(kernel, shapes) for i in range(depth)}
    table = random.normal(size=(V, D), scale=size)
    return {"tokens": {"embedding": jnp.asarray(table, jnp.float32)}, **layers}


def reached(depth, size):
    """S of the two heads that look, [L, 2]: by `check`, and by the decoder that of the constant
    channel and the mean logit with all else; and the constant share of the energy, [L]."""
    tokens = jax.random.randint(jax.random.key(5), (64, T), 0, V)
    params = initial(depth, size)
    params = rewrite(KEY, params, PositionalHeads(BASE, channel=0), rules=RULES)
    x, rows, channel, logits = TABLE.apply({"params": params["tokens"]}, tokens), LATE, [], []
    for layer in range(depth):
        x, kept = _applied(params[f"block_{layer}"], x)
        found = {name: np.asarray(array[0]) for name, array in kept["intermediates"].items()}
        logits.append([found["logits"][:, h, rows, rows - h].mean() for h in (0, 1)])
        squares = [
            np.mean(found["constant"][:, rows] * found["constant"][:, rows - h]) for h in (0, 1)
        ]
        channel.append(np.array(squares) * _bumps(params[f"block_{layer}"]))
    checked = check(params, rules=RULES, rotary=BASE).positional
    by_check = np.array([layer.sharpness[:2] for layer in checked])
    energy = np.array([layer.energy for layer in checked])
    return by_check, np.array(channel), np.array(logits), energy


LATE = np.arange(T // 2, T)


def _bumps(block):
    """The logit at distance h of head h from rows of the kernels that read a constant 1."""
    rates, found = np.asarray(rotary_rates(D // H, BASE)[:, 0], float), []
    for head in (0, 1):
        query, key = (np.asarray(block[name]["kernel"][0, head]) for name in ("query", "key"))
        parts = [x[: len(rates)] + 1j * x[len(rates) :] for x in (query, key)]
        turned_back = parts[0] * parts[1].conj() * np.exp(1j * rates * head)
        found.append(turned_back.real.sum() / (D // H) ** 0.5)
    return np.array(found)


@jax.jit
def _applied(params, x):
    return BLOCK.apply({"params": params}, x, mutable="intermediates")


@pytest.mark.parametrize("size", EMBEDDINGS.values(), ids=EMBEDDINGS)
@pytest.mark.parametrize(
    "depth", [2, pytest.param(6, marks=pytest.mark.slow), pytest.param(12, marks=pytest.mark.slow)]
)
def test_every_layer_reaches_its_sharpness(depth, size):
    """The table of docs/schemes.md: 8 in every layer, however much the blocks add."""
    by_check, by_channel, by_logits, energy = reached(depth, size)
    np.testing.assert_allclose(by_check, 8, rtol=1e-3)
    np.testing.assert_allclose(by_channel, by_check, rtol=0.05)
    # Means of other channels are constant parts, too.
    np.testing.assert_allclose(by_logits, by_check, rtol=0.25)
    assert 0 < energy[-1] <= energy[0] <= 0.7001
