"""Trees whose arrays have axes with names, as levanter (haliax) and penzai store theirs."""

import dataclasses

import jax
import numpy as np
import pytest

import mimetic_jax
from mimetic_jax import blocks, check, plan, rewrite, zoo
from mimetic_jax.schemes import Mimetic
from tests import products
from tests.zoo.cases import nested

KEY = jax.random.key(2)
SCHEME = Mimetic(alpha_vo=0.1, beta_vo=-0.4)
SIZES = {"embed": 32, "layers": 2, "kv_head": 2, "q_heads_per_group": 2, "heads": 4}
SIZES |= {"head_size": 8, "mlp": 48, "qkv": 3, "vocab": 11, "position": 5}
SIZES |= {"embedding": 32, "head_groups": 2, "query_heads": 2, "projection": 8, "neurons": 48}


@dataclasses.dataclass(frozen=True)
class Axis:
    name: str
    size: int


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True)
class Haliax:
    """A node with one child and its axes, as haliax.NamedArray."""

    array: jax.Array
    axes: tuple[Axis, ...]

    def tree_flatten(self):
        return (self.array,), self.axes

    @classmethod
    def tree_unflatten(cls, axes, children):
        return cls(*children, axes)


@jax.tree_util.register_pytree_with_keys_class
@dataclasses.dataclass(frozen=True)
class Penzai:
    """A node with the attribute data_array, as penzai's NamedArray."""

    named_axes: dict[str, int]
    data_array: jax.Array

    def tree_flatten_with_keys(self):
        return ((jax.tree_util.GetAttrKey("data_array"), self.data_array),), tuple(
            self.named_axes.items()
        )

    @classmethod
    def tree_unflatten(cls, axes, children):
        return cls(dict(axes), *children)


def array(names, kind=Haliax):
    names = names.split()
    shape = tuple(SIZES[name] for name in names)
    values = np.random.default_rng(len(names)).normal(size=shape).astype(np.float32)
    if kind is Penzai:
        return Penzai({name: SIZES[name] for name in names}, values)
    return Haliax(values, tuple(Axis(name, SIZES[name]) for name in names))


def levanter_llama(first="layers "):
    block = f"transformer/layers/{'stacked' if first else '0'}"
    shapes = {
        "self_attn/q_proj/weight": "kv_head q_heads_per_group head_size embed",
        "self_attn/k_proj/weight": "kv_head head_size embed",
        "self_attn/v_proj/weight": "kv_head head_size embed",
        "self_attn/o_proj/weight": "embed heads head_size",
        "self_attn/q_proj/bias": "kv_head q_heads_per_group head_size",
        "mlp/gate_proj/weight": "mlp embed",
        "mlp/up_proj/weight": "mlp embed",
        "mlp/down_proj/weight": "embed mlp",
        "input_layernorm/weight": "embed",
        "post_attention_layernorm/weight": "embed",
    }
    tree = {f"{block}/{path}": array(f"{first}{names}") for path, names in shapes.items()}
    return nested(tree | {"embeddings/token_embeddings/weight": array("vocab embed")})


@pytest.mark.parametrize("first", ["layers ", ""])
def test_levanters_llama(first):
    tree = levanter_llama(first)
    new = rewrite(KEY, tree, SCHEME)
    assert jax.tree.structure(new) == jax.tree.structure(tree)
    layer = new["transformer"]["layers"]["stacked" if first else "0"]
    kernels = {name: layer["self_attn"][f"{name}_proj"]["weight"].array for name in "qkvo"}
    for i in range(2 if first else 1):
        q, k, v, o = (kernel[i] if first else kernel for kernel in kernels.values())
        # As its code: queries are grouped, then flattened to heads for the output.
        drawn = np.einsum("gqkd,gke->gqde", q, k).reshape(4, 32, 32)
        flat = np.repeat(v, 2, axis=0)
        value_out = np.einsum("hkd,ehk->de", flat, o)
        ours = blocks(new)
        read = next(
            one for path, at, one in ours if "query" in one and at == (i if first else None)
        )
        np.testing.assert_allclose(
            drawn, products.query_key(read["query"], read["key"]), rtol=1e-4, atol=1e-5
        )
        assert all(np.trace(head) / 8 > 0.7 for head in drawn)
        assert np.trace(value_out) / 32 < -0.1
        assert np.allclose(
            read["attention_gain"],
            layer["input_layernorm"]["weight"].array[i]
            if first
            else layer["input_layernorm"]["weight"].array,
        )
    assert not np.asarray(layer["self_attn"]["q_proj"]["bias"].array).any()
    old = tree["transformer"]["layers"]["stacked" if first else "0"]["mlp"]
    for name, one in layer["mlp"].items():
        np.testing.assert_array_equal(one["weight"].array, old[name]["weight"].array)
    assert "with the norm's gain" in check(new).note
    assert {write.layout for write in plan(tree, SCHEME) if write.role == "query"} == {
        "l g q k d" if first else "g q k d"
    }


