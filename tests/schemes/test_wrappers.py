from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mimetic_jax
from mimetic_jax import InputError, schemes
from mimetic_jax.schemes import (
    Block,
    Context,
    Layers,
    MeanShift,
    Mimetic,
    NormMatched,
    Polar,
    Shuffled,
    SinCos,
)

KEY = jax.random.key(0)
SHAPES = {
    "query": (24, 3, 8),
    "key": (24, 3, 8),
    "value": (24, 3, 8),
    "out": (3, 8, 24),
    "query_bias": (3, 8),
    "out_bias": (24,),
    "mlp_in": (24, 48),
    "mlp_in_bias": (48,),
    "mlp_out": (48, 24),
}
BLOCK = Block.of(
    {role: 0.1 * jax.random.normal(KEY, shape) + 0.01 for role, shape in SHAPES.items()}
)
# One of each kind of array: drawn, given by depth, fixed, added to what exists, zero.
OTHERS = [
    Mimetic(),
    Mimetic(alpha_qk=None, beta_qk=None, beta_vo=(-0.4, 0.4)),
    schemes.Conditioned(),
    schemes.DCT(),
    schemes.Orthogonal(),
    schemes.Sinusoidal(),
    schemes.ZeroOut(),
    MeanShift(),
]


def draw(scheme, layer=0, num_layers=2):
    new = scheme(KEY, BLOCK, Context(layer, num_layers))
    return {role: np.asarray(array, np.float64) for role, array in new.items()}


def heads_of(role, kernel):
    """[heads, rows, columns]; an MLP kernel is one head."""
    if role in ("query", "key", "value"):
        return kernel.transpose(1, 0, 2)
    return kernel if kernel.ndim == 3 else kernel[None]


@pytest.mark.parametrize("like", OTHERS, ids=lambda scheme: type(scheme).__name__)
def test_controls_of_every_scheme(like):
    """Matched norms, permuted entries, and nothing of the structure."""
    target, matched, shuffled = (draw(s) for s in (like, NormMatched(like), Shuffled(like)))
    assert target.keys() == matched.keys() == shuffled.keys()
    for role, array in target.items():
        norm = np.linalg.norm(array)
        assert np.linalg.norm(matched[role]) == pytest.approx(norm, rel=1e-5)
        np.testing.assert_array_equal(np.sort(shuffled[role].ravel()), np.sort(array.ravel()))
        if norm:
            controls = np.stack([x.ravel() - x.mean() for x in (matched[role], shuffled[role])])
            centered = array.ravel() - array.mean()
            assert np.abs(np.corrcoef([*controls, centered])[np.triu_indices(3, 1)]).max() < 0.3


def test_shuffled_destroys_the_product_and_keeps_the_mean():
    value_out = np.einsum("dhk,hkd->d", *(draw(Shuffled(Mimetic()))[r] for r in ("value", "out")))
    assert abs(value_out.mean()) < 0.2
    assert draw(Shuffled(MeanShift(2.0)))["mlp_in"].mean() == pytest.approx(
        draw(MeanShift(2.0))["mlp_in"].mean(), rel=1e-5
    )


def test_arms_of_one_seed_share_what_the_schemes_leave():
    """A control writes what its scheme writes, so that arms differ there alone."""
    roles = frozenset(SHAPES)
    for like in OTHERS:
        for wrapper in (NormMatched(like), Shuffled(like), Polar(like), Layers(like)):
            assert wrapper.writes(roles) == like.writes(roles)


@pytest.mark.parametrize("like", OTHERS, ids=lambda scheme: type(scheme).__name__)
def test_polar_has_equal_singular_values_and_the_norm(like):
    target, found = draw(like), draw(Polar(like))
    for role, array in target.items():
        if role.endswith("_bias") or not array.any():
            np.testing.assert_array_equal(found[role], array)
            continue
        assert np.linalg.norm(found[role]) == pytest.approx(np.linalg.norm(array), rel=1e-5)
        if isinstance(like, schemes.Sinusoidal):
            continue  # half of its directions are zero
        values = np.linalg.svd(heads_of(role, found[role]), compute_uv=False)
        np.testing.assert_allclose(values, values.mean(), rtol=1e-4)


def test_polar_mimetic_still_leans_to_the_identity():
    """s² U Vᵀ of the singular vectors that Mimetic keeps, by float64's SVD."""
    target, found = draw(Mimetic()), draw(Polar(Mimetic()))
    product, polar = (np.einsum("dhk,ehk->hde", k["query"], k["key"]) for k in (target, found))
    left, _, right = np.linalg.svd(product)
    expected = left[..., :8] @ right[:, :8]
    scale = np.linalg.norm(found["query"]) * np.linalg.norm(found["key"]) / 24
    np.testing.assert_allclose(polar, scale * expected, atol=1e-4 * scale)
    # Value and out of all heads together, whose singular values Mimetic sorts over heads.
    value, out = found["value"].reshape(24, 24), found["out"].reshape(24, 24)
    np.testing.assert_allclose(
        np.linalg.svd(value @ out, compute_uv=False), np.linalg.norm(value) ** 2 / 24, rtol=1e-4
    )
    assert np.trace(value @ out) < -0.5 * np.linalg.norm(value) ** 2


@pytest.mark.parametrize(
    ("bounds", "written"),
    [((2 / 3, 1), [4, 5]), ((0, 1 / 3), [0, 1]), ((0, 1), range(6)), ((0.4, 0.6), [2, 3])],
)
def test_layers_of_a_tree(bounds, written):
    leaves = {
        name: {"kernel": BLOCK[role]} for role, name in {"query": "query", "key": "key"}.items()
    }
    table = 0.02 * jnp.ones((1, 4, 24))
    params = {f"block_{i}": {"attention": leaves} for i in range(6)} | {"pos_embed": table}
    like = schemes.Zero()
    new = mimetic_jax.rewrite(KEY, params, Layers(like, *bounds))
    full = mimetic_jax.rewrite(KEY, params, like)
    for i in range(6):
        source = full if i in written else params
        jax.tree.map(np.testing.assert_array_equal, new[f"block_{i}"], source[f"block_{i}"])
    # The position table doesn't repeat with depth.
    moved = mimetic_jax.rewrite(KEY, params, Layers(SinCos(), *bounds))
    assert bool((moved["pos_embed"] != table).any())


def test_layers_resolve_what_they_contain():
    like = Layers(Mimetic(beta_vo=(-0.4, 0.4)), 0.5, 1)
    assert like.at(1, 2).like.beta_vo == 0.4
    assert hash(like) == hash(dataclasses.replace(like))


@pytest.mark.parametrize("bounds", [(0.5, 0.5), (0.8, 0.2)])
def test_a_range_outside_the_depth(bounds):
    with pytest.raises(InputError, match=f"first {bounds[0]} and last {bounds[1]} are not"):
        Layers(Mimetic(), *bounds)


@pytest.mark.parametrize("wrapper", [NormMatched, Shuffled, Polar, Layers])
@pytest.mark.parametrize("like", [(SinCos(), Mimetic()), Mimetic, None])
def test_what_is_not_one_scheme_is_refused(wrapper, like):
    with pytest.raises(
        InputError, match=f"{wrapper.__name__}.like .* is not an instance of Scheme"
    ):
        wrapper(like)
