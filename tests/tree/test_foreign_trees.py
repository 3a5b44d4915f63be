"""Trees as other programs write them: what their names don't tell is refused, or asked for."""

import dataclasses
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import serialization

import mimetic_jax
from mimetic_jax import InputError, attention_rules
from mimetic_jax.command.expressions import parse_rules
from mimetic_jax.schemes import MeanShift, Mimetic
from mimetic_jax.tree.rules import ROLES

D, H, K = 16, 2, 8
WIDE = {"query": (D, H, K), "key": (D, H, K), "value": (D, H, K), "out": (H, K, D)}


def stock():
    layer = nn.MultiHeadDotProductAttention(H)
    return layer.init(jax.random.key(0), jnp.ones((1, 5, D)))["params"]


@pytest.mark.parametrize("bias", [False, True])
def test_an_order_that_no_shape_tells_is_asked_for(bias):
    """Query, key and value one after another, or head by head: both have the same columns."""
    tree = {"mixing.Wqkv.weight": jnp.zeros((3 * D, D)), "mixing.out_lin.weight": jnp.zeros((D, D))}
    if bias:
        tree |= {"mixing.Wqkv.bias": jnp.zeros(3 * D), "mixing.out_lin.bias": jnp.zeros(D)}
    with pytest.raises(InputError, match="with by_head=True in the call") as refused:
        mimetic_jax.plan(tree, Mimetic())
    call = re.search(r"rules=(attention_rules\(.*?\)), num_heads=…, if", str(refused.value))[1]
    for option, layout in (("", "(three h k) d"), (", by_head=True", "(h three k) d")):
        rules = parse_rules(call.replace(")", f"{option})"))
        planned = mimetic_jax.plan(tree, Mimetic(), rules=rules, num_heads=H)
        assert {write.path for write in planned} == tree.keys()
        assert layout in {write.layout for write in planned}


@pytest.mark.parametrize("names", [("q_proj", "k_proj", "v_proj", "o_proj"), tuple(ROLES)[:4]])
def test_one_error_has_all_that_stacked_layers_need(names):
    tree = {"layers": {name: {"kernel": jnp.zeros((3, D, D))} for name in names}}
    with pytest.raises(InputError, match="num_heads=…") as refused:
        mimetic_jax.plan(tree, Mimetic())
    call = re.search(r"rules=(attention_rules\(.*?\)), num_heads", str(refused.value))[1]
    rules = eval(call, {"attention_rules": attention_rules})
    planned = mimetic_jax.plan(tree, Mimetic(), rules=rules, num_heads=H)
    assert {write.layout for write in planned} == {"l d (h k)", "l d (g k)", "l (h k) d"}


def test_advice_keeps_the_rules_of_the_rest():
    tree = {"attn": stock(), "own": {}}
    for name in ("to_q", "to_k", "to_v", "to_o", "q_proj"):
        tree["own"][name] = {"kernel": jnp.zeros((D, D))}
    del tree["own"]["q_proj"]
    with pytest.raises(InputError, match="num_heads=…; if it is no") as refused:
        mimetic_jax.plan(tree, Mimetic())
    call = re.search(r"give rules=(.*), num_heads=…; if it is", str(refused.value))[1]
    planned = mimetic_jax.plan(tree, Mimetic(), rules=parse_rules(call), num_heads=H)
    assert {write.path for write in planned} == {f"own/to_{x}/kernel" for x in "qkvo"} | {
        f"attn/{role}/{leaf}" for role in WIDE for leaf in ("kernel", "bias")
    }


def test_layers_that_are_stacked_twice_are_drawn_under_vmap():
    layer = {name: {"kernel": jnp.zeros((2, 3, *shape))} for name, shape in WIDE.items()}
    with pytest.raises(InputError, match=r"jax\.vmap\(.*jax\.random\.split\(key, 2\)"):
        mimetic_jax.plan(layer, Mimetic())
    keys = jax.random.split(jax.random.key(0), 2)
    new = jax.vmap(lambda key, params: mimetic_jax.rewrite(key, params, Mimetic()))(keys, layer)
    flat = jax.tree.map(lambda leaf: leaf.reshape(6, *leaf.shape[2:]), new)
    assert [found.value_out < -0.3 for found in mimetic_jax.check(flat)] == 6 * [True]


