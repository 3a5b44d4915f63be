from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax import InputError
from mimetic_jax.models import ViT

KEY = jax.random.key(0)
SMALL = {"num_classes": 5, "width": 24, "depth": 2, "heads": 3, "patch": 4}


def images(batch=2, side=8, channels=3):
    return jax.random.normal(jax.random.key(1), (batch, side, side, channels))


def test_vit_tiny_has_timms_number_of_parameters():
    """vit_tiny_patch16_224 of timm and DeiT: 5 717 416."""
    model = ViT(num_classes=1000, width=192, depth=12, heads=3, patch=16)
    shapes = jax.eval_shape(model.init, KEY, jnp.zeros((1, 224, 224, 3)))
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == 5_717_416


def test_patch_embedding_is_the_strided_convolution():
    x, p = images(), 4
    model = ViT(**{**SMALL, "depth": 0, "pool": "mean"})
    params = model.init(KEY, x)["params"]
    kernel = params["patch_embed"]["kernel"].reshape(p, p, 3, 24)
    convolved = jax.lax.conv_general_dilated(
        x, kernel, (p, p), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    tokens = convolved.reshape(2, 4, 24) + params["patch_embed"]["bias"] + params["pos_embed"]
    centred = tokens - tokens.mean(-1, keepdims=True)
    normed = centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
    expected = normed.mean(1) @ params["head"]["kernel"] + params["head"]["bias"]
    np.testing.assert_allclose(model.apply({"params": params}, x), expected, atol=1e-5)


def test_mean_pooling_without_positions_ignores_the_order_of_patches():
    """Attention and MLP see a set: only the position table tells the patches apart."""
    model = ViT(**SMALL, pool="mean")
    x = images()
    params = model.init(KEY, x)["params"]
    swapped = jnp.concatenate([x[:, 4:], x[:, :4]], axis=1)
    assert not np.allclose(
        model.apply({"params": params}, x), model.apply({"params": params}, swapped)
    )
    params["pos_embed"] = jnp.zeros_like(params["pos_embed"])
    np.testing.assert_allclose(
        model.apply({"params": params}, x), model.apply({"params": params}, swapped), atol=1e-5
    )


@pytest.mark.parametrize("pool", ["token", "mean"])
def test_class_token(pool):
    params = ViT(**SMALL, pool=pool).init(KEY, images())["params"]
    assert params["pos_embed"].shape == (1, 4 + (pool == "token"), 24)
    assert ("cls_token" in params) == (pool == "token")


def test_base_initializations():
    big = {**SMALL, "width": 192}
    timm = ViT(**big).init(KEY, images())["params"]
    torch = ViT(**big, base="torch").init(KEY, images())["params"]
    query = timm["block_0"]["attention"]["query"]
    assert float(query["kernel"].std()) == pytest.approx(0.02, rel=0.02)
    assert not query["bias"].any()
    for layer, fan_in in (("query", 192), ("out", 192)):
        for leaf in torch["block_0"]["attention"][layer].values():
            bound = fan_in**-0.5
            assert float(jnp.abs(leaf).max()) <= bound
            assert float(leaf.std()) == pytest.approx(bound / 3**0.5, rel=0.15)
    hidden = torch["block_0"]["mlp"]["fc2"]["bias"]
    assert float(jnp.abs(hidden).max()) <= (4 * 192) ** -0.5
    assert float(torch["pos_embed"].std()) == pytest.approx(0.02, rel=0.2)


def test_bfloat16_computes_close_to_float32():
    x = images()
    variables = ViT(**SMALL).init(KEY, x)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(variables))
    exact = ViT(**SMALL).apply(variables, x)
    rough = ViT(**SMALL, dtype=jnp.bfloat16).apply(variables, x)
    assert rough.dtype == jnp.float32
    np.testing.assert_allclose(exact, rough, atol=0.02)
    assert not np.array_equal(exact, rough)


def test_stochastic_depth_drops_whole_samples():
    model = ViT(**SMALL, drop_path=0.9)
    x = jnp.broadcast_to(images(1), (64, 8, 8, 3))
    variables = model.init(KEY, x)
    same = model.apply(variables, x)
    np.testing.assert_allclose(same, same[:1].repeat(64, 0), atol=1e-5)
    dropped = model.apply(variables, x, train=True, rngs={"dropout": KEY})
    assert 2 <= len(np.unique(np.round(dropped, 4), axis=0)) <= 8


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"heads": 5}, "heads 5 does not divide width 24"),
        ({"patch": 3}, "patch 3 does not divide the image 8x8"),
        ({"pool": "max"}, "unknown pool 'max'"),
        ({"base": "tim"}, "did you mean 'timm'"),
    ],
)
def test_bad_input(change, words):
    model = ViT(**{**SMALL, **change})
    with pytest.raises(InputError, match=words):
        jax.eval_shape(model.init, KEY, images())
