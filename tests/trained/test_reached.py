"""Sharpness as layers reach it: by `check`, and by a decoder of one's own with random tokens."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax import Rule, attention_rules, check, rewrite
from mimetic_jax.schemes import PositionalHeads
from mimetic_jax.weights import rotary_rates
from tests.models.values import initial
from tests.typical import typical

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


def reached(depth, size):
    """S of each head [L, H], by `check` and by a forward pass; and the constant share, [L]."""
    layers = {f"block_{i}": initial(BLOCK, jnp.ones((1, T, D)), seed=i) for i in range(depth)}
    table = size * jax.random.normal(KEY, (V, D))
    params = rewrite(KEY, {"tokens": {"embedding": table}} | layers, SCHEME, rules=RULES)
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
    return (logits_HxTxT[:, late][:, :, late] * bumps).sum(axis=(1, 2)) / (bumps**2).sum(
        axis=(1, 2)
    )


@jax.jit
def _applied(params, x):
    return BLOCK.apply({"params": params}, x, mutable="intermediates")


EVERY = [(size, depth) for size in EMBEDDINGS for depth in (2, 6, 12)]


@typical(("size", "depth"), EVERY[:1], slow=EVERY[1:])
def test_every_layer_reaches_its_sharpness(size, depth):
    """The table of docs/schemes.md: 8 in every layer, however much the blocks add."""
    by_check, by_logits, energy = reached(depth, EMBEDDINGS[size])
    np.testing.assert_allclose(by_check[:, : H // 2], 8, rtol=1e-3)
    np.testing.assert_allclose(by_logits[:, : H // 2], 8, rtol=0.05)
    assert np.abs([by_check, by_logits])[:, :, H // 2 :].max() < 0.3  # those that don't look
    assert 0 < energy[-1] <= energy[0] <= 0.7001
