"""Where attention looks by positions alone, against sums by hand and what is known of impulses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

import mimetic_jax
from mimetic_jax.models import Model
from mimetic_jax.schemes import Impulse, NormMatched
from mimetic_jax.trained.aim import LARGEST, aim, own_targets
from mimetic_jax.trained.check import aims
from mimetic_jax.weights import impulse_query_key
from mimetic_jax.weights.impulse import impulse_matrices, offsets

KEY = jax.random.key(3)


def test_an_aim_is_counted_by_hand():
    rng = np.random.default_rng(0)
    maps = scipy.special.softmax(3 * rng.normal(size=(2, 3, 12, 12)), axis=-1)
    shifts = np.array([[0, 0], [0, 1], [-1, 0]])
    found = aim(maps, impulse_matrices((3, 4), shifts))
    for image, head in np.ndindex(2, 3):
        hits, weights, tokens = [], [], []
        for n in range(12):
            row = maps[image, head, n]
            tokens.append(np.exp(-np.sum(row * np.log(row))))
            at = np.add(divmod(n, 4), shifts[head])
            if 0 <= at[0] < 3 and 0 <= at[1] < 4:
                weights.append(row[at[0] * 4 + at[1]])
                hits.append(weights[-1] == row.max())
        ours = (found.hits[image, head], found.weights[image, head], found.tokens[image, head])
        np.testing.assert_allclose(ours, tuple(map(np.mean, (hits, weights, tokens))))


def test_the_own_offset_is_the_one_of_most_rows():
    rng = np.random.default_rng(1)
    shifts = np.array([[1, -1], [0, 0], [-2, 3]])
    targets = impulse_matrices((5, 6), shifts)
    maps = targets + 0.01 * rng.random((2, *targets.shape))
    np.testing.assert_array_equal(own_targets(maps, (5, 6)), targets)


@pytest.mark.parametrize("pool", ["mean", "token"])
def test_check_finds_impulses_by_positions_alone(pool):
    """At the share of rows that the paper's network has, and not in noise of their norms."""
    sizes = {"width": 96, "depth": 2, "heads": 3, "patch": 4, "num_classes": 3, "pool": pool}
    model, images = Model.of("vit", sizes), jnp.ones((1, 32, 32, 3))
    params = jax.jit(model.init)(KEY, images)[0]["params"]
    impulses, noise = (
        mimetic_jax.check(mimetic_jax.rewrite(KEY, params, scheme))
        for scheme in (Impulse(), NormMatched(Impulse()))
    )
    table = params["pos_embed"][0, -64:] * 18
    query, key = impulse_query_key(KEY, table, (8, 8), 3)
    tokens = np.asarray(jax.nn.standardize(table, axis=1))
    logits = np.einsum("nd,dhk,ehk,me->hnm", tokens, query, key, tokens, optimize=True) / 32**0.5
    expected = aim(scipy.special.softmax(logits, -1), impulse_matrices((8, 8), offsets(3, 3)))
    for layer in impulses.aims:
        assert layer.count == 64
        assert layer.aim.hits.min() > 0.97
        np.testing.assert_allclose(layer.aim.weights, expected.weights, atol=0.03)
        np.testing.assert_allclose(layer.aim.tokens, expected.tokens, rtol=0.15)
    assert len(impulses.aims) == len(noise.aims) == 2
    alone = aims(mimetic_jax.rewrite(KEY, params, Impulse()))
    assert [str(layer) for layer in alone] == [str(layer) for layer in impulses.aims]
    assert max(layer.aim.hits.max() for layer in noise.aims) < 0.4
    assert "in 2 of 2 layers fewer than half of the rows" in str(noise)
    assert "fewer than half" not in str(impulses)
    assert "block_1/attention  100%" in str(impulses)


@pytest.mark.parametrize("count", [0, LARGEST + 65])
def test_no_maps_without_positions_on_a_grid_that_is_small_enough(count):
    kernels = {"query": (32, 2, 16), "key": (32, 2, 16)}
    draws = {name: {"kernel": jax.random.normal(KEY, shape)} for name, shape in kernels.items()}
    table = {"pos_embed": jnp.ones((1, count, 32))} if count else {}
    assert mimetic_jax.check({"attention": draws, **table}).aims == ()
