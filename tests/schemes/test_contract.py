"""What holds for every scheme: any number of heads, `rewrite`, programs, odd values of fields."""

import contextlib
import dataclasses
import decimal
import fractions
import functools
import json
import math
import pathlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax import InputError, Rule, blocks, check, fit, plan, rewrite, schemes
from mimetic_jax.rules.flax import FLAX
from mimetic_jax.schemes import Context, Impulse, Mimetic, NormMatched, from_dict, to_dict
from mimetic_jax.schemes.base import REGISTRY, used_by
from tests.installing import printed_twice
from tests.products import query_key, value_out
from tests.schemes.blocks import biases, kernels, ones
from tests.typical import typical

KEY = jax.random.key(0)
GRID = (4, 4)
POSITIONAL = schemes.PositionalHeads(10_000)
TYPICAL = (
    *(Impulse(), Mimetic(), NormMatched(Mimetic()), schemes.Permuted(Mimetic())),
    *(schemes.MeanShift(0.1, per_input=True), schemes.SinCos(), schemes.TFixup(), schemes.Zero()),
)
"""Each way to draw; the arrays of the others come from functions of `weights`, tested there."""
LOOPED = (POSITIONAL, Mimetic())
RARE = (
    *(POSITIONAL, schemes.PositionalHeads(10_000, channel=1), schemes.ConstantBias(0.1)),
    *(schemes.ConvFilters("impulse"), schemes.ConvMimetic(), schemes.Cooccurrence()),
    *(schemes.CorrelatedMLP(-0.5), schemes.ImpulseBias(), schemes.ImpulseMixing()),
    *(schemes.Layers(Mimetic(), 0.0, 1.0), Mimetic(alpha_qk=0.0, beta_vo=0.0)),
    *(schemes.Unigram(), schemes.Bigram(), schemes.Whitened()),
    *(schemes.ZeroOut(), schemes.ZeroOut(mlp=True)),
)
EVERY = [*TYPICAL, *RARE]
OTHERS = {
    **{"mlp_in": (24, 48), "mlp_in_bias": (48,), "mlp_out": (48, 24), "mlp_out_bias": (24,)},
    **{"token_in": (16, 64), "token_out": (64, 16), "depthwise": (3, 3, 24)},
    **{"relative_bias": (25, 2), "shared_bias": (5, 5), "position": (16, 24)},
    **{"embedding": (2, 24), "unembedding_bias": (2,), "patch": (2, 2, 3, 24)},
    **{"unembedding": (2, 24)},
}
"""Roles of a block that has every kind of layer, beside those of attention."""

SIZES = [(24, 4, 4, 6), (24, 4, 2, 6), (24, 3, 1, 8), (24, 4, 4, 9), (24, 2, 2, 5)]
RULES = (
    Rule("embedding", "embedding", "t d", untied=True),
    Rule("decoder_bias", "unembedding_bias", "t"),
    Rule("unembedding", "unembedding", "t d"),
    Rule("norm/scale", "tied_gain", "d"),
    *FLAX,
)
COUNTS = np.array([[2.0, 1.0], [1.0, 0.0]])
every_scheme = pytest.mark.parametrize("scheme", EVERY, ids=str)


def options_for(*several: schemes.Scheme) -> dict[str, Any]:
    """Rules, and the counts that some of the schemes read."""
    used = used_by(several)
    return {"rules": RULES} | {x: COUNTS for x in ("counts", "following") if x in used}


@contextlib.contextmanager
def strictly() -> Iterator[None]:
    """Under JAX's checks for a user's own code: no implicit ranks, no implicit dtypes."""
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        yield


