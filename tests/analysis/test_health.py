"""How networks start: numbers by hand, and a table for every model."""

from __future__ import annotations

import math
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax.analysis import health as analysis
from mimetic_jax.analysis.health import health
from mimetic_jax.models import Model, Traits
from tests.analysis.networks import drawn

VIT = {"num_classes": 5, "width": 16, "depth": 2, "heads": 2, "patch": 4}


def measured(name, inputs, change=lambda params: params, **fields):
    """Parameters with drawn kernels, the model's output, and its health."""
    made, variables = drawn(name, inputs, scale=0.1, plain=True, **fields)
    params = change(jax.device_get(variables["params"]))
    variables = {**variables, "params": params}

    def output():
        return np.asarray(jax.jit(lambda variables: made(variables, inputs)[0])(variables))

    return params, output, health(made, variables, inputs)


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).standard_normal((3, 8, 8, 1), np.float32)


def test_numbers_by_hand(images):
    params, output, found = measured("vit", images, **VIT)
    patches = images.reshape(3, 2, 4, 2, 4, 1).transpose(0, 1, 3, 2, 4, 5).reshape(3, 4, 16)
    x = patches @ params["patch_embed"]["kernel"] + params["patch_embed"]["bias"]
    x = np.concatenate([np.broadcast_to(params["cls_token"], (3, 1, 16)), x], axis=1)
    x += params["pos_embed"]
    first = found.layers["block_0"]
    assert first["input"] == pytest.approx(rms(x), rel=1e-4)
    centered = x - x.mean(-1, keepdims=True)
    normed = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-6)
    layer = params["block_0"]["attention"]
    query, key, value = (
        np.einsum("bnd,dhk->bhnk", normed, layer[role]["kernel"])
        for role in ("query", "key", "value")
    )
    maps = np.exp(query @ key.swapaxes(2, 3) / math.sqrt(8))
    maps /= maps.sum(-1, keepdims=True)
    assert first["entropy"] == pytest.approx(-(maps * np.log(maps)).sum(-1).mean(), rel=1e-4)
    assert first["tokens"] == 5
    mixed = np.einsum("bhnk,hkd->bnd", maps @ value, layer["out"]["kernel"])
    assert first["mixing"] == pytest.approx(rms(mixed), rel=1e-3)
    assert found.logits == pytest.approx(np.std(output(), axis=1).mean(), rel=1e-4)
    assert (first["dead"], first["stuck"]) == (0, 0)


def rms(x):
    return math.sqrt(np.square(x).mean())


def test_dead_units_and_stuck_rows(images):
    def broken(params):
        block = params["block_1"]
        bias = np.where(np.arange(64) < 16, -9.0, 0)
        mlp = {**block["mlp"], "fc1": {**block["mlp"]["fc1"], "bias": bias}}
        query = {**block["attention"]["query"], "bias": np.full((2, 8), 100.0)}
        key = {**block["attention"]["key"], "kernel": 50 * block["attention"]["key"]["kernel"]}
        attention = {**block["attention"], "query": query, "key": key}
        return {**params, "block_1": {**block, "mlp": mlp, "attention": attention}}

    _, _, found = measured("vit", images, broken, **VIT)
    assert found.layers["block_1"]["dead"] == 0.25  # 16 of 64
    assert found.layers["block_1"]["stuck"] > 0.5
    assert found.layers["block_1"]["entropy"] < 0.5
    assert found.layers["block_0"]["stuck"] == 0


@pytest.mark.parametrize(
    ("name", "fields", "columns"),
    [
        ("vit", VIT | {"scan": True, "fused_qkv": True}, {"mixing", "mlp", "dead", "entropy"}),
        (
            "swin",
            {"num_classes": 5, "width": 8, "depths": (1, 1), "downscaling": (2, 2)}
            | {"head_dim": 8, "window": 2, "scan": True},
            {"mixing", "mlp", "dead", "entropy"},
        ),
        (
            "mixer",
            {"num_classes": 5, "width": 8, "depth": 2, "patch": 4},
            {"mixing", "mlp", "dead"},
        ),
        ("convmixer", {"num_classes": 5, "width": 8, "depth": 2}, {"mixing", "mlp"}),
    ],
)
def test_every_model_has_its_columns(images, name, fields, columns):
    _, _, found = measured(name, images, **fields)
    more = {"tokens", "stuck"} if "entropy" in columns else set()
    assert len(found.layers) == 2
    for path, layer in found.layers.items():
        assert re.search(r"(^|/)block_\d$", path)
        assert set(layer) == {"input"} | columns | more
        assert all(math.isfinite(value) for value in layer.values())
        assert layer.get("entropy", 0) <= math.log(layer.get("tokens", 2)) + 1e-5


def test_a_single_token_has_no_entropy():
    one = {name: float(value) for name, value in analysis._attention(jnp.ones((2, 1, 1))).items()}
    assert analysis._table({"block_0": one})[1].split() == ["block_0", "0.00", "0.00", "100.0"]


class Stock(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.MultiHeadDotProductAttention(num_heads=2, name="look")(x)


def test_a_model_of_the_users_has_rows_for_its_attention():
    made, x = Model("own", Stock(), Traits()), jnp.ones((2, 4, 8))
    found = health(made, made.init(jax.random.key(0), x)[0], x)
    assert list(found.layers) == ["look"]
    assert found.layers["look"]["entropy"] == pytest.approx(math.log(4))  # equal tokens
    made = Model("own", nn.Dense(3), Traits())
    found = health(made, made.init(jax.random.key(0), x)[0], x)
    assert analysis._table(found.layers) == [
        "  no blocks named block_0, block_1 … and no attention in this model"
    ]


def test_a_text_model_has_logits():
    tokens = np.arange(12).reshape(2, 6)
    fields = {"vocab": 12, "width": 16, "depth": 1, "heads": 2, "scan": True}
    params, output, found = measured("gpt", tokens, **fields)
    logits = output() @ params["embedding"].T + params["decoder_bias"]
    assert found.logits == pytest.approx(np.std(logits, axis=-1).mean(), rel=1e-4)
    # Even attention to what a token may see: log 1, …, log 6.
    assert found.layers["block_0"]["entropy"] == pytest.approx(math.log(720) / 6, rel=0.05)


def test_convolutions_beside_attention_count_as_attention():
    even = analysis._attention(jnp.full((2, 2), -0.5) + 1.0)
    assert float(even["entropy"]) == pytest.approx(math.log(2))
    cancelled = analysis._attention(jnp.array([[2.0, 0.0], [-1.0, 1.0]]))
    assert float(cancelled["entropy"]) == pytest.approx(math.log(2) / 2)
    assert float(cancelled["stuck"]) == 0.5
