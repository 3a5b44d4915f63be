"""Rules by the names of layers, within a part of a tree, and without cross-attention."""

import dataclasses
import functools
import math
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import mimetic_jax
from mimetic_jax import InputError, Rule, attention_rules, llama_rules, mlp_rules, zoo
from mimetic_jax.rules import paths
from mimetic_jax.rules.rule import ROLES
from mimetic_jax.schemes import MeanShift, Mimetic
from mimetic_jax.tree.leaf import Leaf
from mimetic_jax.zoo.family import Family
from tests.models.values import initial

KEY = jax.random.key(3)
D, H, K = 16, 2, 8


def stock(seed=0):
    return initial(nn.MultiHeadDotProductAttention(H), jnp.ones((1, 5, D)), seed)


# Canonical arrays of four heads, two of key and of value, and how many axes are of their inputs.
SHAPES = {"query": (D, 4, K), "key": (D, 2, K), "value": (D, 2, K), "out": (4, K, D)}
SHAPES |= {"mlp_in": (D, 5), "mlp_out": (5, D)}
INPUTS = dict.fromkeys(SHAPES, 1) | {"out": 2}


@pytest.mark.parametrize(
    ("made", "options", "words"),
    [
        (attention_rules, {"grouped": True}, "without fused=… does not use grouped"),
        (attention_rules, {"by_head": True}, "without fused=… does not use by_head"),
        (attention_rules, {"fused": "qkv", "key": "k"}, "with fused='qkv' does not use key"),
        (attention_rules, {"fused": "qkv", "grouped": True, "by_head": True}, "pass one of them"),
        *(
            (made, {"stacked": stacked, "axis": axis}, words)
            for made in (attention_rules, mlp_rules, llama_rules)
            for stacked, axis, words in (
                (False, 1, "axis=1 is of stacked layers"),
                (True, 2, "axis must be one of 0, 1; got 2"),
                (True, -1, "axis must be one of 0, 1; got -1"),
            )
        ),
    ],
)
def test_options_that_change_nothing_or_contradict_each_other_are_refused(made, options, words):
    with pytest.raises(InputError, match=words):
        made(**options)


@pytest.mark.parametrize("form", [True, 2.0, 1, 0.0, 0, "1 + w"])
@pytest.mark.parametrize("role", ROLES)
def test_a_form_is_read_or_refused(form, role):
    """√K and √D, and numbers, are of what a model multiplies; 1 is added to any leaf."""
    make = functools.partial(Rule, "leaf", role, ROLES[role], form=form)
    if form == 0:
        with pytest.raises(InputError, match="form=0 would make the leaf all zeros"):
            make()
    elif form == "1 + w" or role in ("query", "query_bias", "embedding"):
        leaf = Leaf(0, "leaf", role, make(), (4,), dict.fromkeys("dhktg", 4))
        assert leaf.multiplier != 1 or leaf.rule.plus_one or form == 1
    else:
        with pytest.raises(InputError, match=rf"the role is '{role}': leave form out"):
            make()


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("stacked", [True, False])
@pytest.mark.parametrize("grouped", [True, False])
def test_other_names_and_storage_hold_the_same_arrays(flat, transposed, stacked, grouped):
    """Stored as other models do, by hand; the second of stacked layers is twice the first."""
    rng = np.random.default_rng(0)
    arrays = {role: rng.normal(size=shape) for role, shape in SHAPES.items()}
    biases = {role: rng.normal(size=a.shape[INPUTS[role] :]) for role, a in arrays.items()}

    def stored(kernel, bias, inputs=1):
        shapes = kernel.shape[:inputs], kernel.shape[inputs:]
        kernel = kernel.reshape(*map(math.prod, shapes))
        kernel = kernel.T if transposed else kernel
        if not flat:
            kernel = kernel.reshape(*sum(shapes[::-1] if transposed else shapes, ()))
        leaves = {"weight": kernel, "b": bias.reshape(-1) if flat else bias}
        return {n: np.stack([x, 2 * x]) if stacked else x for n, x in leaves.items()}

    layers = {role: stored(arrays[role], biases[role], INPUTS[role]) for role in SHAPES}
    if grouped:
        parts = ("query", "key", "value")
        kernel = np.concatenate([arrays[role] for role in parts], axis=1)
        layers["fused"] = stored(kernel, np.concatenate([biases[role] for role in parts]))
        layers = {role: leaves for role, leaves in layers.items() if role not in parts}
    tree = {"h": {f"my_{name}": leaves for name, leaves in layers.items()}}
    tree["other"] = {name: leaves for name, leaves in tree["h"].items() if "mlp" in name}
    names = [name for name in layers if not name.startswith("mlp")]
    form = {"transposed": transposed, "stacked": stacked, "kernel": "weight", "bias": "b"}
    rules = attention_rules(
        **{name: f"my_{name}" for name in names}, grouped=grouped, flat=flat, **form
    )
    rules += mlp_rules(first="my_mlp_in", second="my_mlp_out", within="^h$", **form)
    found = mimetic_jax.blocks(tree, rules=rules, num_heads=4, num_kv_heads=2)
    expected = [("h", 0), ("h", 1)] if stacked else [("h", None)]
    assert [(path, layer) for path, layer, _ in found] == expected
    for scale, (_, _, block) in enumerate(found, 1):
        assert block.keys() == {*SHAPES, *(f"{role}_bias" for role in SHAPES)}
        for role in SHAPES:
            np.testing.assert_array_equal(block[role], np.float32(scale * arrays[role]))
            np.testing.assert_array_equal(block[f"{role}_bias"], np.float32(scale * biases[role]))


