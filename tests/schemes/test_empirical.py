from __future__ import annotations

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mimetic_jax
from mimetic_jax import InputError, block_key
from mimetic_jax.analysis import covariance, exchangeable
from mimetic_jax.schemes import Block, Context, Empirical, NormMatched
from mimetic_jax.weights import exchangeable_mlp
from mimetic_jax.weights.empirical import PAIRS, SHARED

KEY = jax.random.key(0)
MEAN = np.array([0.3, -0.1])
# both, unit, channel, neither: every term of the model has a positive variance.
COVARIANCE = np.array([[1.6, 0.15, 0.35, 0.05], [1.1, 0.1, 0.2, 0.04], [-0.5, -0.08, -0.15, -0.03]])
# Columns of W1 and rows of W2ᵀ sum to less than independent entries would.
NEGATIVE = np.array([[1.0, -0.1, 0.0, 0.0], [1.0, 0.0, -0.04, 0.0], [0.0, 0.0, 0.0, 0.0]])


def drawn(dim, hidden, covariance=COVARIANCE, members=3000, mean=MEAN):
    keys = jax.random.split(KEY, members)
    draw = jax.jit(jax.vmap(lambda key: exchangeable_mlp(key, dim, hidden, mean, covariance)))
    first, second = map(np.asarray, draw(keys))
    found = exchangeable.features(first, second.swapaxes(1, 2))
    return exchangeable.numbers(members, found.sum(0), found.T @ found)


@pytest.mark.parametrize(
    ("dim", "hidden", "covariance"),
    [(4, 8, COVARIANCE), (9, 5, COVARIANCE), (8, 16, NEGATIVE), (2, 3, 0 * COVARIANCE)],
)
def test_draws_have_the_12_numbers_at_any_width(dim, hidden, covariance):
    numbers = drawn(dim, hidden, covariance)
    found = numbers.centred
    assert (np.abs(found.value - covariance) <= 4 * found.error + 1e-6).all()
    assert (np.abs(numbers.mean - MEAN) <= 4 * numbers.mean_error + 1e-6).all()


def test_impossible_numbers_are_projected():
    """At D = 20 no kernel's columns can have correlations of −.1: theirs sum to zero."""
    numbers = drawn(20, 16, NEGATIVE, members=300)
    unit, both = numbers.centred.value[0, 1], numbers.centred.value[0, 0]
    assert unit == pytest.approx(-both / 19, abs=0.003)
    assert both == pytest.approx(1.05, abs=0.03)


def mlps(dim=8, hidden=16, layers=2, dtype=jnp.float32, scale=0.1):
    def kernels(index):
        first, second = np.random.default_rng(index).normal(scale=scale, size=(2, dim, hidden))
        return {
            "fc1": {"kernel": jnp.asarray(first, dtype)},
            "fc2": {"kernel": jnp.asarray(2 * second.T, dtype), "bias": jnp.ones(dim, dtype)},
        }

    return {f"block_{i}": {"mlp": kernels(i)} for i in range(layers)} | {"norm": jnp.ones(dim)}


def write(path, means, covariances):
    layers = [
        {"mean": list(mean)}
        | {
            pair: dict(zip(SHARED, row, strict=True))
            for pair, row in zip(PAIRS, np.asarray(table).tolist(), strict=True)
        }
        for mean, table in zip(means, covariances, strict=True)
    ]
    path.write_text(json.dumps({"layers": layers}))
    return Empirical(str(path))


@pytest.fixture
def scheme(tmp_path):
    return write(tmp_path / "two.json", [MEAN, -MEAN], [COVARIANCE, 0 * COVARIANCE])


def test_kernels_are_written_in_units_of_their_own_deviations(scheme):
    before, after = mlps(), mimetic_jax.rewrite(KEY, mlps(), scheme)
    written = {write.path for write in mimetic_jax.plan(before, scheme)}
    assert written == {f"block_{i}/mlp/{fc}/kernel" for i in range(2) for fc in ("fc1", "fc2")}
    # The second layer has no variance: entries are exactly the means.
    old, new = before["block_1"]["mlp"], after["block_1"]["mlp"]
    for fc, mean in (("fc1", -0.3), ("fc2", 0.1)):
        np.testing.assert_allclose(new[fc]["kernel"], mean * old[fc]["kernel"].std(), rtol=1e-5)
    np.testing.assert_array_equal(new["fc2"]["bias"], old["fc2"]["bias"])
    first, second = exchangeable_mlp(block_key(KEY, "block_0/mlp"), 8, 16, MEAN, COVARIANCE)
    old, new = before["block_0"]["mlp"], after["block_0"]["mlp"]
    for fc, unit in (("fc1", first), ("fc2", second)):
        expected = unit * old[fc]["kernel"].std()
        np.testing.assert_allclose(new[fc]["kernel"], expected, rtol=1e-5, atol=1e-6)


def test_other_depths_interpolate(scheme):
    block = Block.of({"mlp_in": jnp.eye(8, 16), "mlp_out": jnp.eye(16, 8)})
    for layer, share in enumerate((1.0, 0.75, 0.5, 0.25, 0.0)):
        new = scheme(KEY, block, Context(layer, 5))
        mean = MEAN * (2 * share - 1)
        expected, _ = exchangeable_mlp(KEY, 8, 16, mean, share * COVARIANCE)
        np.testing.assert_allclose(new["mlp_in"], expected * block["mlp_in"].std(), atol=1e-6)
    alone = scheme(KEY, block, Context())
    np.testing.assert_array_equal(alone["mlp_out"], scheme(KEY, block, Context(0, 5))["mlp_out"])


