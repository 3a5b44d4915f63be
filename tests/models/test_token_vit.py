"""The ViT's blocks on tokens: the same parameters, and attention to all of the word."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util

from mimetic_jax.models import TokenViT, ViT

KEY = jax.random.key(0)
SIZES = {"width": 12, "depth": 2, "heads": 3}
TOKENS = jnp.array([[0, 1, 4, 3, 6, 5], [2, 6, 0, 3, 1, 6]])


def blocks(model, inputs):
    shapes = traverse_util.flatten_dict(jax.eval_shape(model.init, KEY, inputs)["params"], sep="/")
    return {name: leaf.shape for name, leaf in shapes.items() if name.startswith("block")}


@pytest.mark.parametrize("form", [{}, {"scan": True}, {"qkv_bias": False, "fused_qkv": True}])
def test_blocks_are_those_of_the_vit(form):
    images = ViT(num_classes=5, patch=4, **SIZES, **form)
    tokens = TokenViT(vocab=6, **SIZES, **form)
    assert blocks(tokens, TOKENS) == blocks(images, jnp.ones((1, 8, 8, 3)))


def test_everything_else_is_embedding_positions_norm_and_head():
    params = jax.eval_shape(TokenViT(vocab=6, **SIZES).init, KEY, TOKENS)["params"]
    rest = {name: leaf for name, leaf in params.items() if not name.startswith("block")}
    assert jax.tree.map(jnp.shape, rest) == {
        "embedding": (7, 12),
        "pos_embed": (1, 6, 12),
        "norm": {"scale": (12,), "bias": (12,)},
        "head": {"kernel": (12, 6), "bias": (6,)},
    }


@pytest.mark.parametrize("vocab", [6, 40])
def test_the_embedding_is_orthogonal(vocab):
    model = TokenViT(vocab=vocab, **SIZES | {"depth": 0})
    table = np.asarray(jax.jit(model.init)(KEY, TOKENS)["params"]["embedding"])
    gram = table @ table.T if vocab < 12 else table.T @ table
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-5)


def test_without_blocks_it_is_embedding_positions_norm_and_head():
    model = TokenViT(vocab=6, **SIZES | {"depth": 0})
    logits, variables = jax.jit(model.init_with_output)(KEY, TOKENS)
    params = variables["params"]
    x = params["embedding"][TOKENS] + params["pos_embed"]
    x -= x.mean(-1, keepdims=True)
    x /= jnp.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
    expected = x @ params["head"]["kernel"] + params["head"]["bias"]
    np.testing.assert_allclose(logits, expected, atol=1e-5)


def test_every_token_sees_every_other():
    """Nothing is causal: another last token changes the logits of the first."""
    model = TokenViT(vocab=6, **SIZES | {"depth": 1}, base="torch")
    words = jnp.array([[0, 1, 4, 3, 6, 5], [0, 1, 4, 3, 6, 2]])
    logits, _ = jax.jit(model.init_with_output)(KEY, words)
    assert np.abs(logits[0] - logits[1]).max(-1).min() > 1e-5
