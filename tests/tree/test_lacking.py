"""A role that a scheme is asked to write is written, or its lack is an error with what to give."""

import re

import pytest

from mimetic_jax import InputError, Rule, plan, rewrite, weights, zoo
from mimetic_jax.schemes import (
    Impulse,
    Layers,
    MeanShift,
    Mimetic,
    NormMatched,
    Permuted,
    SinCos,
    TFixup,
    Whitened,
    Zero,
    ZeroOut,
)
from tests.tree.stored import KEY, Stored
from tests.tree.test_advice import D, F, H, printed
from tests.zoo.cases import ones

ATTENTION = "MultiHeadDotProductAttention_0"
HEADS = {"query": (D, H, 8), "key": (D, H, 8), "value": (D, H, 8), "out": (H, 8, D)}


def layers(mlp=(), attention=ATTENTION, count=2, of_attention=HEADS, within="Block_#"):
    """Blocks of attention and of an MLP, whose two layers have these paths."""
    shapes = {f"{attention}/{name}/kernel": shape for name, shape in of_attention.items()}
    for path, shape in zip(mlp, ((D, F), (F, D)), strict=False):
        shapes |= {f"{path}/kernel": shape, f"{path}/bias": shape[1:]}
    return {
        f"{within.replace('#', str(i))}/{path}": shape
        for i in range(count)
        for path, shape in shapes.items()
    }


READOUT = {"Dense_0/kernel": (D, 10), "head/kernel": (D, 10)}
NAMES = [
    *(("Dense_0", "Dense_1"), ("linear1", "linear2"), ("up", "down"), ("wi", "wo")),
    *((f"{module}/Dense_0", f"{module}/Dense_1") for module in ("Mlp_0", "MLP_0", "FeedForward_0")),
    *(("mlp/Dense_0", "mlp/Dense_1"), ("TransformerMLP_0/Dense_0", "TransformerMLP_0/Dense_1")),
    *(("ffn/up_proj", "ffn/down_proj"), ("mlp/c_fc", "mlp/c_proj")),
    *(("MlpBlock_0/Dense_0", "MlpBlock_0/Dense_1"), ("mlp/fc1", "mlp/fc2")),
]


def paths_of(writes):
    return {write.path for write in writes}


@pytest.mark.parametrize(("first", "second"), NAMES)
def test_mlps_of_common_names_are_written(first, second):
    tree = ones(layers((first, second)) | READOUT)
    new = rewrite(KEY, tree, (ZeroOut(mlp=True), Mimetic()))
    zeros = {path for path, leaf in new.items() if not leaf.any()}
    assert zeros == {path for path in tree if re.search(rf"Block_\d/{second}/", path)}
    shifted = {path for path in tree if path.endswith(f"{first}/kernel") and "Block" in path}
    assert paths_of(plan(tree, MeanShift())) == shifted
    stacked = layers((f"mlp/{first}", f"mlp/{second}"), "self_attention", 1, within="layers")
    stacked = ones({path: (3, *shape) for path, shape in stacked.items()})
    if not first.startswith("MlpBlock"):
        assert paths_of(plan(stacked, ZeroOut(mlp=True))) >= {f"layers/mlp/{second}/kernel"}


@pytest.mark.parametrize(
    "scheme",
    [TFixup(), NormMatched(ZeroOut(mlp=True)), Layers(TFixup(), 0, 0.5), Permuted(TFixup())],
)
def test_every_scheme_for_mlps_asks_for_them(scheme):
    tree = ones(layers(("expand", "contract")) | READOUT)
    for schemes in (scheme, (Zero(), scheme, Mimetic())):
        with pytest.raises(InputError, match=r"writes MLPs, .* Block_0/contract/kernel") as refused:
            plan(tree, schemes)
        rules, _ = printed(str(refused.value), {})
        written = paths_of(plan(tree, schemes, rules=rules))
        assert any("contract" in path for path in written)
        assert not READOUT.keys() & written


def test_an_mlp_of_few_layers_is_refused_or_named():
    several = layers(("mlp/fc1", "mlp/fc2"))
    other = layers(("mlp/a", "mlp/b"), count=1, within="Block_2")
    with pytest.raises(InputError, match="Block_2/mlp/a/kernel"):
        plan(ones(several | other), TFixup())
    experts = {"Block_2/moe/wi": (5, D, F), "Block_2/moe/wo": (5, F, D)}
    without = layers(count=1, within="Block_2")
    with pytest.raises(InputError, match="Block_2/moe/wi"):
        plan(ones(several | without | experts), ZeroOut(mlp=True))
    planned = plan(ones(several | without), ZeroOut(mlp=True))
    assert str(planned).endswith("ZeroOut finds no MLP in Block_2")
    assert plan(ones(several | without), Mimetic()).notes == ()
    adapters = {f"Block_{i}/adapter_0/down/kernel": (D, 4) for i in (0, 1)}
    adapters |= {f"Block_{i}/adapter_0/up/kernel": (4, D) for i in (0, 1)}
    written = paths_of(plan(ones(several | adapters), ZeroOut(mlp=True)))
    assert not adapters.keys() & written, "no MLPs, though they have the names of its layers"


