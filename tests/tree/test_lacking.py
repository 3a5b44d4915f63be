"""A role that a scheme is asked to write is written, or its lack is an error with what to give."""

import re

import pytest

from mimetic_jax import InputError, plan, rewrite, weights, zoo
from mimetic_jax.command.expressions import parse_rules
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
from tests.tree.test_advice import HEADS, KEY, D, F, H
from tests.zoo.cases import ones

ATTENTION = "MultiHeadDotProductAttention_0"


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


ODD = [
    *(("expand", "contract"), ("mlp/lin_a", "mlp/lin_b"), ("mlp/layers_0", "mlp/layers_2")),
    *(("fc_1", "fc_2"), ("Expert_0/Dense_0", "Expert_0/Dense_1")),
]
ALL = [
    *(ZeroOut(mlp=True), TFixup()),
    *(NormMatched(ZeroOut(mlp=True)), Layers(TFixup(), 0, 0.5), Permuted(TFixup())),
]


def advised(tree, schemes, words, **given):
    """The paths that are written after what the error of a tree gives."""
    with pytest.raises(InputError, match=words) as refused:
        plan(ones(tree), schemes, **given)
    with pytest.raises(InputError, match=words):
        rewrite(KEY, ones(tree), schemes, **given)
    rules = re.search(r"give rules=(.*?)(, num_heads=…|; if|, if|$)", str(refused.value))[1]
    return plan(ones(tree), schemes, rules=parse_rules(rules), **given)


@pytest.mark.parametrize(
    ("names", "scheme"), [*((names, ALL[0]) for names in ODD), *((ODD[0], one) for one in ALL[1:])]
)
def test_an_mlp_that_no_rule_describes_is_refused_with_its_rules(names, scheme):
    tree = layers(names) | READOUT
    words = r"writes MLPs, and no rule describes that of Block_0, Block_1: give rules=.*mlp_rules"
    for schemes in (scheme, (Zero(), scheme, Mimetic())):
        writes = advised(tree, schemes, words)
        assert any(path.endswith(f"{names[1]}/kernel") for path in paths_of(writes))
        assert not READOUT.keys() & paths_of(writes)


def test_an_mlp_of_few_layers_is_refused_or_named():
    several = layers(("mlp/fc1", "mlp/fc2"))
    other = layers(("mlp/a", "mlp/b"), count=1, within="Block_2")
    writes = advised(several | other, TFixup(), "no rule describes that of Block_2: give")
    assert "Block_2/mlp/b/kernel" in paths_of(writes)
    experts = {"Block_2/moe/wi": (5, D, F), "Block_2/moe/wo": (5, F, D)}
    without = layers(count=1, within="Block_2")
    planned = plan(ones(several | without | experts), ZeroOut(mlp=True))
    assert planned.notes == ("ZeroOut finds no MLP in Block_2",)
    assert str(planned).endswith("ZeroOut finds no MLP in Block_2")
    assert plan(ones(several | without), Mimetic()).notes == ()
    adapters = {f"Block_{i}/adapter_0/down/kernel": (D, 4) for i in (0, 1)}
    adapters |= {f"Block_{i}/adapter_0/up/kernel": (4, D) for i in (0, 1)}
    written = paths_of(plan(ones(several | adapters), ZeroOut(mlp=True)))
    assert not adapters.keys() & written, "no MLPs, though they have the names of its layers"


def test_layers_of_names_with_dots_are_named():
    attention = {"attn.qkv.weight": (3 * D, D), "attn.proj.weight": (D, D)}
    mlp = {"mlp.fc1.weight": (F, D), "mlp.fc2.weight": (D, F)}
    every = [attention | mlp, attention | mlp, attention]
    tree = {f"blocks.{i}.{path}": x for i, block in enumerate(every) for path, x in block.items()}
    assert plan(ones(tree), ZeroOut(mlp=True), num_heads=H).notes == (
        "ZeroOut finds no MLP in blocks/2",
    )
    tree |= {"blocks.2.ffn.0.weight": (F, D), "blocks.2.ffn.3.weight": (D, F)}
    writes = advised(tree, ZeroOut(mlp=True), "that of blocks/2: give", num_heads=H)
    assert "blocks.2.ffn.3.weight" in paths_of(writes)


def test_what_has_no_mlp_lacks_none_unless_it_is_asked_for():
    alone = ones(layers() | READOUT)
    for scheme in (TFixup(), ZeroOut()):
        assert all(ATTENTION in write.path for write in plan(alone, scheme))
    with pytest.raises(InputError, match=r"ZeroOut\(mlp=True\) finds no MLP: put mlp_rules\(first"):
        plan(alone, ZeroOut(mlp=True))
    left_out = (zoo.Rule(r"Block_\d/[ab]/kernel", ()), *zoo.FLAX)
    assert plan(ones(layers(("a", "b"))), TFixup(), rules=left_out)