def test_levanters_gpt2():
    shapes = {
        "attn/c_attn/weight": "embed qkv heads head_size",
        "attn/c_attn/bias": "qkv heads head_size",
        "attn/c_proj/weight": "heads head_size embed",
        "attn/c_proj/bias": "embed",
        "mlp/c_fc/weight": "embed mlp",
        "mlp/c_fc/bias": "mlp",
        "mlp/c_proj/weight": "mlp embed",
        "mlp/c_proj/bias": "embed",
        "ln_1/weight": "embed",
        "ln_2/weight": "embed",
    }
    block = "transformer/blocks/stacked"
    tree = {f"{block}/{path}": array(f"layers {names}") for path, names in shapes.items()}
    tree["embeddings/position_embeddings/weight"] = array("position embed")
    found = {(rule.path, rule.role): rule for rule in zoo.named_rules(nested(tree))}
    roles = {role for _, role in found if isinstance(role, str)}
    assert roles == {
        *("out", "out_bias", "mlp_in", "mlp_in_bias", "mlp_out", "mlp_out_bias"),
        *("attention_gain", "mlp_gain", "position"),
    }
    new = rewrite(KEY, nested(tree), SCHEME)["transformer"]["blocks"]["stacked"]["attn"]
    for i in range(2):
        q, k, v = np.moveaxis(new["c_attn"]["weight"].array[i], 1, 0)
        for head in range(4):
            assert np.trace(q[:, head] @ k[:, head].T) / 8 > 0.7
        assert np.trace(np.einsum("dhk,hke->de", v, new["c_proj"]["weight"].array[i])) / 32 < -0.1


@pytest.mark.parametrize(
    ("query", "key", "layouts"),
    [
        ("head_groups query_heads", "head_groups", ("d g q k", "d g k")),
        ("heads", "heads", ("d h k", "d g k")),
        ("query_heads", "", ("d h k", "d k")),
    ],
)
def test_penzais_attention(query, key, layouts):
    names = {
        "attention/query": f"embedding {query} projection",
        "attention/key": f"embedding {key} projection",
        "attention/value": f"embedding {key} projection",
        "attention/output": f"{query} projection embedding",
        "mlp/gating_linear": "embedding neurons",
        "mlp/value_linear": "embedding neurons",
        "mlp/out_linear": "neurons embedding",
        "pre_attention_norm/scale": "embedding",
        "post_ffw_norm/scale": "embedding",
    }
    tree = {
        f"transformer/block_{i}/{path}.weights": array(axes, Penzai)
        for path, axes in names.items()
        for i in range(2)
    }
    written = {write.role: write.layout for write in plan(tree, SCHEME)}
    assert (written["query"], written["key"]) == layouts
    new = rewrite(KEY, tree, SCHEME)
    leaves = {
        name: new[f"transformer/block_1/attention/{name}.weights"].data_array
        for name in ("query", "key", "value", "output")
    }
    groups = 1 if not key else SIZES[key]
    q = leaves["query"].reshape(32, groups, -1, 8)
    k = leaves["key"].reshape(32, groups, 8)
    for group in range(groups):
        for head in range(q.shape[2]):
            assert np.trace(q[:, group, head] @ k[:, group].T) / 8 > 0.6
    v = np.repeat(leaves["value"].reshape(32, groups, 8), q.shape[2], 1).reshape(32, -1)
    assert np.trace(v @ leaves["output"].reshape(-1, 32)) / 32 < 0
    roles = {rule.role: rule.read_only for rule in zoo.named_rules(tree)}
    assert roles["mlp_in"]
    assert roles["mlp_gate"]
    assert not roles["attention_gain"]
    assert "mlp_scale" in roles


def test_axes_that_nobody_knows_are_refused():
    tree = {f"attn/{name}_proj/weight": array("embed heads head_size") for name in "qkvo"}
    strange = tuple(
        dataclasses.replace(axis, name=f"my_{axis.name}")
        for axis in tree["attn/q_proj/weight"].axes
    )
    tree["attn/q_proj/weight"] = dataclasses.replace(tree["attn/q_proj/weight"], axes=strange)
    with pytest.raises(mimetic_jax.InputError, match="only key was found"):
        rewrite(KEY, tree, SCHEME)
