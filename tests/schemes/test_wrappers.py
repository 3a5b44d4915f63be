import dataclasses
import functools
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mimetic_jax
from mimetic_jax import InputError, schemes
from mimetic_jax.rules.rule import ROLES
from mimetic_jax.schemes import (
    Block,
    Context,
    Layers,
    MeanShift,
    Mimetic,
    NormMatched,
    Permuted,
    PositionalHeads,
    SinCos,
)
from tests.products import query_key, value_out
from tests.schemes.blocks import kernels
from tests.typical import typical

KEY = jax.random.key(0)
SHAPES = {
    **kernels(24, 3, 3, 8),
    **{"query_bias": (3, 8), "out_bias": (24,), "mlp_in": (24, 48), "mlp_in_bias": (48,)},
    **{"mlp_out": (48, 24), "token_in": (16, 64), "token_out": (64, 16)},
    **{"depthwise": (5, 5, 24), "relative_bias": (49, 4)},
}
RANDOM = np.random.default_rng(0)
DRAWS = {role: RANDOM.normal(0.01, 0.1, shape) for role, shape in SHAPES.items()}
BLOCK = Block.of({role: jnp.float32(array) for role, array in DRAWS.items()})
POSITION = jnp.float32(RANDOM.normal(size=(16, 24)))
PAIR = {role: {"kernel": BLOCK[role]} for role in ("query", "key")}


def blocks(count):
    return {f"block_{i}": {"attention": PAIR} for i in range(count)}


def draw(scheme):
    new = scheme(KEY, BLOCK, Context(0, 2, POSITION, (4, 4)))
    return {role: np.asarray(array, np.float64) for role, array in new.items()}


@typical(
    "like",
    [Mimetic(), MeanShift(), schemes.ZeroOut()],  # drawn, added to what exists, zero
    slow=[
        *(Mimetic(alpha_qk=None, beta_qk=None, beta_vo=(-0.4, 0.4)), schemes.TFixup()),
        *(schemes.Impulse(), schemes.ImpulseMixing(), schemes.ImpulseBias(), schemes.ConvMimetic()),
    ],
)
def test_controls_of_every_scheme(like):
    """Matched norms, and nothing of the structure."""
    target, matched = draw(like), draw(NormMatched(like))
    assert target.keys() == matched.keys()
    for role, array in target.items():
        norm = np.linalg.norm(array)
        assert np.linalg.norm(matched[role]) == pytest.approx(norm, rel=1e-5)
        if norm:
            assert abs(np.corrcoef(matched[role].ravel(), array.ravel())[0, 1]) < 0.3


@pytest.mark.parametrize("control", [NormMatched, Permuted])
def test_a_role_of_a_control_draws_the_same_whatever_else_is_written(control):
    whole = draw(control(Mimetic()))
    halves = Mimetic(alpha_vo=None, beta_vo=None), Mimetic(alpha_qk=None, beta_qk=None)
    for like in (*halves, Mimetic(zero_bias=False)):
        for role, array in draw(control(like)).items():
            np.testing.assert_array_equal(array, whole[role], err_msg=role)


def test_a_gain_beside_a_kernel_leaves_its_noise():
    kernel = {"mlp_in": jax.random.normal(KEY, (4, 8))}
    alone, beside = (
        NormMatched(MeanShift())(KEY, Block.of(kernel | gains), Context())["mlp_in"]
        for gains in ({}, {"mlp_gain": jnp.ones(4), "attention_gain": jnp.ones(4)})
    )
    np.testing.assert_array_equal(alone, beside)


def test_no_two_roles_of_a_block_draw_the_same_noise():
    """Of one shape each, whatever kinds of layers the block has."""
    drawn_anew = [role for role in ROLES if not role.endswith("_gain")]
    for roles in (drawn_anew, ["query", "mlp_in", "position"], ["mlp_in", "depthwise"]):
        block = Block.of({role: jnp.ones(8) for role in roles})
        drawn = NormMatched(Everything())(KEY, block, Context())
        assert len({tuple(np.asarray(array).tolist()) for array in drawn.values()}) == len(roles)


@dataclasses.dataclass(frozen=True)
class Everything(schemes.Scheme):
    """Writes every role as it is."""

    def writes(self, roles):
        return roles

    def draw(self, key, block, context):
        return dict(block)


CHANNELS = {"key": 0, "out": 2, "mlp_out": 1, "token_out": 1}
ALIGNED = [*(Mimetic(), schemes.Impulse(), schemes.CorrelatedMLP(), schemes.ImpulseMixing())]


