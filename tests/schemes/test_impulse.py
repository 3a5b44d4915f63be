import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

import mimetic_jax
from mimetic_jax import models
from mimetic_jax.schemes import Context, Impulse, Mimetic
from mimetic_jax.trained.aim import aim, attention_maps
from mimetic_jax.weights import attention, impulse_query_key
from mimetic_jax.weights.impulse import impulse_matrices, offsets
from tests.models.values import initial
from tests.products import of_layer as products
from tests.schemes.blocks import kernels, ones

KEY = jax.random.key(3)
GRID, WIDTH, HEADS, DEPTH = 8, 64, 2, 2


@pytest.fixture(scope="module")
def vit():
    """A small ViT with random positions and a class token, on a grid of 8×8."""
    model = models.ViT(num_classes=10, width=WIDTH, depth=DEPTH, heads=HEADS, patch=2, base="torch")
    images = jnp.ones((1, 2 * GRID, 2 * GRID, 1))
    return initial(model, images)


def normalized(position):
    position = np.asarray(position, np.float64)
    centered = position - position.mean(axis=-1, keepdims=True)
    return centered / np.sqrt(position.var(axis=-1, keepdims=True) + 1e-6)


def test_a_vit_starts_with_convolutions(vit):
    new = mimetic_jax.rewrite(KEY, vit, Impulse())
    assert jax.tree.structure(new) == jax.tree.structure(vit)
    table, old = new["pos_embed"][0], vit["pos_embed"][0]
    np.testing.assert_allclose(table, 18 * old, rtol=1e-6)
    tokens = normalized(table[1:])
    intended = impulse_matrices((GRID, GRID), offsets(3, HEADS))
    rows = intended.sum(axis=-1) > 0
    for layer in range(DEPTH):
        attention = new[f"block_{layer}"]["attention"]
        query_key, value_out = products(attention)
        logits = tokens @ query_key @ tokens.T / np.sqrt(WIDTH // HEADS)
        maps = scipy.special.softmax(logits, axis=-1)
        assert (maps.argmax(axis=-1) == intended.argmax(axis=-1))[rows].mean() >= 0.95
        assert (maps * intended).sum(axis=-1)[rows].mean() >= 0.6
        assert value_out.diagonal().mean() == pytest.approx(-0.4, abs=0.05)
        for role in attention:
            before = vit[f"block_{layer}"]["attention"][role]["bias"]
            np.testing.assert_array_equal(attention[role]["bias"], before)
        mlps = [tree[f"block_{layer}"]["mlp"]["fc1"]["kernel"] for tree in (new, vit)]
        np.testing.assert_array_equal(*mlps)
    first, second = (products(new[f"block_{layer}"]["attention"])[0] for layer in range(2))
    assert np.abs(first - second).max() > 1e-3  # the noise is fresh in every layer


def test_value_and_out_are_those_of_mimetic(vit):
    scheme = Impulse(noise_vo="normal", zero_bias=True)
    impulse = mimetic_jax.rewrite(KEY, vit, scheme)["block_1"]["attention"]
    mimetic = mimetic_jax.rewrite(KEY, vit, Mimetic())["block_1"]["attention"]
    for role in ("value", "out"):
        jax.tree.map(np.testing.assert_array_equal, impulse[role], mimetic[role])
    assert not any(impulse[role]["bias"].any() for role in impulse)


def test_the_order_of_table_and_attention_does_not_matter(vit):
    """A table that comes after the attention is scaled after it was read."""
    attention = vit["block_0"]["attention"]
    table = {"pos_embed": vit["pos_embed"]}
    before = mimetic_jax.rewrite(KEY, {"m": attention, **table}, Impulse())
    after = mimetic_jax.rewrite(KEY, {"m": attention, "z": table}, Impulse())
    np.testing.assert_array_equal(before["pos_embed"], after["z"]["pos_embed"])
    # Equal except for the LayerNorm's ε of 1e-5 against a variance of .02².
    for ours, theirs in zip(*map(products, (before["m"], after["m"])), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=0.03 * np.abs(ours).max())


def test_preset_of_the_paper(vit):
    new = mimetic_jax.rewrite(KEY, vit, Impulse.paper())
    np.testing.assert_array_equal(new["pos_embed"], vit["pos_embed"])
    attention, old = (tree["block_0"]["attention"] for tree in (new, vit))
    for role in ("value", "out"):
        np.testing.assert_array_equal(attention[role]["kernel"], old[role]["kernel"])
        np.testing.assert_array_equal(attention[role]["bias"], old[role]["bias"])
    norms = np.linalg.norm(attention["query"]["kernel"], axis=(0, 2))
    np.testing.assert_allclose(norms, 2.0, rtol=1e-5)


def test_fields_reach_the_weights():
    block = ones(kernels(32, 4, 4, 8) | {"query_bias": (4, 8), "out_bias": (32,)})
    position = 0.02 * jax.random.normal(jax.random.key(1), (16, 32))
    context = Context(position=position, grid=(4, 4))
    base = Impulse()(KEY, block, context)
    changes = ("amplitude", "noise", "norm", "kernel_size", "order")
    for name, value in zip(changes, (10.0, 20.0, 9.0, 1, "positive"), strict=True):
        new = Impulse(**{name: value})(KEY, block, context)
        assert np.abs(new["query"] - base["query"]).max() > 0.01, name
        np.testing.assert_array_equal(new["value"], base["value"])
    assert Impulse().writes(frozenset(block)) == {"query", "key", "value", "out"}
    frame = Impulse(amplitude=None)
    assert frame.writes(frozenset(block)) == {"value", "out"}
    for role, array in frame(KEY, block, context).items():
        np.testing.assert_array_equal(array, base[role])
    only_query_key = Impulse(alpha_vo=None, beta_vo=None, zero_bias=True)
    assert only_query_key.writes(frozenset(block)) == {"query", "key", "query_bias"}
    assert Impulse(position_scale=1.0).writes(frozenset({"position"})) == frozenset()
    assert Impulse().writes(frozenset({"position", "mlp_in"})) == {"position"}


def test_the_norm_belongs_to_the_width_of_heads():
    """Logits of random tokens have the spread that they have at the released heads of 64."""
    spreads = {}
    for width, norm in ((96, 7 / 2**0.5), (192, 7), (48, 3.5)):
        block = ones(kernels(width, 3, 3, width // 3))
        position = 0.02 * jax.random.normal(jax.random.key(1), (64, width))
        context = Context(position=position, grid=(8, 8))
        drawn, given = (scheme(KEY, block, context) for scheme in (Impulse(), Impulse(norm=norm)))
        for role in ("query", "key"):
            np.testing.assert_array_equal(drawn[role], given[role])
        tokens = np.random.default_rng(0).normal(size=(500, width))
        query, key = (np.einsum("nd,dhk->hnk", tokens, drawn[role]) for role in ("query", "key"))
        spreads[width] = (query @ key.swapaxes(1, 2)).std() / (width / 3) ** 0.5
    np.testing.assert_allclose([*spreads.values()], spreads[192], rtol=0.1)


D, RELEASED_HEADS = 20, 4
FAMILIES = {
    "mimetic": Mimetic.port(),
    "impulse": Impulse(norm=7.0),  # whatever the width of heads
    "impulse3_2_1": Impulse(position_scale=3.0, norm=2.0),
}


def flax(arrays, family):
    """The attention layer and position table of a family, as our ViT stores them."""

    def array(name):
        return arrays.get(f"{family}/{name}", arrays[f"before/{name}"])

    kernels = array("qkv.weight").T.reshape(D, 3, RELEASED_HEADS, D // RELEASED_HEADS)
    biases = array("qkv.bias").reshape(3, RELEASED_HEADS, D // RELEASED_HEADS)
    layer = {
        role: {"kernel": kernels[:, index], "bias": biases[index]}
        for index, role in enumerate(("query", "key", "value"))
    }
    out = array("proj.weight").T.reshape(RELEASED_HEADS, D // RELEASED_HEADS, D)
    layer["out"] = {"kernel": out, "bias": array("proj.bias")}
    tree = {"block_0": {"attention": layer}, "pos_embed": array("pos_embed")}
    return jax.tree.map(jnp.asarray, tree)


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


@pytest.mark.parametrize("family", FAMILIES)
def test_family(same_noise, family):
    start, expected = flax(same_noise, "before"), flax(same_noise, family)
    found = mimetic_jax.rewrite(jax.random.key(0), start, FAMILIES[family])
    ours, theirs = (
        {role: np.float64(leaf["kernel"]) for role, leaf in tree["block_0"]["attention"].items()}
        for tree in (found, expected)
    )

    def assert_close(of):
        got, want = of(ours), of(theirs)
        np.testing.assert_allclose(got, want, atol=1e-5 * np.abs(want).max())

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


@pytest.mark.parametrize("order", ["released", "scattered"])
def test_targets_are_where_heads_attend(order):
    """On positions alone; heads that share keys have one target."""
    position = 0.02 * jax.random.normal(jax.random.key(1), (36, 64))
    query, key = impulse_query_key(
        jax.random.key(2), position, (6, 6), 4, head_dim=32, num_kv_heads=2, order=order
    )
    maps = attention_maps(query, key, normalized(position))
    targets = Impulse(order=order).targets((6, 6), 4, 2)
    assert targets.shape == maps.shape
    assert aim(maps, targets).hits.min() > 0.95
    assert Impulse(order="random").targets((6, 6), 4, 2) is None
