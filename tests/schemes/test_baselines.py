from __future__ import annotations

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mimetic_jax
from mimetic_jax import InputError
from mimetic_jax.schemes import (
    DCT,
    Block,
    CompleteP,
    Conditioned,
    Context,
    IDInit,
    Independent,
    NormMatched,
    Orthogonal,
    Sinusoidal,
    TFixup,
    UniformAttention,
    Zero,
    ZeroOut,
    ZeroOutputs,
)
from tests.schemes.blocks import biases, kernels, ones

KEY = jax.random.key(0)
SCHEMES = [
    Zero(),
    TFixup(),
    ZeroOut(),
    UniformAttention(0.3),
    Conditioned(),
    Conditioned(per_head=False),
    Orthogonal(gain=0.5),
    DCT(value=True),
    Sinusoidal("he"),
    IDInit(),
    Independent(spectral=True, uniform=True, depth=0.5),
    ZeroOutputs(),
]
EVERYTHING = {"query", "key", "value", "out"}
SIX = ("query", "key", "value", "out", "mlp_in", "mlp_out")
ENDS = ("out", "mlp_out")


def block(dim=24, heads=4, groups=4, head_dim=6, hidden=48):
    sizes = dim, heads, groups, head_dim
    mlp = {
        "mlp_in": (dim, hidden),
        "mlp_in_bias": (hidden,),
        "mlp_out": (hidden, dim),
        "mlp_out_bias": (dim,),
    }
    return ones(kernels(*sizes) | biases(*sizes) | mlp | {"position": (5, dim)})


def tree(layers=2, dtype=jnp.float32, **sizes):
    leaves = block(**sizes)

    def layer(roles):
        return {
            name: {
                leaf: leaves[role + suffix].astype(dtype)
                for leaf, suffix in (("kernel", ""), ("bias", "_bias"))
            }
            for role, name in roles.items()
        }

    attention = {role: role for role in EVERYTHING}
    mlp = {"mlp_in": "fc1", "mlp_out": "fc2"}
    return {f"block_{i}": {"attn": layer(attention), "mlp": layer(mlp)} for i in range(layers)}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"groups": 2},
        {"groups": 1, "heads": 3},
        {"head_dim": 9},
        {"heads": 1, "groups": 1, "head_dim": 5},
    ],
    ids=str,
)
def test_protocol(scheme, sizes):
    view = block(**sizes)
    new = jax.eval_shape(lambda key: scheme(key, view, Context(1, 12)), KEY)
    assert new.keys() == scheme.writes(frozenset(view))
    for role, array in new.items():
        assert array.shape == view.shapes[role]
        assert array.dtype == jnp.float32


@pytest.mark.parametrize(
    ("scheme", "kernels"),
    [
        (Zero(), EVERYTHING),
        (TFixup(), EVERYTHING | {"mlp_in", "mlp_out"}),
        (ZeroOut(), {"out"}),
        (UniformAttention(), EVERYTHING),
        (Conditioned(), {"query", "key", "value"}),
        (DCT(query=True, value=True), {"query", "key", "value"}),
        (Orthogonal(), EVERYTHING | {"mlp_in", "mlp_out"}),
        (Sinusoidal(), EVERYTHING | {"mlp_in", "mlp_out"}),
        (IDInit(), EVERYTHING | {"mlp_in", "mlp_out"}),
        (Independent(), EVERYTHING | {"mlp_in", "mlp_out"}),
        (ZeroOutputs(), {"out", "mlp_out"}),
    ],
)
def test_roles(scheme, kernels):
    written = scheme.writes(frozenset(block()))
    assert written == kernels | {f"{kernel}_bias" for kernel in kernels}
    assert not scheme.writes(frozenset({"value", "value_bias", "position"}))
    # No biases are added; half an attention layer still counts as one.
    assert scheme.writes(frozenset({"query", "out"})) == kernels & {"query", "out"}


def test_zero():
    new = Zero()(KEY, block(), Context())
    assert not new["query"].any()
    assert not new["out"].any()
    for role in ("key", "value"):
        np.testing.assert_array_equal(new[role].reshape(24, 24), np.eye(24))
    # Heads wider than the model: Hadamard's rows, as for any layer that widens.
    wide = np.asarray(Zero()(KEY, block(head_dim=9), Context())["key"]).reshape(24, 36)
    assert set(np.abs(np.unique(wide))) == {np.float32(1 / 8)}


def test_zero_out_makes_a_layer_the_identity():
    new = ZeroOut()(KEY, block(), Context())
    assert not any(array.any() for array in new.values())


@pytest.mark.parametrize(
    ("decoder", "scale"), [(False, 0.67 * 12**-0.25), (True, 108**-0.25)], ids=["en", "de"]
)
def test_tfixup_bounds(decoder, scale):
    """Released code: Xavier (query, key, value of gain 1/√2), then value ×√2 s, the others ×s."""
    sizes = {"dim": 96, "heads": 4, "groups": 2, "head_dim": 24, "hidden": 192}
    new = TFixup(decoder)(KEY, block(**sizes), Context(3, 12))
    fans = {"query": 192, "key": 144, "value": 144, "out": 192, "mlp_in": 288, "mlp_out": 288}
    for role, fan in fans.items():
        gain = 0.5**0.5 if role in ("query", "key") else scale
        bound = gain * (6 / fan) ** 0.5
        assert float(jnp.abs(new[role]).max()) == pytest.approx(bound, rel=0.01)
        assert float(new[role].std()) == pytest.approx(bound / 3**0.5, rel=0.03)