@pytest.mark.parametrize("like", ALIGNED, ids=lambda scheme: type(scheme).__name__)
def test_permuted_reorders_channels_and_nothing_else(like):
    """The slices along one axis are those of `like`, so entries and singular values are too."""
    target, found = draw(like), draw(Permuted(like))
    channels = CHANNELS if "key" in target else CHANNELS | {"query": 0}
    assert target.keys() & channels.keys()
    orders = set()
    for role, array in target.items():
        if role not in channels:
            np.testing.assert_array_equal(found[role], array)
            continue
        before, after = (np.moveaxis(a, channels[role], 0) for a in (array, found[role]))
        order = [np.flatnonzero((before == one).reshape(len(before), -1).all(1)) for one in after]
        assert sorted(int(source[0]) for source in order) == list(range(len(before)))
        orders.add(tuple(int(source[0]) for source in order))
    assert len(orders) == len(target.keys() & channels.keys())  # an order of its own for each


def test_permuted_products_are_those_of_a_permutation_without_the_identity():
    """Of α = 0 the products are ±β times permutation matrices, far from the identity."""
    like = Mimetic(alpha_qk=0.0, alpha_vo=0.0)
    target, found = draw(like), draw(Permuted(like))
    whole = [query_key(k["query"], k["key"]).sum(axis=0) for k in (target, found)]
    joint = [value_out(k["value"], k["out"]).sum(axis=0) for k in (target, found)]
    for before, after in (whole, joint):
        assert abs(np.trace(before)) > 5 * abs(np.trace(after))
        np.testing.assert_allclose(np.linalg.norm(after), np.linalg.norm(before), rtol=1e-6)
    fixed = [np.isclose(joint[1], -0.4, atol=1e-5).sum(axis) for axis in (0, 1)]
    np.testing.assert_array_equal(fixed, 1)


def test_permuted_refuses_what_it_would_not_change():
    for like in (MeanShift(), SinCos()):
        name = type(like).__name__
        with pytest.raises(InputError, match=rf"Permuted\({name}\) would be {name} itself"):
            Permuted(like)


@pytest.mark.parametrize(
    ("bounds", "written"),
    [((2 / 3, 1), [4, 5]), ((0, 1 / 3), [0, 1]), ((0, 1), range(6)), ((0.4, 0.6), [2, 3])],
)
def test_layers_of_a_tree(bounds, written):
    params = blocks(6) | {"pos_embed": 0.02 * jnp.ones((1, 4, 24))}
    like = schemes.Zero()
    new = mimetic_jax.rewrite(KEY, params, Layers(like, *bounds))
    full = mimetic_jax.rewrite(KEY, params, like)
    for i in range(6):
        source = full if i in written else params
        jax.tree.map(np.testing.assert_array_equal, new[f"block_{i}"], source[f"block_{i}"])
    plan = mimetic_jax.plan(params, Layers(like, *bounds))
    assert {write.path.split("/")[0] for write in plan} == {f"block_{i}" for i in written}
    assert plan.depth == (("Layers", tuple(f"block_{i}/attention" for i in written)),)
    assert "pos_embed" in plan.untouched
    # The position table doesn't repeat with depth.
    moved = mimetic_jax.rewrite(KEY, params, Layers(SinCos(), *bounds), grid=(2, 2))
    assert bool((moved["pos_embed"] != params["pos_embed"]).any())


@pytest.mark.parametrize("bounds", [(0, 0.5, 1), (0, 1 / 3, 2 / 3, 1), (0, 0.1, 1)])
def test_adjacent_ranges_share_no_layer_and_miss_none(bounds):
    ranges = [Layers(schemes.Zero(), *pair) for pair in itertools.pairwise(bounds)]
    for depth in range(2, 13):
        for layer in range(depth):
            drawn = [one(KEY, BLOCK, Context(layer, depth)) for one in ranges]
            assert sum(not arrays["query"].any() for arrays in drawn) == 1
            assert sum(arrays["query"] is BLOCK["query"] for arrays in drawn) == len(ranges) - 1


@dataclasses.dataclass(frozen=True)
class OddLayers(schemes.Scheme):
    """Covers layers by its own law."""

    depends_on_layer = True

    def writes(self, roles):
        return roles & {"query", "key"}

    def covers(self, layer, num_layers):
        return layer % 2 == 1

    def draw(self, key, block, context):
        return Mimetic()(key, block, context)


@pytest.mark.parametrize(
    ("wrapper", "like"),
    [
        (NormMatched, OddLayers()),
        (NormMatched, Layers(Mimetic(), 0.25, 0.5)),
        (Permuted, Layers(Mimetic(), 0.25, 0.5)),
    ],
)
def test_controls_write_the_layers_that_their_scheme_writes(wrapper, like):
    params = blocks(4)

    def rewritten(tree):
        return mimetic_jax.rewrite(KEY, tree, wrapper(like))

    def written(new):
        queries = [new[f"block_{i}"]["attention"]["query"]["kernel"] for i in range(4)]
        return [not np.array_equal(query, BLOCK["query"]) for query in queries]

    eager, expected = rewritten(params), written(mimetic_jax.rewrite(KEY, params, like))
    assert written(eager) == expected
    assert 0 < sum(expected) < 4
    plans = [mimetic_jax.plan(params, scheme) for scheme in (like, wrapper(like))]
    assert len({tuple(write.path for write in plan) for plan in plans}) == 1
    trees = jax.jit(rewritten)(params), eager
    norms = (jax.tree.map(lambda a: float(jnp.linalg.norm(a)), tree) for tree in trees)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5), *norms)