GATED = {"q_proj": (128, 64), "k_proj": (32, 64), "v_proj": (32, 64), "o_proj": (64, 64)}


@pytest.mark.parametrize("heads", [4, 8])
def test_gates_beside_queries_are_refused(heads):
    """Qwen3-Next's q_proj makes a gate beside each query: 4 heads of 16, 2 of key and value."""
    tree = {f"self_attn.{name}.weight": jnp.zeros(shape) for name, shape in GATED.items()}
    with pytest.raises(InputError, match=r"128 columns, twice the 64 .* gates") as refused:
        mimetic_jax.plan(tree, Mimetic(), num_heads=heads, num_kv_heads=2)
    assert "num_kv_heads" not in str(refused.value)
    plain = {"layers.0." + name: leaf for name, leaf in tree.items()}
    plain["layers.0.self_attn.q_proj.weight"] = jnp.zeros((64, 64))
    gated = {"layers.0.linear." + name: leaf for name, leaf in tree.items()}
    advice = str(refused.value).rpartition("rules=")[2].replace("^self_attn", "^layers/0/linear")
    planned = mimetic_jax.plan(
        plain | gated, Mimetic(), num_heads=4, num_kv_heads=2, rules=parse_rules(advice)
    )
    assert {write.path for write in planned} == plain.keys()


def test_attention_of_several_widths_has_no_one_number_of_heads():
    """The stages of a Swin V2 have 3, 6 and 12 heads, of which its weights show nothing."""
    tree = {}
    for stage, width in enumerate((96, 192)):
        tree[f"layers.{stage}.blocks.0.attn.qkv.weight"] = jnp.zeros((3 * width, width))
        tree[f"layers.{stage}.blocks.0.attn.proj.weight"] = jnp.zeros((width, width))
    shown = r"width 96 .* width 192, .* than 3: leave one"
    with pytest.raises(InputError, match=shown):
        mimetic_jax.plan(tree, Mimetic(), num_heads=3)
    with pytest.raises(InputError, match=shown):
        mimetic_jax.check(tree, num_heads=3)
    rules = tuple(
        dataclasses.replace(rule, heads=heads, within=rf"layers/{stage}/")
        for stage, heads in enumerate((3, 6))
        for rule in attention_rules(
            fused="attn/qkv", out="attn/proj", kernel="weight", flat=True, transposed=True
        )
    )
    assert len(mimetic_jax.plan(tree, Mimetic(), rules=rules)) == 8


@pytest.mark.parametrize("part", ["visual", "audio_tower", "resampler", "vision_tower", "qformer"])
def test_a_part_beside_text_stays(part):
    """It has a number of heads of its own, or is attention between two models."""
    layer = {"in_proj_weight": (3 * D, D), "out_proj.weight": (D, D)}
    tree = {f"resblocks.0.attn.{name}": jnp.zeros(shape) for name, shape in layer.items()}
    whole = tree | {f"{part}.{name}": leaf for name, leaf in tree.items()}
    assert {write.path for write in mimetic_jax.plan(whole, Mimetic(), num_heads=H)} == tree.keys()
    with pytest.raises(InputError, match="left out by its name"):
        mimetic_jax.plan({f"{part}.{k}": v for k, v in tree.items()}, Mimetic(), num_heads=H)


