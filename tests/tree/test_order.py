"""Of several schemes a later one may replace what an earlier one drew, and not undo it."""

import re

import jax
import pytest

from mimetic_jax import InputError, plan, rewrite
from mimetic_jax.schemes import (
    Cooccurrence,
    CorrelatedMLP,
    Impulse,
    ImpulseMixing,
    Layers,
    MeanShift,
    Mimetic,
    NormMatched,
    PositionalHeads,
    SinCos,
    TFixup,
    Whitened,
    Zero,
    ZeroOut,
)
from tests.schemes.test_contract import RULES, options_for, tree

KEY = jax.random.key(0)
LEAVES = tree()
ROTARY = {path: leaf for path, leaf in LEAVES.items() if "pos_embed" not in path}
BIASES, CHANNEL = PositionalHeads(10_000), PositionalHeads(10_000, channel=0)
UNDONE = [
    (CHANNEL, Cooccurrence(), "embedding"),
    (CHANNEL, NormMatched(Cooccurrence()), "embedding"),
    (CHANNEL, CorrelatedMLP(), "mlp/fc2/kernel"),
    (BIASES, Mimetic(), "key/bias"),
    (Mimetic(), ZeroOut(), "out/kernel"),
    (NormMatched(Mimetic()), ZeroOut(mlp=True), "out/kernel"),
    (CorrelatedMLP(), ZeroOut(mlp=True), "fc2/kernel"),
    (ImpulseMixing(), ZeroOut(mlp=True), "token_mixing/fc2/kernel"),
    (Impulse(), SinCos(), "pos_embed"),
    (Impulse(), Mimetic(), "key/kernel"),
]


@pytest.mark.parametrize(("first", "second", "path"), UNDONE, ids=str)
def test_an_order_that_undoes_a_draw_is_refused_with_the_right_one(first, second, path):
    shapes = jax.eval_shape(lambda: ROTARY if isinstance(first, PositionalHeads) else LEAVES)
    schemes = {type(one).__name__: one for one in (first, Whitened(), second)}
    with pytest.raises(InputError, match=rf"{path} after .* undo: ") as refused:
        plan(shapes, tuple(schemes.values()), **options_for(*schemes.values()))
    if str(refused.value).endswith("take one of the two"):  # the first would replace all
        written = [
            {x.path for x in plan(shapes, one, **options_for(one))} for one in (first, second)
        ]
        assert written[1] <= written[0]
        return
    order = re.search(r"pass \(([\w(), ]*)\), in", str(refused.value))[1].split(", ")
    plan(
        shapes,
        [schemes[name.partition("(")[0]] for name in order],
        **options_for(*schemes.values()),
    )


def test_every_door_refuses_it_before_it_draws():
    schemes = (CHANNEL, Cooccurrence())
    traced = jax.jit(lambda key, params: rewrite(key, params, schemes, **options_for(*schemes)))
    with pytest.raises(InputError, match="undo"):
        rewrite(KEY, ROTARY, schemes, **options_for(*schemes))
    with pytest.raises(InputError, match="undo"):
        traced(KEY, ROTARY)


@pytest.mark.parametrize(
    "schemes",
    [
        (Mimetic(), Impulse()),
        (Mimetic(), Zero(), Mimetic()),
        (ZeroOut(mlp=True), TFixup(), Mimetic(alpha_qk=None, beta_qk=None)),
        (CorrelatedMLP(), MeanShift()),
        (Mimetic(zero_bias=False), BIASES),
        (BIASES, Mimetic(zero_bias=False)),
    ],
    ids=str,
)
def test_what_replaces_all_that_is_drawn_together_is_taken(schemes):
    shapes = jax.eval_shape(lambda: ROTARY if BIASES in schemes else LEAVES)
    assert plan(shapes, schemes, **options_for(*schemes))


def test_layers_of_their_own_are_no_conflict():
    kernel = jax.ShapeDtypeStruct((4, 16, 2, 8), "float32")
    out = jax.ShapeDtypeStruct((4, 2, 8, 16), "float32")
    layer = {"query": kernel, "key": kernel, "value": kernel, "out": out}
    shapes = {"blocks": {"attention": {name: {"kernel": x} for name, x in layer.items()}}}
    plan(shapes, (Layers(Mimetic(), 0, 0.5), Layers(ZeroOut(), 0.5, 1)))
    with pytest.raises(InputError, match=r"pass \(Layers\(ZeroOut\), Layers\(Mimetic\)\)"):
        plan(shapes, (Layers(Mimetic(), 0, 0.75), Layers(ZeroOut(), 0.5, 1)))
    with pytest.raises(InputError, match="undo: take one of the two"):
        plan(jax.eval_shape(lambda: ROTARY), (CHANNEL, CHANNEL), rules=RULES)
