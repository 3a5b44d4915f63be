import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from mimetic_jax import InputError
from mimetic_jax.analysis.attention import attention_maps
from mimetic_jax.models import Model, Traits
from tests.analysis.networks import drawn
from tests.models.values import stacked

SMALL = {"width": 8, "depth": 2, "heads": 2, "patch": 4}
SWIN = {"width": 8, "depths": (2,), "downscaling": (2,), "head_dim": 4, "window": 2}
TOKENS = jnp.arange(12).reshape(2, 6) % 7


def images(batch=2, side=8):
    return np.random.default_rng(2).normal(size=(batch, side, side, 3)).astype(np.float32)


def layer_norm(x, norm, epsilon=1e-6):
    centered = x - x.mean(-1, keepdims=True)
    scaled = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + epsilon)
    return scaled * norm["scale"] + norm["bias"]


def dense(x, layer):
    return x @ layer["kernel"] + layer["bias"]


def by_hand(params, pixels, patch, image_maps):
    """Attention maps [H, N, N] of a ViT on one image, in float64."""
    side = pixels.shape[0] // patch
    x = pixels.reshape(side, patch, side, patch, 3).transpose(0, 2, 1, 3, 4)
    x = dense(x.reshape(side**2, -1), params["patch_embed"])
    x = np.concatenate([params["cls_token"][0], x]) + params["pos_embed"][0]
    for layer in range(2):
        block = params[f"block_{layer}"]
        tokens, kernels = layer_norm(x, block["norm1"]), block["attention"]
        query, key, value = (
            np.einsum("nd,dhk->hnk", tokens, kernels[role]["kernel"])
            + kernels[role]["bias"][:, None]
            for role in ("query", "key", "value")
        )
        weights = scipy.special.softmax(query @ key.swapaxes(1, 2) / query.shape[-1] ** 0.5, -1)
        image_maps[layer].append(weights)
        mixed = np.einsum("hnk,hkd->nd", weights @ value, kernels["out"]["kernel"])
        x = x + mixed + kernels["out"]["bias"]
        hidden = dense(layer_norm(x, block["norm2"]), block["mlp"]["fc1"])
        hidden *= scipy.special.ndtr(hidden)
        x = x + dense(hidden, block["mlp"]["fc2"])


def test_maps_are_those_of_the_formula():
    """In both layers: so what enters the second isn't changed by reading the first."""
    model, variables = drawn("vit", images(), **SMALL)
    got = attention_maps(model, variables, images())
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), variables["params"])
    expected = [], []
    for pixels in np.asarray(images(), np.float64):
        by_hand(params, pixels, 4, expected)
    for layer in range(2):
        assert np.ptp(got[layer]) > 0.1
        np.testing.assert_allclose(got[layer], np.mean(expected[layer], axis=0), atol=2e-6)


@pytest.mark.parametrize(
    ("name", "fields", "inputs"),
    [
        ("vit", SMALL, images()),
        ("gpt", {"width": 8, "depth": 2, "heads": 2}, TOKENS),
        ("swin", SWIN, images()),
    ],
)
def test_loops_fusion_and_half_precision_are_the_same_function(name, fields, inputs):
    model, variables = drawn(name, inputs, **fields)
    expected = attention_maps(model, variables, inputs)
    fast = {"scan": True, "remat": True, "dtype": "bfloat16"}
    looped = Model.of(name, {**fields, **fast}, num_classes=3, vocab=7)
    got = attention_maps(looped, stacked(variables), inputs)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("form", ["microsoft", "cifar"])
def test_windows(form):
    """Rows sum to 1; where content says nothing the map is that of the biases."""
    model, variables = drawn("swin", images(), form=form, **SWIN)
    first, shifted = attention_maps(model, variables, images())
    assert first.shape == shifted.shape == (2, 4, 4)
    np.testing.assert_allclose(np.sum([first, shifted], axis=-1), 1, atol=1e-5)
    attention = variables["params"]["stage_0"]["block_0"]["attention"]
    attention["query"] = jax.tree.map(jnp.zeros_like, attention["query"])
    got, _ = attention_maps(model, variables, images())
    at = np.stack(np.divmod(np.arange(4), 2), -1)
    row, column = np.moveaxis(at - at[:, None] + 1, -1, 0)  # key − query
    if form == "cifar":
        bias = np.asarray(attention["shared_bias"])[row, column][None]
    else:
        table = np.asarray(attention["relative_bias"]).reshape(3, 3, 2)
        bias = table[2 - row, 2 - column].transpose(2, 0, 1)
    expected = np.broadcast_to(scipy.special.softmax(bias, -1), got.shape)
    np.testing.assert_allclose(got, expected, atol=1e-6)


def test_text_attends_to_the_past():
    model, variables = drawn("gpt", TOKENS, width=8, depth=1, heads=2)
    (got,) = attention_maps(model, variables, TOKENS)
    assert np.all(got[:, *np.triu_indices(6, 1)] == 0)
    np.testing.assert_allclose(got.sum(-1), 1, atol=1e-5)


class Block(nn.Module):
    """Of a user's model, with Flax's own layer."""

    @nn.compact
    def __call__(self, x, _=None):
        return x + nn.MultiHeadDotProductAttention(num_heads=2)(x), None


class Own(nn.Module):
    """A user's model, whose blocks may be called inside a transformation."""

    how: str = ""

    @nn.compact
    def __call__(self, x):
        if self.how == "scan":
            split = {"variable_axes": {"params": 0}, "split_rngs": {"params": True}}
            return nn.scan(Block, length=2, **split)()(x, None)[0]
        return {"": Block, "remat": nn.remat(Block), "jit": nn.jit(Block)}[self.how]()(x)[0]


def test_flax_own_layer():
    tokens = jax.random.normal(jax.random.key(0), (2, 5, 8))
    model = Model("own", Own(), Traits())
    variables, _ = jax.jit(model.init)(jax.random.key(0), tokens)
    (got,) = attention_maps(model, variables, tokens)
    layer = variables["params"]["Block_0"]["MultiHeadDotProductAttention_0"]
    query, key = (jnp.einsum("bnd,dhk->bhnk", tokens, layer[r]["kernel"]) for r in ("query", "key"))
    expected = jax.nn.softmax(query @ key.swapaxes(2, 3) / 2, axis=-1).mean(0)
    np.testing.assert_allclose(got, expected, atol=1e-6)


@pytest.mark.parametrize("how", ["remat", "scan", "jit"])
def test_attention_inside_a_transformation_is_named(how):
    tokens = jax.random.normal(jax.random.key(0), (2, 5, 8))
    model = Model("own", Own(how), Traits())
    variables, _ = model.init(jax.random.key(0), tokens)
    with pytest.raises(InputError, match=r"attention inside nn\.remat, nn\.scan or nn\.jit"):
        attention_maps(model, variables, tokens)
