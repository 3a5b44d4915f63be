import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal
import scipy.special

from mimetic_jax import InputError
from mimetic_jax.schemes import Context, ImpulseMixing
from mimetic_jax.weights import impulse, sincos_2d
from mimetic_jax.weights.impulse import impulse_matrices, impulse_query_key, offsets, random_offsets
from tests.products import query_key
from tests.schemes.blocks import ones

KEY = jax.random.key(7)


def table(count, dim, seed=0):
    """The position table that all ViTs start with."""
    return 0.02 * jax.random.normal(jax.random.key(seed), (count, dim))


def hit_and_mass(attention, intended):
    """Over rows whose target is in the grid: how many attend to it most, and its mean weight."""
    rows = intended.sum(axis=-1) > 0
    hits = attention.argmax(axis=-1) == intended.argmax(axis=-1)
    return hits[rows].mean(), (attention * intended).sum(axis=-1)[rows].mean()


def attention_maps(query, key, tokens):
    """softmax(X Q Kᵀ Xᵀ / √K), [H, N, N]."""
    tokens = np.asarray(tokens, np.float64)
    queries, keys = (
        np.einsum("nd,dhk->hnk", tokens, np.asarray(x, np.float64)) for x in (query, key)
    )
    return scipy.special.softmax(queries @ keys.mT / np.sqrt(query.shape[-1]), axis=-1)


GROUPED = {"num_heads": 6, "num_kv_heads": 3, "head_dim": 32}
LARGE = {"num_heads": 4, "head_dim": 32, "kernel_size": 5}


@pytest.mark.parametrize(
    ("grid", "position", "options", "shifts", "least"),
    [
        ((6, 6), table(36, 64), GROUPED, offsets(3, 3), 0.95),
        ((6, 10), table(60, 64), LARGE, offsets(5, 4), 0.95),
    ],
    ids=["grouped heads", "a larger filter"],
)
def test_maps_are_impulses(grid, position, options, shifts, least):
    """Also on a grid that isn't square."""
    query, key = impulse_query_key(KEY, position, grid, **options)
    repeats = query.shape[1] // key.shape[1]
    np.testing.assert_array_equal(query, query[:, ::repeats].repeat(repeats, axis=1))
    maps = attention_maps(query[:, ::repeats], key, impulse.layer_norm(position))
    for attention, intended in zip(maps, impulse_matrices(grid, shifts), strict=True):
        hit, mass = hit_and_mass(attention, intended)
        assert hit >= least
        assert mass >= 0.6


def test_positive_filters_are_convolutions_that_sum_to_one():
    """At full rank the logits on positions are the target itself, up to one factor."""
    position, shape = table(20, 32), (4, 5)
    options = {"head_dim": 20, "noise": 1e-9, "order": "positive"}
    query, key = impulse_query_key(KEY, position, shape, 2, **options)
    tokens = np.asarray(impulse.layer_norm(position))
    image = np.random.default_rng(0).normal(size=shape)
    filters = []
    for logits in tokens @ query_key(query, key) @ tokens.T:
        logits = logits / logits[6].sum()  # of the token at (1, 1), whose neighbors are all inside
        filters.append(logits[6].reshape(shape)[:3, :3])
        expected = scipy.signal.correlate2d(image, filters[-1], mode="same").ravel()
        np.testing.assert_allclose(logits @ image.ravel(), expected, atol=1e-3)
    assert np.min(filters) > 0
    assert np.abs(filters[0] - filters[1]).max() > 0.02


def test_maps_of_positive_filters_are_far_from_them():
    """The paper's "inefficient": most of the attention is on the filter, and not as it says."""
    position = table(196, 192)
    query, key = impulse_query_key(KEY, position, (14, 14), 3, order="positive")
    attention = attention_maps(query, key, impulse.layer_norm(position))
    draw = jax.random.split(KEY, 3)[0]
    intended = np.asarray(impulse._positive_matrices(draw, (14, 14), 3, 3))
    inside = intended.sum(axis=-1) > 0.999
    distance = np.abs(attention - intended).sum(axis=-1)[inside].mean() / 2
    assert (attention * (intended > 0)).sum(axis=-1)[inside].mean() > 0.6
    assert 0.7 < distance < 0.85


def test_random_offsets_of_the_papers_text():
    """Each head attends to a neighbor that the key draws, none to that of another."""
    grid, position = (6, 6), table(36, 128)
    drawn = []
    for seed in range(3):
        query, key = impulse_query_key(jax.random.key(seed), position, grid, 4, order="random")
        maps = attention_maps(query, key, impulse.layer_norm(position))
        targets = impulse_matrices(grid, offsets(3, 9))
        masses = [[hit_and_mass(ours, target)[1] for target in targets] for ours in maps]
        drawn.append(tuple(np.argmax(masses, axis=1)))
        assert np.max(masses, axis=1).min() > 0.6
        assert len(set(drawn[-1])) == 4
    assert len(set(drawn)) == 3


