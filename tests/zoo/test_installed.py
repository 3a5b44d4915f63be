"""Layers of other libraries, rewritten in one line and then called.

These libraries aren't among our own requirements: `pip install equinox dm-haiku keras`.
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax import block_key, check, rewrite, zoo
from mimetic_jax.schemes import Block, Context, Mimetic

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

KEY = jax.random.key(7)
D, T = 32, 6
SCHEME = Mimetic(alpha_vo=0.1, beta_vo=(-0.4, 0.4))


def equinox_layers(H, G, K):
    """The function that calls both layers on the same tokens, and the paths of the layers."""
    equinox = pytest.importorskip("equinox")

    class Model(equinox.Module):
        attention: list
        mlp: equinox.nn.MLP

    sizes = {"qk_size": K, "vo_size": K, "use_query_bias": True, "use_output_bias": True}
    layers = [equinox.nn.MultiheadAttention(H, D, **sizes, key=jax.random.key(i)) for i in range(2)]
    model = Model(layers, equinox.nn.MLP(D, D, 2 * D, 1, key=jax.random.key(2)))
    model = rewrite(KEY, model, SCHEME, rules=zoo.EQUINOX, num_heads=H)
    assert model.mlp.activation is not None
    assert "aligned with +I in 1, with -I in 1" in str(check(model, rules=zoo.EQUINOX, num_heads=H))
    return lambda x: [layer(x, x, x) for layer in model.attention], ("attention/0", "attention/1")


def haiku_layers(H, G, K):
    haiku = pytest.importorskip("haiku")
    w_init = haiku.initializers.VarianceScaling()

    def both(x):
        layers = [haiku.MultiHeadAttention(H, K, w_init=w_init, model_size=D) for _ in range(2)]
        outputs = [layer(x, x, x) for layer in layers]
        haiku.Linear(D)(x)  # named linear, as the projection of attention
        return outputs

    model = haiku.without_apply_rng(haiku.transform(both))
    before = model.init(jax.random.key(0), jnp.ones((T, D)))
    params = rewrite(KEY, before, SCHEME, rules=zoo.HAIKU, num_heads=H)
    np.testing.assert_array_equal(params["linear"]["w"], before["linear"]["w"])
    names = ("multi_head_attention", "multi_head_attention_1")
    return lambda x: model.apply(params, x), names


def keras_layers(H, G, K):
    os.environ.setdefault("KERAS_BACKEND", "jax")
    keras = pytest.importorskip("keras")
    if keras.backend.backend() != "jax":
        pytest.skip("Keras runs on another backend")
    keras.utils.clear_session()
    tokens = keras.Input((T, D))
    if G == H:
        layers = [keras.layers.MultiHeadAttention(H, K) for _ in range(2)]
    else:
        layers = [keras.layers.GroupQueryAttention(K, H, G) for _ in range(2)]
    model = keras.Model(tokens, [layer(tokens, tokens) for layer in layers])
    params = {variable.path: variable.value for variable in model.trainable_variables}
    params = rewrite(KEY, params, SCHEME, rules=zoo.KERAS)
    for variable in model.trainable_variables:
        variable.assign(params[variable.path])
    return lambda x: [layer(x[None], x[None])[0] for layer in layers], [x.path for x in layers]


LAYERS = {"equinox": equinox_layers, "haiku": haiku_layers, "keras": keras_layers}
SIZES = {
    **{
        f"{name}_{H}_heads": (build, H, H, D // H) for name, build in LAYERS.items() for H in (1, 4)
    },
    "keras_grouped": (keras_layers, 4, 2, 16),
}

every_layer = pytest.mark.parametrize(("build", "H", "G", "K"), SIZES.values(), ids=SIZES.keys())


def attend(block, x):
    """Attention of the canonical arrays that the scheme drew."""
    groups = block["query"].shape[1] // block["key"].shape[1]
    query = jnp.einsum("td,dhk->thk", x, block["query"])
    key, value = (
        jnp.einsum("td,dhk->thk", x, block[role].repeat(groups, 1)) for role in ("key", "value")
    )
    logits = jnp.einsum("thk,shk->hts", query, key) / block["query"].shape[2] ** 0.5
    return jnp.einsum("hts,shk,hkd->td", jax.nn.softmax(logits), value, block["out"])


@every_layer
def test_a_layer_computes_with_what_the_scheme_drew(build, H, G, K):
    layers, paths = build(H, G, K)
    shapes = {"query": (D, H, K), "key": (D, G, K), "value": (D, G, K), "out": (H, K, D)}
    block = Block.of({role: jnp.zeros(shape) for role, shape in shapes.items()})
    x = 3 * jax.random.normal(jax.random.key(1), (T, D))
    for layer, (output, path) in enumerate(zip(layers(x), paths, strict=True)):
        drawn = SCHEME(block_key(KEY, path), block, Context(layer, 2))
        np.testing.assert_allclose(output, attend(drawn, x), atol=2e-5)


@every_layer
def test_the_law_is_in_what_a_layer_puts_out(build, H, G, K):
    """A token alone attends to itself, so that the layer is the value → out map."""
    layers, _ = build(H, G, K)
    rows = [layers(row[None]) for row in jnp.eye(D)]
    maps = [np.concatenate([row[layer] for row in rows]) for layer in range(2)]
    alignment = 0.4 if H == G else 0.15
    assert maps[0].diagonal().mean() < -alignment + 0.05
    assert maps[1].diagonal().mean() > alignment - 0.05
    # By its queries and keys a token of several attends most to itself.
    if H == 1:
        tokens = 12 * jnp.eye(D)[:T]
        for output, value_out in zip(layers(tokens), maps, strict=True):
            weights = output @ np.linalg.inv(value_out) / 12
            assert weights[:, :T].diagonal().mean() > 0.9