def test_tfixup_counts_the_layers_of_the_tree():
    two, eight = (mimetic_jax.rewrite(KEY, tree(n), TFixup()) for n in (2, 8))
    for path in (("attn", "out"), ("attn", "value"), ("mlp", "fc1"), ("mlp", "fc2")):
        small, large = (t["block_1"][path[0]][path[1]]["kernel"] for t in (eight, two))
        np.testing.assert_allclose(small * 4**0.25, large, rtol=1e-5)
    query = [t["block_1"]["attn"]["query"]["kernel"] for t in (two, eight)]
    np.testing.assert_array_equal(*query)


# Standard deviations at D = 96, H·K = 144, F = 384 and L = 12, as their authors write them.
RULES = {
    Independent(): dict(zip(SIX, (96**-0.5,) * 3 + (144**-0.5, 96**-0.5, 384**-0.5), strict=True)),
    Independent(0.02, 0.0): dict.fromkeys(SIX, 0.02),
    Independent.gpt2(): dict.fromkeys(SIX, 0.02) | dict.fromkeys(ENDS, 0.02 / 24**0.5),
    Independent(power=0.8): dict(
        zip(SIX, (96**-0.8,) * 3 + (144**-0.8, 96**-0.8, 384**-0.8), strict=True)
    ),
    Independent(spectral=True): dict(
        zip(SIX, (96**-0.5,) * 3 + (96**0.5 / 144, 96**-0.5, 96**0.5 / 384), strict=True)
    ),
    CompleteP(): dict(
        zip(SIX, (96**-0.5,) * 3 + (144**-0.5 / 6, 96**-0.5, 384**-0.5 / 6), strict=True)
    ),
    Independent(0.5, uniform=True): {"query": 0.5 * 96**-0.5, "mlp_in": 0.5 * 96**-0.5},
}


@pytest.mark.parametrize("scheme", RULES, ids=str)
def test_independent_entries_have_the_deviation_of_their_rule(scheme):
    view = block(dim=96, heads=4, groups=4, head_dim=36, hidden=384)
    new = scheme(KEY, view, Context(3, 12))
    for role, std in RULES[scheme].items():
        assert float(new[role].std()) == pytest.approx(std, rel=0.03)
        assert abs(float(new[role].mean())) < 0.05 * std
        kurtosis = float((new[role] ** 4).mean()) / std**4
        assert kurtosis == pytest.approx(1.8 if getattr(scheme, "uniform", False) else 3.0, rel=0.1)
    assert scheme.by_depth == (scheme in (Independent.gpt2(), CompleteP()))


def test_idinit_is_a_padded_identity():
    new = IDInit()(KEY, block(), Context())
    np.testing.assert_array_equal(new["query"].reshape(24, 24), np.eye(24))
    np.testing.assert_array_equal(new["mlp_in"], np.tile(np.eye(24), 2))
    np.testing.assert_array_equal(new["mlp_out"], np.float32(1e-6) * np.tile(np.eye(24), 2).T)


def test_uniform_attention():
    sizes = {"dim": 96, "heads": 4, "groups": 2, "head_dim": 12}
    new = UniformAttention()(KEY, block(**sizes), Context())
    for role in EVERYTHING:
        assert float(new[role].std()) == pytest.approx(0.5 * 96**-0.5, rel=0.03)
        assert float(jnp.abs(new[role]).max()) <= 0.5 * 96**-0.5 * 3**0.5


@pytest.mark.parametrize("scheme", [TFixup(), UniformAttention(), Conditioned()])
def test_kernels_do_not_depend_on_other_roles(scheme):
    whole = scheme(KEY, block(), Context())
    part = Block.of({role: block()[role] for role in ("query", "value")})
    for role, array in scheme(KEY, part, Context()).items():
        np.testing.assert_array_equal(array, whole[role])
    kernels = [np.ravel(whole[role]) for role in ("query", "key")]
    assert abs(np.corrcoef(kernels)[0, 1]) < 0.2


@pytest.mark.parametrize("scheme", [*SCHEMES[:5], NormMatched(ZeroOut())])
def test_through_rewrite_jit_vmap_and_bfloat16(scheme):
    def rewritten(key, dtype=jnp.float32):
        return mimetic_jax.rewrite(key, tree(layers=1, dtype=dtype, groups=2), scheme)

    kernels = scheme.writes(frozenset(EVERYTHING))
    eager = rewritten(KEY)
    assert jax.tree.structure(eager) == jax.tree.structure(tree(layers=1))
    vmapped = jax.jit(jax.vmap(rewritten))(jnp.stack([jax.random.key(1), KEY]))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b[1], atol=1e-5), eager, vmapped)
    shapes = jax.eval_shape(rewritten, KEY)
    assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, eager)
    for path, array in jax.tree_util.tree_leaves_with_path(rewritten(KEY, jnp.bfloat16)):
        assert array.dtype == jnp.bfloat16
        assert bool(jnp.isfinite(array).all())
        written = path[1].key == "attn" and path[2].key in kernels
        assert path[3].key == "kernel" or not written or not array.any()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_fields_are_plain_data(scheme):
    fields = json.loads(json.dumps(dataclasses.asdict(scheme)))
    assert type(scheme)(**fields) == scheme
    assert scheme.at(0, 2) == scheme
    assert hash(scheme) == hash(dataclasses.replace(scheme))


def test_bad_input():
    with pytest.raises(InputError, match=r"UniformAttention.scale -0\.5") as caught:
        mimetic_jax.rewrite(KEY, tree(), UniformAttention(scale=-0.5))
    assert "\n" not in str(caught.value)