def test_jit_vmap_bfloat16_and_wrappers(scheme):
    def draw(key, one=scheme):
        return mimetic_jax.rewrite(key, mlps(layers=1), one)

    eager = draw(KEY)
    vmapped = jax.jit(jax.vmap(draw))(jnp.stack([jax.random.key(1), KEY]))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b[1], atol=1e-5), eager, vmapped)
    shapes = jax.eval_shape(functools.partial(draw, one=NormMatched(scheme)), KEY)
    assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, eager)
    half = mimetic_jax.rewrite(KEY, mlps(dtype=jnp.bfloat16), scheme)["block_0"]["mlp"]
    for array in jax.tree.leaves(half):
        assert array.dtype == jnp.bfloat16
        assert bool(jnp.isfinite(array).all())


def test_norm_matched_has_the_norms(scheme):
    like, matched = (
        mimetic_jax.rewrite(KEY, mlps(), one)["block_0"]["mlp"]
        for one in (scheme, NormMatched(scheme))
    )
    for fc in ("fc1", "fc2"):
        a, b = (np.asarray(tree[fc]["kernel"]) for tree in (like, matched))
        assert np.linalg.norm(a) == pytest.approx(np.linalg.norm(b), rel=1e-5)
        assert abs(np.vdot(a, b)) < 0.5 * np.vdot(a, a)


def test_from_a_population_to_a_population(tmp_path):
    """Draw networks, write their statistics, and draw others of another width from the file."""
    members = 400

    def base(dim):
        first, second = np.random.default_rng(0).normal(size=(2, members, dim, 2 * dim))
        second = second.swapaxes(1, 2)
        return {"mlp/fc1/kernel": np.float32(0.1 * first), "mlp/fc2/kernel": np.float32(second)}

    def rewritten(trees, scheme):
        keys = jax.random.split(KEY, members)
        draw = jax.vmap(lambda key, tree: mimetic_jax.rewrite(key, tree, scheme))
        return covariance.from_population([jax.jit(draw)(keys, trees)])

    source = write(tmp_path / "source.json", [MEAN], [COVARIANCE])
    initial, trained = covariance.from_population([base(8)]), rewritten(base(8), source)
    path = tmp_path / "new" / "found.json"
    covariance.write_statistics(path, initial, trained)
    assert json.loads(path.read_text())["layers"][0]["members"] == members
    again = Empirical(str(path))
    wider = rewritten(base(12), again)
    units = np.array([0.1, 1.0])
    found, expected = (one["mlp"].numbers().over(units) for one in (wider, trained))
    error = np.hypot(found.centred.error, expected.centred.error)
    assert (np.abs(found.centred.value - COVARIANCE) < 4 * error + 0.01).all()
    assert (np.abs(found.mean - MEAN) < 4 * np.hypot(found.mean_error, expected.mean_error)).all()


def test_a_file_that_changes_is_read_again(tmp_path, scheme):
    before = mimetic_jax.rewrite(KEY, mlps(), scheme)["block_0"]["mlp"]["fc1"]["kernel"]
    write(tmp_path / "two.json", [5 * MEAN, MEAN], [COVARIANCE, COVARIANCE])
    after = mimetic_jax.rewrite(KEY, mlps(), scheme)["block_0"]["mlp"]["fc1"]["kernel"]
    assert (after - before).mean() > 0.05


def test_other_blocks_are_skipped_without_reading_the_file():
    assert not Empirical("nowhere.json").writes(frozenset({"query", "key", "token_in"}))


def damaged(text):
    def call(tmp_path):
        (tmp_path / "bad.json").write_text(text)
        mimetic_jax.plan(mlps(), Empirical(str(tmp_path / "bad.json")))

    return call


COMPLETE = {pair: dict.fromkeys(SHARED, 0.0) for pair in PAIRS}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda _: mimetic_jax.plan(mlps(), Empirical("nowhere.json")),
            "^block_0/mlp: the statistics nowhere.json can't be read: No such file",
        ),
        (damaged("{"), "isn't a file of statistics .JSONDecodeError"),
        (damaged("[1]"), "bad.json .1. is not a mapping"),
        (damaged('{"layers": [{"mean": [0, 0]}]}'), "W1 W1 None is not a mapping"),
        (damaged('{"layers": []}'), "it has no layers"),
        (damaged(json.dumps({"layers": [{"mean": [0, np.nan], **COMPLETE}]})), "finite"),
        (
            damaged(json.dumps({"layers": [{"mean": [0, "x"], **COMPLETE}]})),
            "mean.1. 'x' is not a finite",
        ),
        (lambda _: Empirical("a").writes(frozenset({"mlp_in"})), "only mlp_in was found"),
        (
            lambda _: Empirical("a")(
                KEY,
                Block.of({"mlp_in": jnp.ones((2, 3)), "mlp_out": jnp.ones((2, 3))}),
                Context(),
            ),
            r"mlp_in \(2, 3\) and mlp_out \(2, 3\)",
        ),
        (lambda _: exchangeable_mlp(KEY, 0, 3, MEAN, COVARIANCE), "dim 0 is not an integer"),
        (lambda _: exchangeable_mlp(KEY, 2, 3, MEAN, COVARIANCE[:2]), r"not an array \(3, 4\)"),
        (lambda _: exchangeable_mlp(KEY, 2, 3, MEAN * np.nan, COVARIANCE), "of finite numbers"),
    ],
)
def test_bad_input(call, words, tmp_path):
    with pytest.raises(InputError, match=words) as caught:
        call(tmp_path)
    assert "\n" not in str(caught.value)