@pytest.mark.parametrize("prefix", ["", "0.", "mha.", "layer."])
def test_attention_of_torch_has_any_name(prefix):
    shapes = {"in_proj_weight": (3 * D, D), "in_proj_bias": (3 * D,), "out_proj.bias": (D,)}
    shapes["out_proj.weight"] = (D, D)
    tree = {prefix + name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    tree["mixer.out_proj.weight"] = np.ones((D, D), np.float32)
    new = mimetic_jax.rewrite(jax.random.key(0), tree, Mimetic(), num_heads=H)
    assert mimetic_jax.check(new, num_heads=H)[0].value_out < -0.3
    assert not new[f"{prefix}out_proj.bias"].any()
    assert new["mixer.out_proj.weight"].all()


@pytest.mark.parametrize(
    "scale",
    ["weight_scale", "weight_scale_inv", "weight.absmax", "SCB", "scales", "input_scale"],
)
def test_kernels_with_scales_beside_them_are_refused(scale):
    tree = {f"self_attn.{name}_proj.weight": jnp.zeros((D, D)) for name in "qkvo"}
    tree |= {"self_attn.logit_scale": jnp.ones(H), "self_attn.scale": jnp.ones(1)}
    assert mimetic_jax.plan(tree, Mimetic(), num_heads=H)
    for name in ("q_proj", "o_proj"):
        scaled = tree | {f"self_attn.{name}.{scale}": jnp.ones(D)}
        with pytest.raises(InputError, match=f"scaled by self_attn.{name}.{scale}, which"):
            mimetic_jax.plan(scaled, Mimetic(), num_heads=H)


def test_towers_have_a_depth_each():
    scheme = Mimetic(beta_vo=(-0.2, -0.4))
    for names in (("tower1", "tower2"), ("towers/0", "towers/1"), ("Encoder_0", "Encoder_1")):
        layers = [f"{name}/block_{layer}" for name in names for layer in range(2)]
        tree = {
            f"{layer}/{name}/kernel": jnp.zeros(WIDE[name]) for layer in layers for name in WIDE
        }
        planned = mimetic_jax.plan(tree, scheme)
        assert [of for _, of in planned.depth] == [tuple(layers[:2]), tuple(layers[2:])]
    stages = [f"stage_{stage}/block_{layer}" for stage in range(2) for layer in range(2)]
    tree = {f"{layer}/{name}/kernel": jnp.zeros(WIDE[name]) for layer in stages for name in WIDE}
    with pytest.raises(InputError, match="2 values for 4 layers"):
        mimetic_jax.plan(tree, scheme)


def test_a_classifier_with_the_names_of_an_mlp_is_not_taken_for_one():
    """An MLP's output is as wide as its input, and a classifier's isn't."""
    tree = {"fc1": {"kernel": jnp.ones((128, 32))}, "fc2": {"kernel": jnp.ones((32, 10))}}
    tree["block_0"] = {"fc1": {"kernel": jnp.ones((D, 32))}, "fc2": {"kernel": jnp.ones((32, D))}}
    with pytest.raises(InputError, match="no MLP whose output is as wide") as refused:
        mimetic_jax.plan(tree, MeanShift())
    rules = parse_rules(str(refused.value).rpartition("rules=")[2])
    [write] = mimetic_jax.plan(tree, MeanShift(), rules=rules)
    assert write.path == "block_0/fc1/kernel"


@pytest.mark.parametrize("partitioned", ["kernel_init", "bias_init"])
def test_boxes_that_a_checkpoint_gives_back_as_dictionaries(partitioned):
    """Restored without a target, a box is the key "value" above its array: the draws are equal."""
    given = {"kernel_init": nn.initializers.lecun_normal(), "bias_init": nn.initializers.ones}
    axes = ("embed", "heads", "kv") if partitioned == "kernel_init" else ("heads", "kv")
    given[partitioned] = nn.with_partitioning(given[partitioned], axes)
    if partitioned == "bias_init":
        given["out_bias_init"] = nn.initializers.ones
    layer = nn.MultiHeadDotProductAttention(H, **given)
    boxed = layer.init(jax.random.key(0), jnp.ones((1, 5, D)))["params"]
    restored = serialization.msgpack_restore(serialization.to_bytes(boxed))
    plain = mimetic_jax.rewrite(jax.random.key(1), nn.unbox(boxed), Mimetic())
    new = mimetic_jax.rewrite(jax.random.key(1), restored, Mimetic())
    assert "value" in new["query"][partitioned.removesuffix("_init")]
    jax.tree.map(np.testing.assert_array_equal, jax.tree.leaves(new), jax.tree.leaves(plain))