def test_what_has_no_mlp_lacks_none_unless_it_is_asked_for():
    alone = ones(layers() | READOUT)
    for scheme in (TFixup(), ZeroOut()):
        assert all(ATTENTION in write.path for write in plan(alone, scheme))
    with pytest.raises(InputError, match=r"ZeroOut\(mlp=True\) finds no MLP: put mlp_rules\(first"):
        plan(alone, ZeroOut(mlp=True))
    left_out = (Rule(r"Block_\d/[ab]/kernel", ()), *zoo.COMMON)
    assert plan(ones(layers(("a", "b"))), TFixup(), rules=left_out)


def test_a_third_layer_beside_two_may_be_anything():
    tree = layers(("Dense_0", "Dense_1")) | {f"Block_{i}/Dense_2/kernel": (D, 6) for i in (0, 1)}
    with pytest.raises(InputError, match="Block_0/Dense_0/kernel") as refused:
        plan(ones(tree), ZeroOut(mlp=True))
    rules, _ = printed(str(refused.value), {})
    written = paths_of(plan(ones(tree), ZeroOut(mlp=True), rules=rules))
    assert {path[8:15] for path in written if "Dense" in path} == {"Dense_1"}


def test_layers_of_another_width_than_attention_are_no_mlp_of_it():
    tree = Stored()
    for i in range(2):
        tree.attention(f"Block_{i}/attention", flat=False)
        tree.mlp(f"Block_{i}", "Dense_0", "Dense_1", width=48, hidden=F)
    for rules in (None, zoo.COMMON):
        with pytest.raises(InputError, match=r"Dense_1/kernel of shape \(64, 48\) .* width 24"):
            plan(tree.params(), ZeroOut(mlp=True), rules=rules)


@pytest.mark.parametrize("names", [("val", "projection"), ("value", "last")])
def test_attention_of_which_a_part_has_no_rule_is_refused(names):
    odd = dict(zip(("query", "key", *names), HEADS.values(), strict=True))
    tree = ones(layers(("mlp/fc1", "mlp/fc2"), of_attention=odd))
    for scheme in (ZeroOut(mlp=True), Mimetic(), (SinCos(), Mimetic())):
        with pytest.raises(InputError, match=f"{names[1]}/kernel|SinCos matches nothing"):
            plan(tree, scheme)
    dense = layers(("mlp/fc1", "mlp/fc2"), "mix", of_attention={"a": (D, 3 * D), "b": (D, D)})
    with pytest.raises(InputError, match="none describes Block_0/mix/a/kernel") as refused:
        plan(ones(dense), TFixup())
    rules = printed(str(refused.value), dict.fromkeys(("query", "key", "value", "out"), "a"))[-1]
    assert all("mlp" in write.path for write in plan(ones(dense), TFixup(), rules=rules))


def test_a_plan_has_the_last_writer_of_each_leaf():
    """And those before it whose values it reads."""
    tree = ones(layers(("mlp/fc1", "mlp/fc2")) | {"pos_embed": (1, 16, D)})
    planned = plan(tree, (ZeroOut(mlp=True), MeanShift(), Mimetic()))
    assert len(paths_of(planned)) == len(planned)
    zeros = {write.role for write in planned if write.scheme == "ZeroOut"}
    assert zeros == {"mlp_out", "mlp_out_bias"}
    for first, second, listed in (
        (SinCos(), SinCos(scale=2.0), ["SinCos"]),
        (SinCos(), Impulse(), ["SinCos", "Impulse"]),
        (TFixup(), MeanShift(), ["TFixup", "MeanShift"]),
        (TFixup(), Layers(Mimetic(), 0, 0.5), ["TFixup", "Layers(Mimetic)"]),
    ):
        grid = (4, 4) if first.uses else None
        every = {write.scheme for write in plan(tree, (first, second), grid=grid)}
        assert every == set(listed)
    roles = [write.role for write in plan(tree, (SinCos(), SinCos(scale=2.0)), grid=(4, 4))]
    assert roles == ["position"]


def test_a_plan_says_which_covariance_is_taken():
    tree = ones({"patch_embed/kernel": (48, D)})
    [note] = plan(tree, Whitened()).notes
    assert note.startswith(
        "Whitened whitens a share of 0.2 of the components of patches of 4 x 4 x 3 "
    )
    assert "covariance=weights.patch_covariance(images, patch), of images as the model gets" in note
    for scheme in (Whitened(share=1), NormMatched(Whitened(share=1))):
        [note] = plan(tree, scheme, covariance=weights.natural_covariance(4)).notes
        assert note == "Whitened whitens all components of the covariance that is given"