def test_within_keeps_the_block_where_it_is():
    tree = {"encoder": {"0": {"attn": stock(0)}}, "decoder": {"0": {"attn": stock(1)}}}
    rules = attention_rules(within="^encoder/")
    writes = mimetic_jax.plan(tree, Mimetic(), rules=rules)
    assert {write.path.split("/")[0] for write in writes} == {"encoder"}
    every = mimetic_jax.rewrite(KEY, tree, Mimetic())
    part = mimetic_jax.rewrite(KEY, tree, Mimetic(), rules=rules)
    jax.tree.map(np.testing.assert_array_equal, part["encoder"], every["encoder"])
    jax.tree.map(np.testing.assert_array_equal, part["decoder"], tree["decoder"])


@pytest.mark.parametrize(
    "name", ["cross_attention", "encoder_attn", "CrossAttention_0", "EncDecAttention", "MAPHead_0"]
)
def test_cross_attention_is_left_out_unless_asked_for(name):
    tree = {"layer_0": {"self_attn": stock(0), name: stock(1)}}
    planned = mimetic_jax.plan(tree, Mimetic())
    assert {write.path.split("/")[1] for write in planned} == {"self_attn"}
    assert f"layer_0/{name}/query/kernel" in planned.untouched
    asked = mimetic_jax.plan(tree, Mimetic(), rules=attention_rules(exclude=""))
    assert {write.path.split("/")[1] for write in asked} == {"self_attn", name}


def test_the_first_of_several_layers_may_have_no_number():
    names = ("attention", "attention_1", "attention_2", "attention_10")
    tree = {name: stock(i) for i, name in enumerate(names)}
    scheme = Mimetic(beta_qk=(1.0, 2.0, 3.0, 4.0), alpha_qk=0.0)
    shown = "Mimetic.beta_qk by depth: attention, attention_1, attention_2"
    assert shown in str(mimetic_jax.plan(tree, scheme))
    new = mimetic_jax.rewrite(KEY, tree, scheme)
    alignments = []
    for name in names:
        query, key = new[name]["query"]["kernel"], new[name]["key"]["kernel"]
        alignments.append(np.einsum("dhk,dhk->", query, key) / (H * K))
    np.testing.assert_allclose(alignments, [1, 2, 3, 4], rtol=1e-5)
    found = mimetic_jax.fit(new).scheme
    np.testing.assert_allclose(found.beta_qk.values, [1, 2, 3, 4], rtol=1e-3)


