"""Trees as other programs write them: what their names don't tell is refused, or asked for."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import serialization

import mimetic_jax
from mimetic_jax import InputError
from mimetic_jax.schemes import Mimetic

D, H, K = 16, 2, 8
WIDE = {"query": (D, H, K), "key": (D, H, K), "value": (D, H, K), "out": (H, K, D)}


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
