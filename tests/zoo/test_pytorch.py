"""Models in PyTorch by the names of their state dicts: what is found, what is left alone, and where
heads are stored. The real modules are called in tests/test_torch.py."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from mimetic_jax import InputError, plan, rewrite, zoo
from mimetic_jax.schemes import Mimetic

KEY = jax.random.key(2)
D, H, G, K, F = 32, 4, 2, 8, 64
SQUARE, NARROW, WIDE = (D, D), (G * K, D), (3 * D, D)


def weights(layer, **shapes):
    """A state dict, from names with "__" for "."."""
    random = np.random.default_rng(0)
    return {
        f"{layer}.{name.replace('__', '.')}": random.standard_normal(shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def four(block, letters, out, narrow=SQUARE):
    """Weights of query, key, value and of an output, which may be in another module."""
    shapes = {f"{block}__{name}": narrow for name in letters} | {f"{block}__{letters[0]}": SQUARE}
    shapes[f"{block}__{out}" if "__" not in out else out] = SQUARE
    return {f"{name}__weight": shape for name, shape in shapes.items()}


QKV, NAMES = ("q_proj", "k_proj", "v_proj"), ("query", "key", "value")
MHA = {"in_proj_weight": WIDE, "in_proj_bias": (3 * D,), "out_proj__weight": SQUARE}
# By model: the state dict of a layer, and names in those of its attention that is left alone.
MODELS = {
    "timm": (weights("blocks.0", attn__qkv__weight=WIDE, attn__proj__weight=SQUARE), ""),
    "torch decoder": (
        weights(
            "layers.0",
            **{
                f"{name}__{x}": y
                for name in ("self_attn", "multihead_attn")
                for x, y in MHA.items()
            },
        ),
        "multihead_attn",
    ),
    "torchvision": (
        weights(
            "encoder.layers.encoder_layer_0",
            **{f"self_attention__{name}": shape for name, shape in MHA.items()},
        ),
        "",
    ),
    "Llama": (weights("model.layers.0", **four("self_attn", QKV, "o_proj", NARROW)), ""),
    "Phi-3": (
        weights(
            "model.layers.0",
            self_attn__qkv_proj__weight=((H + 2 * G) * K, D),
            self_attn__o_proj__weight=SQUARE,
        ),
        "",
    ),
    "ViT of transformers 5": (weights("vit.layers.0", **four("attention", QKV, "o_proj")), ""),
    "Whisper": (
        weights(
            "decoder.layers.0",
            **four("self_attn", QKV, "out_proj"),
            **four("encoder_attn", QKV, "out_proj"),
        ),
        "encoder_attn",
    ),
    "CLIP": (
        weights("text_model.layers.0", **four("self_attn", QKV, "out_proj"))
        | weights("vision_model.layers.0", **four("self_attn", QKV, "out_proj")),
        "vision_model",
    ),
    "BERT": (
        weights(
            "encoder.layer.0",
            **four("attention__self", NAMES, "attention__output__dense"),
            **four("crossattention__self", NAMES, "crossattention__output__dense"),
        ),
        "crossattention",
    ),
    "DistilBERT": (
        weights("layer.0", **four("attention", ("q_lin", "k_lin", "v_lin"), "out_lin")),
        "",
    ),
    "GPT-Neo": (weights("h.0", **four("attn__attention", QKV, "out_proj")), ""),
    "GPT-NeoX": (
        weights(
            "layers.0",
            attention__query_key_value__weight=WIDE,
            attention__dense__weight=SQUARE,
        ),
        "",
    ),
    "T5": (
        weights("block.0.layer.0", **four("SelfAttention", ("q", "k", "v"), "o"))
        | weights("block.0.layer.1", **four("EncDecAttention", ("q", "k", "v"), "o")),
        "EncDecAttention",
    ),
    "Jamba": (
        weights("layers.0", mamba__in_proj__weight=(F, D))
        | weights("layers.1", **four("self_attn", QKV, "o_proj", NARROW)),
        "mamba",
    ),
}
GROUPED = {"Llama", "Phi-3", "Jamba"}


@pytest.mark.parametrize("name", MODELS)
def test_attention_is_found_and_nothing_else_is_written(name):
    tree, alone = MODELS[name]
    found = plan(tree, Mimetic(), num_heads=H, num_kv_heads=G if name in GROUPED else None)
    assert found.table == "PYTORCH"
    assert {"query", "key", "value", "out"} <= {write.role for write in found}
    assert set(found.untouched) == {
        path for path in tree if alone and alone in path and path.endswith("weight")
    }


def test_gpt2_stores_its_weights_the_other_way():
    tree = weights("h.0", attn__c_attn__weight=(D, 3 * D), attn__c_proj__weight=SQUARE)
    new = rewrite(KEY, tree, Mimetic(), num_heads=H)
    value = new["h.0.attn.c_attn.weight"][:, 2 * D :]
    assert (value @ new["h.0.attn.c_proj.weight"]).diagonal().mean() == pytest.approx(-0.4, abs=0.1)
    assert zoo.detect(tree) == "PYTORCH_GPT2"


def alignments(query, key):
    """Of each head, from weights [H K, D]."""
    heads = zip(query.reshape(H, K, D), key.reshape(H, K, D), strict=True)
    return [float(np.einsum("kd,kd->", q, k)) / K for q, k in heads]


def test_the_heads_of_gpt_neox_hold_query_key_and_value_each():
    new = rewrite(KEY, MODELS["GPT-NeoX"][0], Mimetic(), num_heads=H)
    fused = new["layers.0.attention.query_key_value.weight"].reshape(H, 3, K, D)
    query, key, value = np.moveaxis(fused, 1, 0)
    assert min(alignments(query, key)) > 0.9
    product = new["layers.0.attention.dense.weight"] @ value.reshape(D, D)
    assert product.diagonal().mean() == pytest.approx(-0.4, abs=0.1)


@pytest.mark.parametrize("name", ["T5", "GPT-Neo"])
def test_models_that_do_not_divide_logits_have_the_logits_of_others(name):
    names = {
        "T5": "block.0.layer.0.SelfAttention.{}.weight",
        "GPT-Neo": "h.0.attn.attention.{}_proj.weight",
    }[name]
    new = rewrite(KEY, MODELS[name][0], Mimetic(), num_heads=H)
    found = np.array(alignments(new[names.format("q")], new[names.format("k")]))
    assert found.min() > 0.9 / K**0.5
    assert found.max() < 1.6 / K**0.5


def test_windows_show_their_heads():
    """The stages of a Swin have other numbers of heads, which its tables of biases have."""
    tree = {}
    for stage, heads in enumerate((2, 4)):
        width = 8 * heads
        tree |= weights(
            f"layers.{stage}.blocks.0",
            attn__relative_position_bias_table=(169, heads),
            attn__qkv__weight=(3 * width, width),
            attn__proj__weight=(width, width),
        )
    new = rewrite(KEY, tree, Mimetic())
    for stage, heads in enumerate((2, 4)):
        query, key, _ = np.split(new[f"layers.{stage}.blocks.0.attn.qkv.weight"], 3)
        for q, k in zip(np.split(query, heads), np.split(key, heads), strict=True):
            assert np.einsum("kd,kd->", q, k) / 8 > 0.9


def test_heads_that_do_not_fit_are_an_error():
    with pytest.raises(InputError, match="num_heads 5 does not divide the 96 columns"):
        plan(MODELS["timm"][0], Mimetic(), num_heads=5)