def test_half_of_the_names_are_stock_ones():
    """As in Keras, whose output projection is called attention_output."""
    names = {"query": (D, H, K), "key": (D, H, K), "value": (D, H, K)}
    tree = {f"mha/{name}/kernel": jnp.zeros(shape) for name, shape in names.items()}
    tree["mha/attention_output/kernel"] = jnp.zeros((H, K, D))
    with pytest.raises(InputError, match="mha/attention_output/kernel"):
        mimetic_jax.plan(tree, Mimetic())
    rules = attention_rules(out="attention_output")
    assert len(mimetic_jax.plan(tree, Mimetic(), rules=rules)) == 4


def test_two_families_that_fit_are_an_error_with_both(monkeypatch):
    gemma = {"q_einsum/w": (4, D, K), "kv_einsum/w": (2, 1, D, K), "attn_vec_einsum/w": (4, K, D)}
    image = {"query": (D, H, K), "key": (D, H, K), "value": (D, H, K), "out": (H, K, D)}
    block = "img/encoderblock_0/MultiHeadDotProductAttention_0"
    tree = {f"llm/layer_0/attn/{name}": jnp.zeros(shape) for name, shape in gemma.items()}
    tree |= {f"{block}/{name}/kernel": jnp.zeros(shape) for name, shape in image.items()}
    with pytest.raises(InputError, match=r"rules=\(\*zoo\.GEMMA, \*zoo\.BIG_VISION\)|such as llm"):
        mimetic_jax.plan(tree, Mimetic())
    assert len(mimetic_jax.plan(tree, Mimetic(), rules=(*zoo.GEMMA, *zoo.BIG_VISION))) == 8
    other = tuple(
        dataclasses.replace(rule, layout=rule.layout.replace("d (h k)", "(h k) d"))
        for rule in zoo.LLAMA
    )
    monkeypatch.setattr(zoo, "FAMILIES", {**zoo.FAMILIES, "OTHER": Family(other)})
    llama = {f"self_attn/{name}_proj/weight": jnp.zeros((D, D)) for name in "qkvo"}
    llama["post_attention_layernorm/weight"] = jnp.zeros(D)
    with pytest.raises(InputError, match=r"LLAMA and zoo\.OTHER fit this tree equally"):
        mimetic_jax.plan(llama, Mimetic(), num_heads=H)


def test_a_scheme_is_no_initializer_of_one_kernel():
    layer = nn.Dense(D, kernel_init=Mimetic())
    with pytest.raises(InputError, match=r"Mimetic draws the kernels of a whole block together"):
        layer.init(KEY, jnp.ones((1, D)))


def test_modules_are_listed_after_a_plain_import():
    later = {"linen", "nnx", "initializers", "torch"}
    assert set(dir(mimetic_jax)) == later | set(mimetic_jax.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'lines'"):
        mimetic_jax.lines


class Kernels(NamedTuple):
    key: object
    value: object


def test_only_boxes_hide_the_name_of_their_value():
    array = jnp.ones(2)
    boxes = nn.Partitioned(array, names=("model",)), nnx.Param(array)
    for leaf in (array, *boxes):
        named, _ = paths.flatten({"attn": Kernels(leaf, leaf)})
        assert [path for path, _ in named] == ["attn/key", "attn/value"]


def test_a_bias_beside_a_kernel_that_a_rule_describes_is_no_gate():
    mlp = {
        "up": {"kernel": np.ones((4, 8)), "bias": np.ones(8)},
        "down": {"kernel": np.ones((8, 4))},
    }
    rules = (Rule("up/kernel", "mlp_in", "d f"), Rule("down/kernel", "mlp_out", "f d"))
    (write,) = mimetic_jax.plan(mlp, MeanShift(), rules=rules)
    assert write.path == "up/kernel"
