"""Populations: the matrix, its 12 numbers and their errors against draws that are known."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax import InputError
from mimetic_jax.analysis.population import Moments, add_network, features, matrix, numbers
from mimetic_jax.models.convnext import ConvNeXt
from mimetic_jax.models.mixer import Mixer
from mimetic_jax.models.vit import ViT

DIM, HIDDEN = 3, 4
DRAWS = np.random.default_rng(0)


def kernels(members, dim=DIM, hidden=HIDDEN, rng=DRAWS):
    """Kernels with covariances of every kind, and means."""
    first, second = rng.normal(size=(2, members, dim, hidden))
    units, channels = (rng.normal(size=(members, *shape)) for shape in ((1, hidden), (dim, 1)))
    grand = rng.normal(size=(members, 1, 1))
    first = 0.3 + first + 0.5 * units + grand
    second = -0.1 + 0.5 * first + second + 0.4 * channels - 0.6 * units
    return first, second.swapaxes(1, 2)


def moments(first, second):
    found = Moments(*first.shape[1:])
    found.add(first, second)
    return found


def pairs_by_kind():
    """Positions in the matrix by pair of kernels and by what they share, from the definition."""
    first = [(0, d, f) for f, d in itertools.product(range(HIDDEN), range(DIM))]
    second = [(1, d, f) for d, f in itertools.product(range(DIM), range(HIDDEN))]
    found = {}
    for (i, x), (j, y) in itertools.product(enumerate(first + second), repeat=2):
        shared = {(True, True): 0, (False, True): 1, (True, False): 2, (False, False): 3}
        kind = ({(0, 0): 0, (1, 1): 1}.get((x[0], y[0]), 2), shared[x[1] == y[1], x[2] == y[2]])
        found.setdefault(kind, []).append((i, j))
    return {kind: tuple(np.transpose(places)) for kind, places in found.items()}


def test_the_vector_is_unrolled_as_pytorch_stores_it():
    first, second = kernels(5)
    vectors = [
        np.concatenate([w1.T.ravel(), w2.T.ravel()]) for w1, w2 in zip(first, second, strict=True)
    ]
    found = moments(first, second)
    np.testing.assert_allclose(found.covariance, np.cov(vectors, rowvar=False), atol=1e-12)


def test_the_numbers_are_averages_over_the_whole_matrix():
    first, second = kernels(7)
    found = moments(first, second)
    value = found.numbers().covariance
    kinds = pairs_by_kind()
    assert len(kinds) == 12
    # Distinct networks of the population stand in for independent ones.
    means = np.stack([first.mean((1, 2)), second.mean((1, 2))])
    mean = np.concatenate([one.swapaxes(1, 2).reshape(7, -1) for one in (first, second)], 1).mean(0)
    second_moment = found.covariance * 6 / 7 + np.outer(mean, mean)
    for (pair, shared), places in kinds.items():
        x, y = means[list(((0, 0), (1, 1), (0, 1))[pair])]
        square = np.mean([x[m] * y[n] for m, n in itertools.permutations(range(7), 2)])
        average = second_moment[places].mean()
        assert value[pair, shared] == pytest.approx(average - square, abs=1e-12)
        assert set(matrix(value, DIM, HIDDEN)[places]) == {value[pair, shared]}


def test_the_estimates_and_their_errors_are_right():
    """Of 400 populations: no bias, and estimates spread as their standard errors say."""
    members, populations = 50, 400
    first, second = kernels(members * populations, rng=np.random.default_rng(1))
    found = features(first, second.swapaxes(1, 2)).reshape(populations, members, -1)
    each = list(map(numbers, found))
    # What `kernels` draws, term by term, by what two entries share: both, unit, channel, neither.
    unit, channel = np.array([1, 1, 0, 0]), np.array([1, 0, 1, 0])
    entry = unit * channel
    one_one = entry + 0.25 * unit + 1
    one_two = 0.5 * one_one - 0.3 * unit
    two_two = 0.25 * one_one - 0.3 * unit + entry + 0.16 * channel + 0.36 * unit
    true = np.stack([one_one, two_two, one_two])
    scores = (np.array([one.covariance for one in each]) - true) / np.mean(
        [one.covariance_error for one in each], axis=0
    )
    means = (np.array([one.mean for one in each]) - [0.3, 0.05]) / np.mean(
        [one.mean_error for one in each], axis=0
    )
    for score in (scores, means):
        np.testing.assert_allclose(score.std(0), 1, atol=0.15)
        np.testing.assert_allclose(score.mean(0), 0, atol=0.2)


def test_units_are_standard_deviations():
    first, second = kernels(9)
    found, larger = moments(first, second).numbers(), moments(2 * first, 3 * second).numbers()
    scaled = larger.over(np.array([2.0, 3.0]))
    for name in ("mean", "mean_error", "covariance", "covariance_error"):
        np.testing.assert_allclose(getattr(scaled, name), getattr(found, name), rtol=1e-9)
    np.testing.assert_allclose(found.over(found.deviations).deviations, 1)


def drawn(module, size=8):
    """Random parameters of the shapes of a model."""
    images = jnp.zeros((1, size, size, 3))
    shapes = jax.eval_shape(lambda: module.init(jax.random.key(0), images))["params"]
    return jax.tree.map(lambda leaf: DRAWS.normal(size=leaf.shape), shapes)


def summed(trees):
    layers = {}
    for tree in trees:
        add_network(layers, tree)
    return layers


@pytest.mark.parametrize(
    "module",
    [
        ConvNeXt(num_classes=3, width=4, depth=2, patch=4, mlp_ratio=2.0),
        ViT(num_classes=3, width=4, depth=2, heads=2, patch=4, mlp_ratio=2.0),
        Mixer(num_classes=3, width=4, depth=2, patch=4, mlp_ratio=2.0),
    ],
    ids=lambda module: type(module).__name__,
)
def test_the_mlps_of_models(module):
    trees = [drawn(module) for _ in range(7)]
    found = summed(trees)
    assert list(found) == ["block_0/mlp", "block_1/mlp"]
    for name, layer in found.items():
        mlps = [tree[name.removesuffix("/mlp")]["mlp"] for tree in trees]
        joined = [np.stack([mlp[fc]["kernel"] for mlp in mlps]) for fc in ("fc1", "fc2")]
        assert (layer.dim, layer.hidden, layer.members) == (4, 8, 7)
        expected = moments(*(array.astype(np.float32) for array in joined))
        np.testing.assert_allclose(layer.covariance, expected.covariance, rtol=1e-5, atol=1e-6)


def test_stacked_layers_and_flat_trees():
    module = ConvNeXt(num_classes=3, width=4, depth=2, patch=4, mlp_ratio=2.0, scan=True)
    trees = [drawn(module) for _ in range(4)]
    mlps = [tree["blocks"]["mlp"] for tree in trees]
    names = ("fc1", "fc2")
    flat = [{f"blocks/mlp/{fc}/kernel": mlp[fc]["kernel"] for fc in names} for mlp in mlps]
    kernels = (np.float32([mlp[fc]["kernel"][1] for mlp in mlps]) for fc in names)
    second_layer = moments(*kernels)
    for found in (summed(trees), summed(flat)):
        assert list(found) == ["blocks/mlp[0]", "blocks/mlp[1]"]
        covariance = found["blocks/mlp[1]"].covariance
        np.testing.assert_allclose(covariance, second_layer.covariance, rtol=1e-5, atol=1e-6)


def test_bad_input():
    with pytest.raises(InputError, match=r"population of 1 network\(s\)"):
        moments(*kernels(1)).numbers()
    with pytest.raises(InputError, match=r"no MLP among .*norm/scale"):
        add_network({}, {"norm/scale": np.ones(3)})