def tree(dtype: str = "float32") -> dict[str, jax.Array]:
    """A block with every kind of layer, by the names that our models give them."""
    layers = {f"attention/{name}": shape for name, shape in kernels(16, 2, 2, 8).items()}
    for mlp in ("mlp", "token_mixing"):
        layers |= {f"{mlp}/fc1": (16, 64), f"{mlp}/fc2": (64, 16)}
    layers |= {"depthwise": (3, 3, 1, 16), "mixer/conv": (4, 6)}
    of_biases = {name: shape[1:] for name, shape in layers.items()}
    of_biases |= {"attention/out": (16,), "depthwise": (16,)}
    layers |= {"mixer/b": (16, 8), "mixer/c": (16, 8)}
    others = {"attention/relative_bias": (25, 2), "attention/shared_bias": (5, 5)}
    others |= {"mixer/A_log": (4,), "mixer/dt_bias": (4,)}
    shapes = {f"block_0/{name}/kernel": shape for name, shape in layers.items()}
    shapes |= {f"block_0/{name}/bias": shape for name, shape in of_biases.items()}
    shapes |= {f"block_0/{name}": shape for name, shape in others.items()}
    # The table of positions belongs to the patches, whose embedding is the nearer one.
    shapes |= {"vision/pos_embed": (1, 17, 16), "vision/patch_embed/kernel": (12, 16)}
    shapes |= {"embedding": (2, 16), "decoder_bias": (2,), "unembedding": (2, 16)}
    shapes |= {"norm/scale": (16,)}
    random = np.random.default_rng(0)
    draws = {path: random.normal(size=shape, scale=0.1) for path, shape in shapes.items()}
    return {path: jnp.asarray(array, dtype) for path, array in draws.items()}


def tree_for(scheme: schemes.Scheme, dtype: str = "float32") -> dict[str, jax.Array]:
    """The block without a table of positions, if the scheme is for rotary ones."""
    leaves = tree(dtype)
    if hasattr(scheme, "base"):
        del leaves["vision/pos_embed"]
    return leaves


def seen(params: dict[str, jax.Array]) -> list[dict[str, np.ndarray]]:
    """The blocks of a tree, of attention its products: factors of an SVD have arbitrary signs."""
    found = []
    for _, _, block in blocks(params, rules=RULES):
        arrays = {role: np.asarray(array, np.float64) for role, array in block.items()}
        if "query" in arrays:
            query, key, value, out = (arrays.pop(r) for r in ("query", "key", "value", "out"))
            arrays["query_key"] = query_key(query, key)
            arrays["value_out"] = value_out(value, out).sum(axis=0)
        found.append(arrays)
    return found


def test_every_scheme_is_here():
    assert OURS.keys() == {type(scheme).__name__ for scheme in EVERY}


DENSE = "query key value out mlp_in mlp_in_bias mlp_out"
WRITES = [
    # Half an attention layer still counts as one, and no biases are added.
    (schemes.Zero(), "query key key_bias mlp_in position", "query key key_bias"),
    (schemes.TFixup(), f"{DENSE} value_bias", f"{DENSE} value_bias"),
    (schemes.ZeroOut(), f"{DENSE} out_bias", "out out_bias"),
    (schemes.ZeroOut(mlp=True), f"{DENSE} out_bias", "out out_bias mlp_out"),
    (
        schemes.ZeroOut(mlp=True, attention=False),
        f"{DENSE} out_bias token_out",
        "mlp_out token_out",
    ),
    (schemes.ImpulseBias(), "query key relative_bias", "relative_bias"),
    (schemes.ImpulseMixing(), "token_in token_in_bias token_out", "token_in token_out"),
    (schemes.MeanShift(), "mlp_in mlp_in_bias mlp_out", "mlp_in"),
    (schemes.CorrelatedMLP(-0.5), "mlp_in mlp_out mlp_out_bias", "mlp_out"),
    (schemes.ConstantBias(0.01), "mlp_in mlp_in_bias", "mlp_in_bias"),
    (schemes.Cooccurrence(), "embedding unembedding unembedding_bias", "embedding"),
    (schemes.Cooccurrence(std=1.0), "embedding position tied_gain", "embedding position tied_gain"),
    (schemes.Cooccurrence(std=1.0), "position", ""),
    (schemes.Unigram(), "embedding unembedding unembedding_bias", "unembedding_bias"),
    (schemes.Unigram(), "embedding unembedding", "unembedding"),
    (schemes.Bigram(), "embedding unembedding unembedding_bias", "unembedding"),
    (schemes.NormMatched(Mimetic()), "query key position", "query key"),
]


@pytest.mark.parametrize(("scheme", "roles", "written"), WRITES, ids=str)
def test_what_it_writes_of_a_block(scheme, roles, written):
    assert scheme.writes(frozenset(roles.split())) == set(written.split())
    assert not scheme.writes(frozenset({"value", "value_bias"})), "a lone layer is no attention"


@every_scheme
def test_jax_takes_it_for_a_tree_without_leaves(scheme):
    structure, again = map(jax.tree.structure, (scheme, dataclasses.replace(scheme)))
    assert structure.num_leaves == 0
    assert (structure, hash(structure)) == (again, hash(again))