def test_the_last_kernel_of_a_gated_mlp_becomes_zero():
    """A scheme for two layers with a function between them leaves a gated MLP as it is."""
    gates = {f"Block_{i}/mlp/gate/kernel": (D, F) for i in (0, 1)}
    tree = ones(layers(("mlp/fc1", "mlp/fc2")) | gates)
    words = r"finds no MLP: put (mlp_rules\(first=\"fc1\", second=\"fc2\", gate=\"gate\"\)) in"
    with pytest.raises(InputError, match=words) as refused:
        plan(tree, ZeroOut(mlp=True))
    rules = (*parse_rules(re.search(words, str(refused.value))[1]), *zoo.FLAX)
    new = rewrite(KEY, tree, (ZeroOut(mlp=True), Mimetic()), rules=rules)
    zeros = {path for path, leaf in new.items() if not leaf.any()}
    assert zeros == {path for path in tree if "fc2" in path}
    assert not any("mlp" in write.path for write in plan(tree, TFixup(), rules=rules))


AMBIGUOUS = {
    "three": layers(("Dense_0", "Dense_1")) | {f"Block_{i}/Dense_2/kernel": (D, 6) for i in (0, 1)},
    "no_numbered_block": layers(("Dense_0", "Dense_1"), count=1, within="model"),
}


@pytest.mark.parametrize("tree", AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
def test_layers_of_any_name_are_taken_where_nothing_else_may_be_meant(tree):
    writes = advised(tree, ZeroOut(mlp=True), "writes MLPs")
    assert any(path.endswith("Dense_1/kernel") for path in paths_of(writes))


def test_layers_of_another_width_than_attention_are_no_mlp_of_it():
    tree = layers(("Dense_0", "Dense_1"))
    tree |= {f"Block_{i}/Dense_0/kernel": (48, F) for i in (0, 1)}
    tree |= {f"Block_{i}/Dense_1/kernel": (F, 48) for i in (0, 1)}
    tree = {path: shape for path, shape in tree.items() if "bias" not in path}
    words = r"Dense_1/kernel of shape .* aren't as wide as the attention beside them, 32"
    with pytest.raises(InputError, match=words):
        plan(ones(tree), ZeroOut(mlp=True))


@pytest.mark.parametrize("names", [("val", "projection"), ("value", "last")])
def test_attention_of_which_a_part_has_no_rule_is_refused(names):
    odd = dict(zip(("query", "key", *names), HEADS.values(), strict=True))
    tree = layers(("mlp/fc1", "mlp/fc2"), of_attention=odd)
    for scheme in (ZeroOut(mlp=True), (SinCos(), Mimetic())):
        with pytest.raises(InputError, match=r"only value was|matches nothing|and none describes"):
            plan(ones(tree), scheme)
    with pytest.raises(InputError, match=r"ZeroOut writes out, .* leave these out with rules=(.*)"):
        plan(ones(tree), ZeroOut(mlp=True))
    dense = layers(("mlp/fc1", "mlp/fc2"), "mix", of_attention={"a": (D, 3 * D), "b": (D, D)})
    with pytest.raises(InputError, match="none describes Block_0/mix/a/kernel, ") as refused:
        plan(ones(dense), TFixup())
    rules = parse_rules(str(refused.value).rpartition("rules=")[2])
    assert all("mlp" in write.path for write in plan(ones(dense), TFixup(), rules=rules))


START = (SinCos(), Whitened(), ZeroOut(mlp=True), Mimetic())
SQUARE = dict.fromkeys(("to_q", "to_k", "to_v", "to_o"), (D, D))
SCRATCH = layers(("grow", "shrink"), "mixing", of_attention=SQUARE)
CONVOLUTIONS = {"tokenizer/kernel": (4, 4, 3, D), "proj/weight": (D, 3, 4, 4)}
CONVOLUTIONS |= {"to_patch/kernel": (48, D)}


@pytest.mark.parametrize("patch", CONVOLUTIONS)
def test_one_call_is_all_that_a_model_of_ones_own_needs(patch):
    """No name of its leaves is in a table."""
    tree = SCRATCH | {patch: CONVOLUTIONS[patch], "pos": (1, 16, D), "Dense_0/kernel": (D, 10)}
    words = (
        r"beside covariance=weights\.patch_covariance\(images, patch\), of images as the model "
        rf"gets them, normalized, give rules=.*{patch}.*num_heads=…"
    )
    writes = advised(tree, START, words, num_heads=H)
    left = ("Dense_0/kernel", "grow/kernel", "grow/bias")
    assert paths_of(writes) == {path for path in tree if not path.endswith(left)}


def test_a_plan_has_the_last_writer_of_each_leaf():
    """And those before it whose values it reads."""
    tree = ones(layers(("mlp/fc1", "mlp/fc2")) | {"pos_embed": (1, 16, D)})
    planned = plan(tree, (ZeroOut(mlp=True), MeanShift(), Mimetic()), grid=(4, 4))
    assert len(paths_of(planned)) == len(planned)
    zeros = {write.role for write in planned if write.scheme == "ZeroOut"}
    assert zeros == {"mlp_out", "mlp_out_bias"}
    for first, second, listed in (
        (SinCos(), SinCos(scale=2.0), ["SinCos"]),
        (SinCos(), Impulse(), ["SinCos", "Impulse"]),
        (TFixup(), MeanShift(), ["TFixup", "MeanShift"]),
        (TFixup(), Layers(Mimetic(), 0, 0.5), ["TFixup", "Layers(Mimetic)"]),
    ):
        every = {write.scheme for write in plan(tree, (first, second), grid=(4, 4))}
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