def test_scattered_impulses_differ_from_impulses_in_their_targets_alone():
    """As many rows have a target, each another one; the target is another head's and no neighbor,
    and the same for every key."""
    grid, position = (8, 8), table(64, 96)
    shifted = impulse_matrices(grid, offsets(3, 3))
    targets = impulse._scattered(shifted)
    np.testing.assert_array_equal(targets.sum(axis=2), shifted.sum(axis=2))
    assert targets.sum(axis=1).max() == 1
    rows = shifted.sum(axis=2) > 0
    hits = (targets.argmax(axis=2) == shifted.argmax(axis=2))[rows]
    shared = np.einsum("hnm,gnm->hg", targets, targets) / targets.sum(axis=(1, 2))
    assert max(hits.mean(), shared[~np.eye(3, dtype=bool)].max()) < 0.1
    maps, plain = (
        attention_maps(
            *impulse_query_key(jax.random.key(seed), position, grid, 3, order=order),
            impulse.layer_norm(position),
        )
        for seed, order in ((5, "scattered"), (7, "released"))
    )
    found = [hit_and_mass(*pair) for pair in zip(maps, targets, strict=True)]
    released = [hit_and_mass(*pair) for pair in zip(plain, shifted, strict=True)]
    assert np.min(found, axis=0)[0] > 0.95
    np.testing.assert_allclose(np.mean(found, axis=0), np.mean(released, axis=0), atol=0.08)
    tokens = [np.exp(scipy.special.entr(ours).sum(axis=-1)).mean() for ours in (maps, plain)]
    assert tokens[0] == pytest.approx(tokens[1], rel=0.2)  # from positions alone


def test_only_the_ratio_of_amplitude_to_noise_matters():
    position = table(16, 32)
    released = impulse_query_key(KEY, position, (4, 4), 4)
    scaled = impulse_query_key(KEY, position, (4, 4), 4, amplitude=500.0, noise=0.9)
    np.testing.assert_allclose(query_key(*released), query_key(*scaled), atol=1e-5)


def test_offsets_of_all_sizes():
    assert offsets(1, 2).tolist() == [[0, 0], [0, 0]]
    center_and_edges = [[0, 0], [-1, 0], [0, 1], [0, -1], [1, 0]]
    corners = [[-1, -1], [-1, 1], [1, -1], [1, 1]]
    assert offsets(3, 9).tolist() == center_and_edges + corners  # as in the released code
    np.testing.assert_array_equal(offsets(3, 12)[9:], offsets(3, 3))
    large = offsets(5, 25)
    np.testing.assert_array_equal(large[:9], offsets(3, 9))
    assert len({tuple(at) for at in large.tolist()}) == 25
    assert (np.diff((large**2).sum(axis=1)) >= 0).all()


def test_random_offsets_do_not_repeat_and_differ_by_key():
    drawn = np.asarray(jax.vmap(lambda key: random_offsets(key, 3, 12))(jax.random.split(KEY, 8)))
    for one in drawn:
        assert sorted(one[:9].tolist()) == sorted(offsets(3, 9).tolist())
        np.testing.assert_array_equal(one[9:], one[:3])
    assert len({one.tobytes() for one in drawn}) == 8


def test_noise_is_fresh_by_key_and_head():
    position, sizes = table(16, 32), {"num_heads": 10, "head_dim": 8}
    same, other = (
        query_key(*impulse_query_key(jax.random.key(seed), position, (4, 4), **sizes))
        for seed in (7, 8)
    )
    # Head 9 has the offset of head 0 again.
    for a, b in ((same[0], same[9]), (same[0], other[0])):
        assert np.abs(a - b).max() > 1e-4
        assert np.vdot(a, b) > 0.9 * np.vdot(a, a)


def test_sincos_tables_are_refused():
    position = sincos_2d(14, 14, 192)
    words = "numerical rank 17 and 64 is needed: use random positions"
    with pytest.raises(InputError, match=words):
        impulse_query_key(KEY, position, (14, 14), 3)
    # A concrete table is checked inside a program too.
    with pytest.raises(InputError, match="numerical rank 17"):
        jax.eval_shape(lambda key: impulse_query_key(key, position, (14, 14), 3), KEY)


def test_a_weak_traced_table_stays_finite():
    """A program can't raise; directions too weak to invert are dropped."""
    position = sincos_2d(14, 14, 192)
    kernels = jax.jit(lambda key, p: impulse_query_key(key, p, (14, 14), 3))(KEY, position)
    for product in query_key(*kernels):
        assert np.isfinite(product).all()
        assert 1 < np.linalg.norm(product) <= 49 * (1 + 1e-4)


def test_a_traced_table_without_directions_gives_a_query_of_zero():
    """Attention starts uniform, and the query still gets a gradient through the key."""
    position = jnp.ones((16, 8))
    query, key = jax.jit(lambda p: impulse_query_key(KEY, p, (4, 4), 2))(position)
    np.testing.assert_array_equal(query, 0)
    np.testing.assert_allclose(np.linalg.norm(key, axis=(0, 2)), 7 * (4 / 64) ** 0.5, rtol=1e-5)


def test_grids_smaller_than_the_filter_stay_finite():
    query, _ = impulse_query_key(KEY, table(16, 32), (1, 16), 4)
    mixing = ImpulseMixing()(KEY, ones({"token_in": (1, 9), "token_out": (9, 1)}), Context())
    for kernel in (query, *mixing.values()):
        assert np.isfinite(kernel).all()
