"""The first layer's neighbors and spectrum, against SciPy and plain loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft

from mimetic_jax import InputError, check, rewrite, schemes, weights
from mimetic_jax.models import GPT
from mimetic_jax.models.gpt import RULES
from mimetic_jax.trained.first_layer import neighbors, spectrum
from tests.models.values import initial

V = 150


@pytest.fixture(scope="module")
def counts():
    random = np.random.default_rng(0)
    follows = random.integers(V, size=(V, 4))  # of each token one of four follows
    tokens = [0]
    for choice in random.integers(4, size=20_000):
        tokens.append(follows[tokens[-1], choice])
    return weights.cooccurrence(tokens, vocab=V)


def test_neighbors_are_those_of_plain_loops(counts):
    rows = np.random.default_rng(1).normal(size=(V, 16))
    found = neighbors("tokens", rows, counts)
    sums = counts.sum(axis=0)
    order = [at for at in np.argsort(-sums, kind="stable") if sums[at]]
    law = np.asarray(weights.from_counts(jax.random.key(0), counts[order][:, order], 16))
    centered = rows[order] - rows[order].mean(axis=0)

    def nearest(matrix, at):
        cosine = matrix @ matrix[at] / np.linalg.norm(matrix, axis=1)
        return set([i for i in np.argsort(-cosine) if i != at][:10])

    expected = [len(nearest(centered, at) & nearest(law, at)) / 10 for at in range(len(order))]
    np.testing.assert_allclose(found.shared, expected)
    assert np.mean(found.shared) == pytest.approx(found.chance, abs=0.03)
    assert found.chance == 10 / (len(order) - 1)


def test_a_fresh_model_has_the_neighbors_of_its_text(counts):
    model = GPT(vocab=V, width=32, depth=1, heads=2)
    params = initial(model, jnp.zeros((1, 8), int))
    (before,) = check(params, rules=RULES, counts=counts).tokens
    params = rewrite(jax.random.key(1), params, schemes.Cooccurrence(), rules=RULES, counts=counts)
    (after,) = (found := check(params, rules=RULES, counts=counts)).tokens
    assert np.mean(before.shared) < 2 * before.chance
    assert np.mean(after.shared) > 0.9
    assert "of the ten nearest neighbors" in str(found)
    assert not check(params, rules=RULES).tokens
    scheme = schemes.Permuted(schemes.Cooccurrence())
    permuted = rewrite(jax.random.key(1), params, scheme, rules=RULES, counts=counts)
    (control,) = check(permuted, rules=RULES, counts=counts).tokens
    assert np.mean(control.shared) < 2 * before.chance


def test_texts_of_few_tokens_have_no_neighbors_and_other_sizes_are_refused(counts):
    assert neighbors("tokens", np.ones((99, 4)), weights.cooccurrence(range(99), 99)) is None
    with pytest.raises(InputError, match="tokens has 140 tokens, but the counts have 150"):
        neighbors("tokens", np.ones((140, 4)), counts)


def test_the_spectrum_is_that_of_scipy():
    kernel = np.random.default_rng(0).normal(size=(6, 6, 3, 20))
    found = spectrum("patch", kernel)
    luminance = scipy.fft.dctn(kernel.sum(axis=2) / 3**0.5, axes=(0, 1), norm="ortho")
    power = np.square(luminance).sum(axis=-1)
    at = [(u, v) for u in range(6) for v in range(6) if int(np.hypot(u, v)) == 3]
    mean = np.square(kernel).sum() / (6 * 6 * 3)
    assert found.energy["luminance"][3] == pytest.approx(np.mean([power[i] for i in at]) / mean)
    assert found.shares["luminance"] == pytest.approx(power.sum() / np.square(kernel).sum())
    assert sum(found.shares.values()) == pytest.approx(1)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_wave_is_seen_at_its_frequency_and_a_draw_lies_on_the_law(channels):
    wave = np.cos(np.pi * (np.arange(8) + 0.5) * 2 / 8)[:, None, None, None]
    found = spectrum("patch", wave * np.ones((1, 8, channels, 5)))
    assert np.flatnonzero(np.array(found.energy["luminance"]) > 1e-9).tolist() == [2]
    assert found.shares["luminance"] == pytest.approx(1)
    size = 8 * 8 * channels
    drawn = weights.whitened(jax.random.key(3), weights.natural_covariance(8, channels), size)
    found = spectrum("patch", np.asarray(drawn).reshape(8, 8, channels, size))
    for color, energy in found.energy.items():
        np.testing.assert_allclose(energy, found.law[color], atol=1e-4)
    assert found.law["luminance"][4] > 2 * found.law["luminance"][0]


def test_patches_of_other_forms_have_no_spectrum():
    assert spectrum("patch", np.ones((4, 4, 5, 2))) is None
    assert spectrum("patch", np.ones((4, 2, 3, 2))) is None
    assert spectrum("patch", np.ones((1, 1, 3, 2))) is None


def test_the_picture_has_a_panel_of_each(counts):
    pytest.importorskip("matplotlib")
    random = np.random.default_rng(0)
    params = {"patch_embed": {"kernel": random.normal(size=(4 * 4 * 3, 8))}}
    params["wte"] = {"embedding": random.normal(size=(V, 8))}
    found = check(params, counts=counts)
    assert len(found.plot_first_layer().axes) == 2
    mlp = check({"fc1": {"kernel": np.ones((4, 8))}, "fc2": {"kernel": np.ones((8, 4))}})
    with pytest.raises(InputError, match="no patch embedding was seen"):
        mlp.plot_first_layer()
