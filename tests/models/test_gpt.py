"""The language model: its formula in float64, causality, and that schemes find its weights."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf

from mimetic_jax import InputError, Rule, mlp_rules, rewrite, schemes
from mimetic_jax.models.gpt import GPT, RULES
from tests.models.values import drawn, initial
from tests.typical import typical

KEY = jax.random.key(0)
SMALL = {"vocab": 11, "width": 12, "depth": 1, "heads": 3}


def tokens():
    return jax.random.randint(jax.random.key(1), (2, 7), 0, SMALL["vocab"])


def noisy(**changes):
    """Weights in which no term of the formula is zero or hidden by a small scale."""
    return {"params": drawn(GPT(**SMALL | changes), tokens())}


@functools.partial(jax.jit, static_argnames=("model", "method", "train"))
def _applied(variables, x, rngs, model, method, train):
    return model.apply(variables, x, train=train, rngs=rngs, method=method)


def apply(variables, x, rng=None, method=None, **changes):
    """Hidden states; of training if there is an rng."""
    rngs = None if rng is None else {"dropout": rng}
    return _applied(variables, x, rngs, GPT(**SMALL | changes), method, rng is not None)


def norm(x, p, epsilon=1e-05):
    """LayerNorm, or RMSNorm where there is no bias."""
    if "bias" in p:
        x = x - x.mean(-1, keepdims=True)
    deviation = np.sqrt((x**2).mean(-1, keepdims=True) + epsilon)
    return x / deviation * p["scale"] + p.get("bias", 0)


def turned(x):
    """As complex numbers, times e^(i n ω): [B, H, N, K]."""
    length, width = x.shape[-2:]
    waves = np.exp(1j * np.outer(np.arange(length), 10_000 ** (-np.arange(0, width, 2) / width)))
    product = (x[..., : width // 2] + 1j * x[..., width // 2 :]) * waves
    return np.concatenate([product.real, product.imag], axis=-1)


def formula(params, ids, positions):
    """Hidden states in float64."""
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    length, width = ids.shape[1], p["embedding"].shape[1]
    if positions == "learned":
        x = p["embedding"][ids] + p["pos_embed"][0, :length]
    elif positions == "rotary":
        x = p["embedding"][ids] * np.sqrt(width)
    else:
        place, feature = np.meshgrid(np.arange(length), np.arange(width), indexing="ij")
        angle = place / 10_000 ** (feature // 2 * 2 / width)
        table = np.where(feature % 2, np.cos(angle), np.sin(angle))
        x = p["embedding"][ids] * np.sqrt(width) + table
    for layer in range(len([name for name in p if name.startswith("block_")])):
        block = p[f"block_{layer}"]
        y = norm(x, block["norm1"])
        query, key, value = (
            np.einsum("bnd,dhk->bhnk", y, block["attention"][name]["kernel"])
            + block["attention"][name]["bias"][:, None]
            for name in ("query", "key", "value")
        )
        if "query_norm" in block["attention"]:
            query = norm(query, block["attention"]["query_norm"], 1e-6)
            key = norm(key, block["attention"]["key_norm"], 1e-6)
        if positions == "rotary":
            query, key = turned(query), turned(key)
        logits = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
        shares = np.exp(logits) * np.tri(length)
        heads = shares / shares.sum(-1, keepdims=True) @ value
        out = block["attention"]["out"]
        x = x + np.einsum("bhnk,hkd->bnd", heads, out["kernel"]) + out["bias"]
        fc1, fc2 = block["mlp"]["fc1"], block["mlp"]["fc2"]
        into = norm(x, block["norm2"])
        y = into @ fc1["kernel"] + fc1["bias"]
        if up := block["mlp"].get("up"):
            y = y / (1 + np.exp(-y)) * (into @ up["kernel"] + up["bias"])
        else:
            y = y * (1 + erf(y / np.sqrt(2))) / 2
        x = x + y @ fc2["kernel"] + fc2["bias"]
    return norm(x, p["norm"])


def test_its_gated_mlp_stays_as_it_is():
    module = GPT(vocab=50, width=16, depth=1, heads=2, swiglu=True)
    params = initial(module, jnp.zeros((1, 4), int))
    with pytest.raises(InputError, match="MLPs with a gate stay as they are"):
        rewrite(jax.random.key(0), params, schemes.MeanShift(), rules=RULES)


MODERN = {"qk_norm": True, "rms_norm": True, "swiglu": True}


@typical(
    ("positions", "modern"),
    [("sinusoidal", {}), ("rotary", {**MODERN, "tied": False})],
    slow=[("learned", {}), ("rotary", {}), ("rotary", {"output_bias": False})],
)
def test_formula_in_float64(positions, modern):
    fields = {"positions": positions, "max_length": 9, "depth": 2, **modern}
    variables, x = noisy(**fields), tokens()
    expected = formula(variables["params"], np.asarray(x), positions)
    hidden = apply(variables, x, **fields)
    np.testing.assert_allclose(hidden, expected, rtol=1e-3, atol=2e-4)
    p = variables["params"]
    output = np.asarray(p.get("unembedding", p["embedding"]), np.float64)
    assert ("unembedding" in p) == ("tied" in modern)
    logits = expected @ output.T + np.asarray(p.get("decoder_bias", 0.0))
    found = apply(variables, x, method="logits", **fields)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, logits, rtol=1e-3, atol=1e-3)


def test_rules_of_ones_own_describe_a_gated_mlp():
    """The linear kernel leans against the last."""
    rules = (*mlp_rules(first="up", second="fc2"), Rule("fc1/kernel", "mlp_gate", "d f"))
    params = noisy(**MODERN)["params"]
    new = rewrite(KEY, params, schemes.CorrelatedMLP(-0.8), rules=rules)["block_0"]["mlp"]
    old = params["block_0"]["mlp"]
    up, out = np.asarray(old["up"]["kernel"]), np.asarray(new["fc2"]["kernel"])
    assert np.corrcoef(up.ravel(), out.T.ravel())[0, 1] == pytest.approx(-0.8, abs=0.1)
    for layer in ("fc1", "up"):
        np.testing.assert_array_equal(new[layer]["kernel"], old[layer]["kernel"])


def test_embedding_dropout_scales_what_it_keeps():
    """The gradient of the input embeddings' sum is the mask itself: 0 or 1 / (1 - rate).

    A token that is dropped is dropped wherever it stands.
    """
    fields = {"depth": 0, "positions": "learned", "vocab": 50, "embedding_dropout": 0.5}
    variables = noisy(**fields)
    # A large position makes the norm all but linear in the embedding that is added to it.
    variables["params"]["pos_embed"] += 2e4 * jnp.arange(12) / 12
    ids = jnp.tile(jnp.arange(50), 2)[None]

    def slope(rng):
        def loss(embedding):
            params = variables["params"] | {"embedding": embedding}
            hidden = apply({"params": params}, ids, rng, **fields)
            return (hidden * jnp.arange(12) ** 2).sum()

        return jnp.linalg.norm(jax.grad(loss)(variables["params"]["embedding"]), axis=1)

    ratio = np.asarray(slope(KEY) / slope(None))
    assert (np.isclose(ratio, 0) | np.isclose(ratio, 2, rtol=1e-3)).all()
    assert 10 < (ratio > 1).sum() < 40


def test_dropout_is_off_unless_training():
    variables, x = noisy(), tokens()
    exact = apply(variables, x)
    rates = {"dropout": 0.3, "embedding_dropout": 0.3}
    np.testing.assert_array_equal(apply(variables, x, **rates), exact)
    for name, rate in rates.items():
        first, again, other = (
            apply(variables, x, jax.random.key(seed), **{name: rate}) for seed in (0, 0, 1)
        )
        np.testing.assert_array_equal(first, again)
        assert not np.allclose(first, other)
        assert not np.allclose(first, exact)
