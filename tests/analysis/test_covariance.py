from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax import InputError
from mimetic_jax.analysis import covariance, exchangeable
from mimetic_jax.analysis.covariance import Moments, from_population
from mimetic_jax.models.convnext import ConvNeXt
from mimetic_jax.models.mixer import Mixer
from mimetic_jax.models.vit import ViT
from mimetic_jax.weights import mean_shift, mean_shift_per_input
from mimetic_jax.weights.empirical import SHARED

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
    found = Moments.empty(*first.shape[1:])
    found.add(first, second)
    return found


def pairs_by_kind(dim=DIM, hidden=HIDDEN):
    """Positions in the matrix by pair of kernels and by what they share, from the definition."""
    first = [(0, d, f) for f, d in itertools.product(range(hidden), range(dim))]
    second = [(1, d, f) for d, f in itertools.product(range(dim), range(hidden))]
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
    np.testing.assert_allclose(found.mean(), np.mean(vectors, axis=0), atol=1e-12)
    np.testing.assert_allclose(found.covariance(), np.cov(vectors, rowvar=False), atol=1e-12)
    second_moment = np.einsum("mi,mj->ij", vectors, vectors) / 5
    np.testing.assert_allclose(found.second_moment(), second_moment, atol=1e-12)


def test_the_numbers_are_averages_over_the_whole_matrix():
    found = moments(*kernels(7))
    numbers = found.numbers()
    kinds = pairs_by_kind()
    assert len(kinds) == 12
    # Distinct networks of the population stand in for independent ones.
    means = found.feature_total[-2:]
    products = found.feature_products[-2:, -2:]
    squares = (np.outer(means, means) - products) / (7 * 6)
    for (pair, shared), places in kinds.items():
        average = found.second_moment()[places].mean()
        assert numbers.uncentred.value[pair, shared] == pytest.approx(average, abs=1e-12)
        square = squares[((0, 0), (1, 1), (0, 1))[pair]]
        assert numbers.centred.value[pair, shared] == pytest.approx(average - square, abs=1e-12)
        expected = exchangeable.matrix(numbers.centred.value, DIM, HIDDEN)
        assert set(expected[places]) == {numbers.centred.value[pair, shared]}


def test_the_estimates_and_their_errors_are_right():
    """Of 400 populations: no bias, and estimates spread as their standard errors say."""
    members, populations = 50, 400
    first, second = kernels(members * populations, rng=np.random.default_rng(1))
    found = exchangeable.features(first, second.swapaxes(1, 2)).reshape(populations, members, -1)
    each = [exchangeable.numbers(members, x.sum(0), x.T @ x) for x in found]
    # What `kernels` draws, term by term, by what two entries share: both, unit, channel, neither.
    unit, channel = np.array([1, 1, 0, 0]), np.array([1, 0, 1, 0])
    entry = unit * channel
    one_one = entry + 0.25 * unit + 1
    one_two = 0.5 * one_one - 0.3 * unit
    two_two = 0.25 * one_one - 0.3 * unit + entry + 0.16 * channel + 0.36 * unit
    true = np.stack([one_one, two_two, one_two])
    means = np.array([0.3, 0.05])
    squares = np.array([means[0] ** 2, means[1] ** 2, means.prod()])[:, None]
    sizes = np.sqrt([true[0, 0] ** 2, true[1, 0] ** 2, true[0, 0] * true[1, 0]])[:, None]
    for form, exact in (("centred", true), ("uncentred", true + squares)):
        values = np.array([getattr(one, form).value for one in each])
        errors = np.array([getattr(one, form).error for one in each])
        scores = (values - exact) / errors.mean(0)
        np.testing.assert_allclose(scores.std(0), 1, atol=0.15)
        np.testing.assert_allclose(scores.mean(0), 0, atol=0.2)
    ratios = np.array([one.centred.correlation for one in each]) - true / sizes
    errors = np.array([one.centred.correlation_error for one in each])
    np.testing.assert_allclose(errors[:, :2, 0], 0, atol=1e-7)  # 1 by definition
    ratios, errors = ratios.reshape(populations, -1), errors.reshape(populations, -1)
    estimated = [kind for kind in range(12) if kind not in (0, 4)]
    spread = ratios.std(0)[estimated] / errors.mean(0)[estimated]
    np.testing.assert_allclose(spread, 1, atol=0.2)


def test_per_input_shifts_give_stripes_and_a_constant_one_gives_none():
    """Eqs. 1 and 2 of the paper, with a shift of .3 on 64 networks of standard deviation 1."""
    first, second = np.random.default_rng(0).normal(size=(2, 64, 16, 32))
    keys = jax.random.split(jax.random.key(0), 64)
    striped = jax.vmap(lambda key, w: mean_shift_per_input(key, w, 0.3))(keys, first)
    flat = jax.vmap(lambda w: mean_shift(w, 0.3))(first)
    for kernel, equation in ((first, {}), (striped, {"per_input": True}), (flat, {})):
        b = 0.0 if kernel is first else 0.3
        numbers = moments(np.asarray(kernel), second.swapaxes(1, 2)).numbers()
        theory = exchangeable.predicted(b=b, **equation)
        for form in ("centred", "uncentred"):
            found, expected = getattr(numbers, form), getattr(theory, form)
            assert (np.abs(found.value - expected.value) < 4 * found.error).all()
        np.testing.assert_allclose(numbers.mean, theory.mean, atol=0.04)
        if kernel is striped:
            stripes = numbers.centred
            assert stripes.value[0, 2] == pytest.approx(0.09, abs=0.02)
            # From 64 · 16 squares of a channel's mean, whose variance is .09 + 1/32.
            expected_error = (0.09 + 1 / 32) * (2 / (64 * 16)) ** 0.5
            assert stripes.error[0, 2] == pytest.approx(expected_error, rel=0.25)
        if kernel is flat:
            assert (numbers.uncentred.value[0, 1:] > 0.08).all()