@every_scheme
def test_any_number_of_heads(scheme):
    position = jax.random.normal(KEY, (16, 24))
    surveyed = {"rows": jnp.ones((2, 24))} if isinstance(scheme, schemes.Bigram) else None
    turns = "turned" in {field.name for field in dataclasses.fields(scheme)}  # columns in pairs
    for sizes in (sizes for sizes in SIZES if not (turns and sizes[-1] % 2)):
        block = ones(kernels(*sizes) | biases(*sizes) | OTHERS)
        new = jax.eval_shape(
            lambda key, block=block: scheme(
                key,
                block,
                Context(11, 12, position, GRID, counts=COUNTS, following=COUNTS, surveyed=surveyed),
            ),
            KEY,
        )
        assert new.keys() == scheme.writes(frozenset(block)) != set()
        for role, array in new.items():
            assert (array.shape, array.dtype) == (block.shapes[role], jnp.float32)


def written(key: jax.Array, scheme: schemes.Scheme) -> dict[str, jax.Array]:
    """What `plan` lists, and nothing else."""
    before = tree_for(scheme)
    listed = {write.path for write in plan(before, scheme, **options_for(scheme))}
    new = rewrite(key, before, scheme, **options_for(scheme))
    assert all((new[path] is leaf) == (path not in listed) for path, leaf in before.items())
    return {path: new[path] for path in sorted(listed)}


@functools.cache
def drawn_together(several: tuple[schemes.Scheme, ...]) -> dict[schemes.Scheme, Any]:
    """What each writes for the second of two keys, all in one program."""
    keys = jnp.stack([jax.random.key(1), KEY])
    with strictly():
        drawn = jax.jit(jax.vmap(lambda key: [written(key, scheme) for scheme in several]))(keys)
    return dict(zip(several, jax.tree.map(lambda leaf: leaf[1], drawn), strict=True))


def assert_same_blocks(scheme, ours, theirs, tolerance):
    """Impulses come from pseudo-inverses, in which rounding grows."""
    tolerance = 1e-3 if scheme == Impulse() else tolerance
    for found, expected in zip(seen(ours), seen(theirs), strict=True):
        for role, array in found.items():
            atol = tolerance * max(1, np.abs(array).max())
            np.testing.assert_allclose(array, expected[role], atol=atol, err_msg=role)


@typical("scheme", TYPICAL, slow=RARE)
def test_through_rewrite_alone_and_for_several_keys_at_once(scheme):
    before, alone = tree_for(scheme), written(KEY, scheme)
    inside = drawn_together(TYPICAL if scheme in TYPICAL else RARE)[scheme]
    assert_same_blocks(scheme, before | inside, before | alone, 3e-5)
    unchanged = {path for path, leaf in alone.items() if np.array_equal(before[path], leaf)}
    assert all(path.endswith("bias") for path in unchanged)
    half = tree_for(scheme, "bfloat16")
    with strictly():
        half = jax.eval_shape(lambda key: rewrite(key, half, scheme, **options_for(scheme)), KEY)
    assert {leaf.dtype for leaf in half.values()} == {jnp.dtype("bfloat16")}


@typical("scheme", LOOPED, slow=[scheme for scheme in EVERY if scheme not in LOOPED])
def test_stacked_layers_alone_and_in_a_program(scheme):
    """As `nn.scan` stacks them: a traced stack is drawn in a loop over its layers."""
    before = {
        path.replace("block_0/", "blocks/"): jnp.stack([leaf, leaf[::-1]])
        if path.startswith("block_0/")
        else leaf
        for path, leaf in tree_for(scheme).items()
    }
    alone = rewrite(KEY, before, scheme, **options_for(scheme))
    inside = jax.jit(lambda params: rewrite(KEY, params, scheme, **options_for(scheme)))(before)
    assert_same_blocks(scheme, inside, alone, 3e-5)


@every_scheme
def test_no_key_is_used_twice(scheme):
    """JAX's check for it is a user's to turn on; two draws from one key would be one draw."""
    with jax.debug_key_reuse(True):
        jax.eval_shape(
            lambda key: rewrite(key, tree_for(scheme), scheme, **options_for(scheme)), KEY
        )