@typical(
    ("dtype", "fused"),
    [(jnp.bfloat16, True)],
    slow=[(np.float64, True), (np.float64, False), (jnp.bfloat16, False)],
)
def test_other_layers_of_a_stack_keep_their_arrays(dtype, fused):
    """To rounding where storing means it: the query over √K, float64 that is read as float32."""
    rng = np.random.default_rng(0)
    if fused:
        shapes = {"qkv": (4, 24, 72), "out": (4, 24, 24)}
        rules = mimetic_jax.attention_rules(fused="qkv", stacked=True, flat=True, undivided=True)
    else:
        shapes = dict.fromkeys(("query", "key"), (4, 24, 3, 8))
        rules = mimetic_jax.attention_rules(stacked=True, undivided=True)
    tree = {name: {"kernel": rng.normal(size=s).astype(dtype)} for name, s in shapes.items()}

    def rewritten(tree):
        scheme, heads = Layers(Mimetic(), 0.5, 1), 3 if fused else None
        return mimetic_jax.rewrite(KEY, tree, scheme, rules=rules, num_heads=heads)

    for one in (tree, jax.tree.map(jnp.asarray, tree)):
        for new in (rewritten(one), jax.jit(rewritten)(one)):
            for name in tree:
                before, after = (np.asarray(t[name]["kernel"], np.float64) for t in (one, new))
                stored = before[:2].astype(new[name]["kernel"].dtype)
                np.testing.assert_allclose(after[:2], stored, rtol=2**-22)
                assert (after[2:] != before[2:]).any()


def test_a_range_without_a_layer_is_an_error():
    for call in (mimetic_jax.plan, functools.partial(mimetic_jax.rewrite, KEY)):
        with pytest.raises(InputError, match=r"Layers\(Mimetic\) skips every layer: block_0/att"):
            call(blocks(3), Layers(Mimetic(), 0.51, 0.6))


@dataclasses.dataclass(frozen=True)
class Undeclared(schemes.Scheme):
    """Its pair of numbers has nothing to do with depth; or it returns nothing."""

    ends: tuple[float, float] = (0.0, 1.0)
    nothing: bool = False

    def writes(self, roles):
        return roles & {"query"}

    def draw(self, key, block, context):
        return {} if self.nothing else {"query": jnp.full(block.shapes["query"], self.ends[1])}


def test_a_pair_of_numbers_is_no_dependence_on_depth():
    params = blocks(3)
    with pytest.raises(InputError, match=r"Undeclared returns \[\], but its writes\(\) lists"):
        mimetic_jax.rewrite(KEY, params, Undeclared(nothing=True))
    whole = Undeclared()
    assert mimetic_jax.plan(params, whole).depth == ()
    assert whole.at(1, 3) == whole
    new = mimetic_jax.rewrite(KEY, params, NormMatched(whole))
    assert bool((new["block_2"]["attention"]["query"]["kernel"] != BLOCK["query"]).all())


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ((0.8, 0.2), "first 0.8 and last 0.2 are not .* frac"),
        ((1, 4), r"Layers.*in \[0, 1\]; got 4 \(a fraction of depth: 0.5 is half"),
    ],
)
def test_what_is_no_range_of_depth(bounds, words):
    assert Layers(Mimetic(beta_vo=(-0.4, 0.4)), 0.5, 1).at(1, 2).like.beta_vo == 0.4
    with pytest.raises(InputError, match=words):
        Layers(Mimetic(), *bounds)


def test_a_constant_channel_is_of_all_layers():
    with pytest.raises(InputError, match="leave layers that write the constant channel"):
        Layers(NormMatched(PositionalHeads(100, channel=0)), 0.5, 1)


@pytest.mark.parametrize("wrapper", [NormMatched, Permuted, Layers])
def test_what_is_not_one_scheme_is_refused(wrapper):
    with pytest.raises(
        InputError, match=f"{wrapper.__name__}.like must be an instance of Scheme; got"
    ):
        wrapper(Mimetic)


@pytest.mark.parametrize("wrapper", [NormMatched, Permuted, Layers])
def test_several_schemes_are_wrapped_one_by_one(wrapper):
    each = f"({wrapper.__name__}(Mimetic()), {wrapper.__name__}(SinCos()))"
    with pytest.raises(InputError, match=rf"must have one scheme; got 2. Pass {re.escape(each)}"):
        wrapper((Mimetic(), SinCos()))
