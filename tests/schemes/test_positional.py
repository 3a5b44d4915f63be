"""Heads that look at a distance: the law in our models, and its controls.

Other conventions of rotary positions are in tests/zoo/test_rotary.py.
"""

import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx as flax_nnx

from mimetic_jax import InputError, Rule, attention_rules, initializers, linen, nnx, rewrite
from mimetic_jax.models.attention import Attention
from mimetic_jax.models.gpt import GPT, RULES
from mimetic_jax.models.vit import ViT
from mimetic_jax.rules.flax import FLAX
from mimetic_jax.schemes import NormMatched, Permuted, PositionalHeads, from_dict, to_dict
from tests.models.values import initial
from tests.schemes.blocks import biases, kernels

KEY = jax.random.key(0)
MODERN = {"positions": "rotary", "rms_norm": True, "swiglu": True, "base": "torch"}
TOKENS = jax.random.randint(jax.random.key(3), (2, 24), 0, 50)


def model(**fields):
    return GPT(**{"vocab": 50, "width": 64, "depth": 2, "heads": 4, **MODERN, **fields})


def law(distances, offset, width, *, base=10_000.0, turned=1.0, sharpness=8.0, slowest=0.05):
    """S Σ_f w_f cos θ_f (Δ − δ), by its definition in float64."""
    pairs = int(turned * width) // 2
    rates = base ** (-np.arange(pairs) / pairs)
    rates = rates[rates >= slowest]
    return sharpness * np.mean(np.cos((distances[..., None] - offset) * rates), axis=-1)


def logits(query, key, length, base=10_000.0):
    """Of constant parts [K] at all positions, [N, N], divided by √K; pairs half a head apart."""
    half = len(query) // 2
    turns = np.exp(1j * np.arange(length)[:, None] * base ** (-np.arange(half) / half))
    queries, keys = ((part[:half] + 1j * part[half:]) * turns for part in (query, key))
    return (queries @ keys.conj().T).real / math.sqrt(len(query))


DISTANCES = np.arange(24)[:, None] - np.arange(24)[None]


def test_what_the_model_computes_has_the_law():
    """Its own attention, with content kernels at zero: each token averages by the softmax of it."""
    module = Attention(num_heads=2, causal=True, rotary=500.0)
    x = jax.random.normal(KEY, (1, 10, 32))
    scheme = PositionalHeads(500, offsets=(1, 3), sharpness=4.0)
    params = rewrite(KEY, initial(module, x), scheme)
    for name in ("query", "key"):
        params[name]["kernel"] = jnp.zeros_like(params[name]["kernel"])
    ours = jax.jit(module.apply)({"params": params}, x)
    values = np.einsum("bnd,dhk->bnhk", x, params["value"]["kernel"])
    expected = np.zeros((10, 32))
    for head, offset in enumerate((1, 3)):
        weight = np.tril(np.exp(law(DISTANCES[:10, :10], offset, 16, base=500.0, sharpness=4.0)))
        weight /= weight.sum(axis=1, keepdims=True)
        expected += weight @ values[0, :, head] @ np.asarray(params["out"]["kernel"])[head]
    np.testing.assert_allclose(ours[0], expected, atol=2e-5)


def test_the_channel_stays_constant():
    """Nothing writes it and nothing but queries and keys reads it, in any block."""
    module = model(bias_free=True)
    params = rewrite(KEY, initial(module, TOKENS), PositionalHeads(10_000, channel=0), rules=RULES)
    for layer in range(2):
        block = params[f"block_{layer}"]
        for kernel in (block["attention"]["value"], block["mlp"]["fc1"], block["mlp"]["up"]):
            assert not kernel["kernel"][0].any()
        for layer_of in (block["attention"]["out"], block["mlp"]["fc2"]):
            assert not layer_of["kernel"][..., 0].any()
            assert not layer_of["bias"][0].any()
    apply = jax.jit(functools.partial(module.apply, capture_intermediates=True))
    hidden = apply({"params": params}, TOKENS)
    stream = hidden[1]["intermediates"]["block_1"]["__call__"][0][0]
    assert float(np.ptp(stream[..., 0])) < 1e-5