def test_what_reads_a_tree():
    params = {path: leaf for path, leaf in tree("bfloat16").items() if "attention" in path}
    with strictly():
        params = rewrite(KEY, params, Mimetic())
        for text in (plan(params, Mimetic()), check(params), fit(params)):
            assert "attention" in str(text)


ODD = [
    None, True, 0, -1, 3, 2**31, 10**400, 0.5, -0.0, 1e20, 1e-320, math.inf, math.nan, 1j, "", "²",
    "1", "x\0", "\ud800", b"1", (), (0.1, 0.2), [0.1], (math.nan,), {"a": 1}, {1}, abs,
    lambda depth: depth, fractions.Fraction(1, 3), decimal.Decimal("0.1"), pathlib.Path("x"),
    np.float32(0.1), np.int64(2), np.array(0.3), np.array([0.1, 0.2]), jnp.array(0.3), jnp.ones(2),
    np.array(["a"]), object(), Mimetic(), Mimetic, (Mimetic(), 3),
]  # fmt: skip
NEEDED = {"like": Mimetic(), "scheme": Mimetic(), "counts": ((0, 2), (1, 0))}
OURS = {name: kind for name, kind in REGISTRY.items() if kind.__module__.startswith("mimetic_jax.")}


def made(kind, fields):
    needed = {
        field.name: NEEDED[field.name]
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.name in NEEDED
    }
    return kind(**needed | fields)


@pytest.mark.parametrize("name", sorted(OURS))
def test_a_field_is_refused_in_one_line_or_kept_as_data(name):
    refused: list[str] = []
    for field in dataclasses.fields(OURS[name]):
        for value in ODD:
            try:
                scheme = made(OURS[name], {field.name: value})
            except InputError as error:
                refused.append(str(error))
                continue
            assert hash(scheme) == hash(dataclasses.replace(scheme))
            kept = getattr(scheme, field.name)
            if isinstance(kept, schemes.Scheme) or not callable(kept):
                assert from_dict(json.loads(json.dumps(to_dict(scheme)))) == scheme
    assert all("\n" not in words and len(words) < 600 for words in refused)


PROGRAMS = """
import functools, hashlib, jax
from mimetic_jax import rewrite
from tests.schemes.test_contract import EVERY, KEY, options_for, tree_for
for scheme in EVERY:
    draw = functools.partial(rewrite, scheme=scheme, **options_for(scheme))
    program = jax.jit(draw).lower(KEY, tree_for(scheme)).as_text()
    print(scheme, hashlib.sha256(program.encode()).hexdigest())
"""


@pytest.mark.slow
def test_programs_are_the_same_in_every_process():
    """Else JAX's compilation cache misses in each: the order of a set differs between processes."""
    first, second = printed_twice(PROGRAMS)
    assert first == second
    assert first.count("\n") == len(EVERY)


class Recorded(Context):
    """A context that notes what is read of it."""

    def __getattribute__(self, name):
        object.__getattribute__(self, "__dict__").setdefault("read", set()).add(name)
        return super().__getattribute__(name)


@every_scheme
def test_a_scheme_uses_what_its_draw_reads(scheme):
    """Anything else may not be passed."""
    shapes = kernels(24, 2, 2, 12) | biases(24, 2, 2, 12) | OTHERS
    context = Recorded(0, 1, jnp.ones((16, 24)), GRID, counts=COUNTS, following=COUNTS)
    with contextlib.suppress(InputError):  # of a scheme that reads a whole network
        jax.eval_shape(lambda: scheme(KEY, ones(shapes), context))
    data = {"grid", "counts", "following", "covariance"}
    read = {"grid" if name == "position" else name for name in vars(context)["read"]}
    assert read & data == scheme.uses
    for name in data - scheme.uses:
        with pytest.raises(InputError, match=rf"no scheme of \(.*\) uses {name}: leave {name} out"):
            plan(tree_for(scheme), scheme, **options_for(scheme), **{name: COUNTS})
    assert plan(
        tree_for(scheme), scheme, **options_for(scheme), **dict.fromkeys(data - scheme.uses)
    )


@pytest.mark.parametrize("inner", [schemes.Cooccurrence(), schemes.SinCos(), schemes.Whitened()])
def test_wrappers_use_what_the_scheme_inside_uses(inner):
    outer = schemes.Layers(NormMatched(inner), 0, 1)
    assert used_by([Mimetic(), outer]) == inner.uses == outer.uses != frozenset()