def population(module, members=4, size=8):
    """Random parameters of the shapes of a model, with an axis of members in front."""
    images = jnp.zeros((1, size, size, 3))
    shapes = jax.eval_shape(lambda: module.init(jax.random.key(0), images))["params"]
    return jax.tree.map(lambda leaf: DRAWS.normal(size=(members, *leaf.shape)), shapes)


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
    trees = [population(module), population(module, members=3)]
    found = from_population(iter(trees))
    assert list(found) == ["block_0/mlp", "block_1/mlp"]
    for name, layer in found.items():
        block = name.removesuffix("/mlp")
        mlps = [tree[block]["mlp"] for tree in trees]
        joined = [np.concatenate([mlp[fc]["kernel"] for mlp in mlps]) for fc in ("fc1", "fc2")]
        assert (layer.dim, layer.hidden, layer.members) == (4, 8, 7)
        expected = moments(*(array.astype(np.float32) for array in joined))
        np.testing.assert_allclose(layer.products, expected.products, rtol=1e-6, atol=1e-6)


def test_stacked_layers_and_flat_trees():
    module = ConvNeXt(num_classes=3, width=4, depth=2, patch=4, mlp_ratio=2.0, scan=True)
    tree = population(module)
    mlp = tree["blocks"]["mlp"]
    flat = {f"blocks/mlp/{fc}/kernel": mlp[fc]["kernel"] for fc in ("fc1", "fc2")}
    whole, alone = from_population([tree]), from_population([flat])
    assert list(whole) == list(alone) == ["blocks/mlp[0]", "blocks/mlp[1]"]
    second_layer = moments(*(np.float32(mlp[fc]["kernel"][:, 1]) for fc in ("fc1", "fc2")))
    for found in (whole, alone):
        np.testing.assert_array_equal(found["blocks/mlp[1]"].products, second_layer.products)


def test_tables():
    numbers = moments(*kernels(50)).numbers()
    table = exchangeable.comparison(numbers, numbers, b=0.3).splitlines()
    row = next(line for line in table if "| W1 W1 | same channel" in line)
    assert [cell.strip() for cell in row.split("|")][-4:-1] == ["0", "0.09", "0"]
    assert "+1.0000 ± " in next(line for line in table if "| W2 W2 | same entry" in line)


def test_kernels_of_zeros_have_no_correlation():
    first, second = kernels(5)
    numbers = moments(first, 0 * second).numbers()
    assert numbers.centred.value[1].tolist() == [0.0] * len(SHARED)
    assert np.isnan(numbers.centred.correlation[1:]).all()
    assert np.isfinite(numbers.centred.correlation[0]).all()


def chunk(first, second):
    return {"mlp/fc1/kernel": first, "mlp/fc2/kernel": second}


def statistics_of_zeros(tmp_path):
    first, second = kernels(4)
    found = from_population([chunk(first, 0 * second)])
    covariance.write_statistics(tmp_path / "a.json", found, found)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda _: Moments.empty(1, 4), "MLP of 1 x 4 has no pairs of entries"),
        (lambda _: Moments.empty(192, 768), "192 x 768 has 294912² entries"),
        (lambda _: moments(*kernels(1)).numbers(), r"population of 1 network\(s\)"),
        (lambda _: moments(*kernels(1)).covariance(), r"population of 1 network\(s\)"),
        (lambda _: Moments.empty(4, 3).add(*kernels(2)), r"W1 \(2, 3, 4\) is not \(2, 4, 3\)"),
        (
            lambda _: from_population([chunk(*kernels(2)), chunk(*kernels(2, hidden=3))]),
            r"^mlp: W1 \(2, 3, 3\) is not \(2, 3, 4\)",
        ),
        (lambda _: from_population([{"norm/scale": np.ones((2, 3))}]), "no MLP among .*norm/scale"),
        (
            lambda _: from_population(
                [chunk(*kernels(2)), {"a/" + k: v for k, v in chunk(*kernels(2)).items()}]
            ),
            "a chunk has the MLPs a/mlp, those before it mlp",
        ),
        (
            lambda _: from_population([chunk(kernels(2)[0] * [[[1]], [[np.inf]]], kernels(2)[1])]),
            r"^mlp: W1 of network 1 \(and 0 more\) of 2 is not finite",
        ),
        (statistics_of_zeros, "mlp: standard deviations .* 0.0. at initialization give no unit"),
        (
            lambda tmp_path: covariance.write_statistics(
                tmp_path / "a.json", {}, from_population([chunk(*kernels(2))])
            ),
            "are not the trained ones mlp",
        ),
    ],
)
def test_bad_input(call, words, tmp_path):
    with pytest.raises(InputError, match=words) as caught:
        call(tmp_path)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())