def test_heads_that_share_a_key_differ_in_the_query():
    shapes = kernels(24, 4, 2, 6) | biases(24, 4, 2, 6)
    params = {
        name: {"kernel": jnp.ones(shapes[name]), "bias": jnp.ones(shapes[f"{name}_bias"])}
        for name in ("query", "key", "value", "out")
    }
    scheme = PositionalHeads(100, sharpness=(8.0, 2.0, 0.0, 3.0))
    params = rewrite(KEY, {"attention": params}, scheme)["attention"]
    for head, sharpness in enumerate(scheme.sharpness):
        found = logits(params["query"]["bias"][head], params["key"]["bias"][head // 2], 9, 100.0)
        expected = law(DISTANCES[:9, :9], head, 6, base=100.0, sharpness=sharpness)
        np.testing.assert_allclose(found, expected, atol=1e-5 * 8)


def test_logits_that_the_model_does_not_divide():
    rules = attention_rules(undivided=True)
    params = {"a": initial(Attention(2, rotary=100.0), jnp.ones((1, 4, 16)))}
    divided = rewrite(KEY, params, PositionalHeads(100))["a"]
    whole = rewrite(KEY, params, PositionalHeads(100), rules=rules)["a"]
    expected = divided["query"]["bias"]
    np.testing.assert_allclose(whole["query"]["bias"] * math.sqrt(8), expected, rtol=1e-6)
    np.testing.assert_array_equal(whole["key"]["bias"], divided["key"]["bias"])


@pytest.mark.parametrize("offset", [(1, 0), (0, -1), (-1, 1)], ids=str)
def test_offsets_on_a_grid(offset):
    """A ViT's own attention looks at the patch so many rows up and columns to the left."""
    module = ViT(num_classes=3, width=32, depth=1, heads=1, patch=4, rotary=100.0)
    params = initial(module, jnp.ones((1, 20, 20, 3)))
    assert "pos_embed" not in params
    scheme = PositionalHeads(100, offsets=(offset,), axes=2, sharpness=20.0)
    attention = rewrite(KEY, params, scheme)["block_0"]["attention"]
    for name in ("query", "key"):
        attention[name]["kernel"] = jnp.zeros((32, 1, 32))
    # Patches have the values of unit vectors, so that outputs are the weights of attention.
    attention["value"]["kernel"] = jnp.eye(32)[:, None]
    attention["out"]["kernel"] = jnp.eye(32)[None]
    layer = Attention(num_heads=1, rotary=100.0, grid=(5, 5))
    tokens = jnp.zeros((1, 26, 32)).at[0, 1:].set(jnp.eye(25, 32))
    weight = jax.jit(layer.apply)({"params": attention}, tokens)[0, 1:, :25]
    distances = np.stack(np.divmod(np.arange(25), 5), axis=1)
    distances = np.float64(distances[:, None] - distances[None])
    rates = 100.0 ** (-np.arange(8) / 8)  # all above .05: slower ones than that have no part
    angles = np.concatenate([(distances[..., a, None] - offset[a]) * rates for a in (0, 1)], -1)
    expected = np.exp(20 * np.cos(angles[..., np.tile(rates, 2) >= 0.05]).mean(axis=-1))
    content = np.asarray(weight / weight.sum(axis=1, keepdims=True))  # the class token has a part
    np.testing.assert_allclose(content, expected / expected.sum(1, keepdims=True), atol=1e-5)


def test_the_gain_of_normalized_queries_keeps_the_sharpness():
    """With QK norm the constant part has the sharpness that it has without, on average."""
    module = model(qk_norm=True)
    params = rewrite(
        KEY, initial(module, TOKENS), PositionalHeads(10_000, sharpness=32.0), rules=RULES
    )
    attention = params["block_0"]["attention"]
    x = jax.random.normal(KEY, (4000, 64))

    def normalized(name):
        part = jnp.einsum("nd,dhk->nhk", x, attention[name]["kernel"]) + attention[name]["bias"]
        gain = attention[f"{name}_norm"]["scale"]
        return part / jnp.sqrt(jnp.mean(part**2, axis=-1, keepdims=True)) * gain

    query, key = (np.float64(normalized(name).mean(axis=0)) for name in ("query", "key"))
    for head in range(4):
        peak = logits(query[head], key[head], 8)[5, 5 - head]
        assert 0.9 * 32 < peak < 1.1 * 32
    control = rewrite(
        KEY, initial(module, TOKENS), NormMatched(PositionalHeads(10_000)), rules=RULES
    )
    assert np.ptp(control["block_0"]["attention"]["query_norm"]["scale"]) == 0


def test_layers_take_the_nearest_row():
    scheme = PositionalHeads(10_000, offsets=((0, 1), (2, 3), (4, 5)), sharpness=((1.0,), (2.0,)))
    depths = [scheme.heads(2, layer, 6) for layer in range(6)]
    assert [heads[0] for heads in depths] == [(0, 1), (0, 1), (2, 1), (2, 2), (4, 2), (4, 2)]
    assert [heads[1][0] for heads in depths] == [1, 1, 3, 3, 5, 5]
    params = rewrite(KEY, initial(model(depth=6), TOKENS), scheme, rules=RULES)
    attention = params["block_5"]["attention"]
    query, key = (np.float64(attention[name]["bias"][1]) for name in ("query", "key"))
    expected = law(DISTANCES, 5, 16, sharpness=2.0)
    np.testing.assert_allclose(logits(query, key, 24), expected, atol=2e-5)


@pytest.mark.parametrize("fields", [{}, {"bias_free": True}], ids=str)
@pytest.mark.parametrize("control", [NormMatched, Permuted])
def test_controls_keep_sizes_and_the_channel_alone(control, fields):
    """Each head's parts have its norm, and each pair of `Permuted` its size; the rest is equal."""
    channel = 3 if fields else None
    scheme = PositionalHeads(10_000, channel=channel, sharpness=(8.0, 0.0, 2.0, 4.0))
    params = initial(model(**fields), TOKENS)
    ours, drawn = (rewrite(KEY, params, x, rules=RULES) for x in (scheme, control(scheme)))

    def parts(tree, name, block="block_0"):
        layer = tree[block]["attention"][name]
        return np.asarray(layer["kernel"][channel] if fields else layer["bias"])

    tolerance = 0.1 if fields else 1e-5  # rows give parts together with the means of other channels
    for name in ("query", "key"):
        first, second = (parts(tree, name) for tree in (ours, drawn))
        sizes = [np.linalg.norm(x, axis=1) for x in (first, second)]
        np.testing.assert_allclose(*sizes, rtol=tolerance)
        if control is Permuted:
            pairs = (np.hypot(x[:, :8], x[:, 8:]) for x in (first, second))
            np.testing.assert_allclose(*pairs, atol=tolerance)
        assert np.abs(first - second).max() > 0.1 or (name, control) == ("key", Permuted)
    assert np.abs(parts(drawn, "query") - parts(drawn, "query", "block_1")).max() > 0.1
    for (path, one), (_, other) in zip(
        *(jax.tree_util.tree_leaves_with_path(tree) for tree in (ours, drawn)), strict=True
    ):
        names = jax.tree_util.keystr(path)
        if not ("query" in names or "key" in names):
            np.testing.assert_array_equal(one, other, err_msg=names)


@pytest.mark.parametrize("heads", [1, 3, 4, 12])
def test_half_of_the_heads_look_unless_told_otherwise(heads):
    sizes = [size for _, size in PositionalHeads(10_000).heads(heads)]
    assert sizes == [8.0] * -(-heads // 2) + [0.0] * (heads // 2)


@pytest.mark.parametrize(
    ("base", "fields", "message"),
    [
        (None, {}, "base is missing; pass the base"),
        (1.0, {}, "base must be a number.*got 1.0"),
        (100, {"offsets": ()}, "need at least one number"),
        (100, {"offsets": (0, (1, 2))}, "all of them as deep"),
        (100, {"offsets": ((0, 1), 2)}, "all of them as deep"),
        (100, {"offsets": ((0,), ())}, "need at least one number at each depth"),
        (100, {"sharpness": ((8.0,), ())}, "need at least one number at each depth"),
        (100, {"sharpness": (8.0, (1.0, 2.0))}, "all of them as deep"),
        (100, {"offsets": (0, 1), "axes": 2}, r"pairs of \(rows, columns\)"),
    ],
)
def test_constants_that_do_not_go_together(base, fields, message):
    scheme = PositionalHeads(100, offsets=(((0, 1), (1, 0)), ((0, 0), (1, 1))), axes=2)
    assert from_dict(to_dict(scheme)) == scheme
    with pytest.raises(InputError, match=message):
        PositionalHeads(base, **fields)


@pytest.mark.parametrize(
    ("scheme", "fields", "message"),
    [
        (
            PositionalHeads(100),
            {"bias_free": True},
            "no biases, which PositionalHeads needs by default",
        ),
        (PositionalHeads(100, slowest=2.0), {}, "slowest=2.0 exceeds the fastest rotary frequency"),
        (PositionalHeads(100, channel=64), {"bias_free": True}, "channel must be in 0…63; got 64"),
        (PositionalHeads(100, turned=0.07), {}, "1 columns of a head that turn are not a multiple"),
        (PositionalHeads(100), {"positions": "learned"}, "has a position embedding"),
        (NormMatched(PositionalHeads(100)), {"positions": "learned"}, "has a position embedding"),
    ],
)
def test_trees_that_it_refuses(scheme, fields, message):
    rules = (*RULES, Rule("pos_embed", "position", "1 n d"))
    with pytest.raises(InputError, match=message):
        rewrite(KEY, initial(model(**fields), TOKENS), scheme, rules=rules)


@pytest.mark.parametrize("rules", [FLAX, attention_rules()], ids=["default", "by_hand"])
def test_positions_are_known_by_their_name(rules):
    """A table of which no rule says anything, which nothing tells from one that is added."""
    plain, table, scheme = initial(model(), TOKENS), jnp.ones((24, 64)), PositionalHeads(100)
    for name in ("wpe", "embed_positions", "position"):
        params = plain | {name: {"embedding": table}}
        with pytest.raises(InputError, match=rf"^{name}/embedding: PositionalHeads is for rotary"):
            rewrite(KEY, params, scheme, rules=rules)
        rewrite(KEY, params, scheme, rules=(Rule(f"{name}/embedding", ()), *rules))
    for harmless in ({"wpe": {"embedding": table[:, :32]}}, {"pos_emb_proj": {"kernel": table}}):
        rewrite(KEY, plain | harmless, scheme, rules=rules)


@pytest.mark.parametrize("place", [(), ("attn",), ("layer_0", "attn")])
def test_norms_of_queries_that_no_rule_describes_are_refused_anywhere(place):
    """Attention may be the whole tree."""
    layer = nn.MultiHeadDotProductAttention(num_heads=4, normalize_qk=True)
    params = layer.init(KEY, jnp.ones((1, 4, 64)))["params"]
    for name in reversed(place):
        params = {name: params}
    with pytest.raises(InputError, match=f"no rule describes {'/'.join((*place, 'key_ln/scale'))}"):
        rewrite(KEY, params, PositionalHeads(10_000))
    norms = tuple(Rule(f"{name}_ln/scale", f"{name}_gain", "k") for name in ("query", "key"))
    rewrite(KEY, params, PositionalHeads(10_000), rules=(*norms, *FLAX))


def test_a_channel_needs_the_embedding():
    params = initial(model(bias_free=True), TOKENS)
    rules = tuple(rule for rule in RULES if rule.role != "embedding")
    with pytest.raises(InputError, match=r"Rule\(path, 'embedding', 't d'\)"):
        rewrite(KEY, params, PositionalHeads(100, channel=0), rules=rules)


def test_every_door_gives_the_same_biases():
    scheme, x = PositionalHeads(10_000), jnp.ones((1, 4, 32))
    layer = linen.MultiHeadDotProductAttention(num_heads=4, attention_init=scheme)
    ours = layer.init(KEY, x)["params"]
    module = flax_nnx.MultiHeadAttention(4, 32, decode=False, rngs=flax_nnx.Rngs(0))
    nnx.initialize(module, KEY, scheme)
    drawn = initializers.attention(scheme)(KEY, 32, 4)
    assert {name: set(leaf) for name, leaf in drawn.items()} == {"query": {"bias"}, "key": {"bias"}}
    inside = jax.jit(lambda params: rewrite(KEY, params, scheme))(ours)
    for name in ("query", "key"):
        bias = ours[name]["bias"]
        for other in (getattr(module, name).bias[...], drawn[name]["bias"], inside[name]["bias"]):
            np.testing.assert_allclose(other, bias, rtol=1e-5, atol=1e-6)
