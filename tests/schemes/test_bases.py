from __future__ import annotations

import jax
import numpy as np
import pytest
import scipy.fft

from mimetic_jax import InputError
from mimetic_jax.schemes import DCT, Conditioned, Context, Orthogonal, Sinusoidal
from tests.schemes.blocks import kernels, ones

KEY = jax.random.key(0)
D, HEADS, HIDDEN = 24, 4, 48


def draw(scheme, head_dim=6):
    others = {"mlp_in": (D, HIDDEN), "mlp_out": (HIDDEN, D), "token_in": (9, 12)}
    new = scheme(KEY, ones(kernels(D, HEADS, HEADS, head_dim) | others), Context())
    return {role: np.asarray(kernel, np.float64) for role, kernel in new.items()}


def singular_values(kernel):
    return np.linalg.svd(kernel, compute_uv=False)


@pytest.mark.parametrize("head_dim", [6, 30])
def test_conditioned_per_head(head_dim):
    """The algorithm: every head has condition number 1, and all values read the same inputs."""
    new = draw(Conditioned(), head_dim)
    for role in ("query", "key"):
        heads = new[role].transpose(1, 0, 2)
        np.testing.assert_allclose(singular_values(heads), 1, atol=1e-5)
        assert np.abs(heads[0] - heads[1]).max() > 0.1
        together = singular_values(new[role].reshape(D, -1))
        assert together.max() > 1.2  # independent heads aren't orthogonal to each other
    for head in new["value"].transpose(1, 0, 2):
        np.testing.assert_array_equal(head, np.eye(D, head_dim))
    assert np.abs(new["query"] - new["key"]).max() > 0.1


@pytest.mark.parametrize("head_dim", [3, 6, 9])
def test_conditioned_as_a_whole(head_dim):
    new = draw(Conditioned(per_head=False), head_dim)
    for role in ("query", "key"):
        np.testing.assert_allclose(singular_values(new[role].reshape(D, -1)), 1, atol=1e-5)
        if HEADS * head_dim <= D:
            apart = singular_values(new[role].transpose(1, 0, 2))
            np.testing.assert_allclose(apart, 1, atol=1e-5)
    np.testing.assert_array_equal(new["value"].reshape(D, -1), np.eye(D, HEADS * head_dim))


def test_orthogonal():
    new = draw(Orthogonal(gain=0.5))
    flat = {
        role: kernel.reshape((-1, D) if role == "out" else (kernel.shape[0], -1))
        for role, kernel in new.items()
    }
    assert flat.keys() == {"query", "key", "value", "out", "mlp_in", "mlp_out", "token_in"}
    for kernel in flat.values():
        np.testing.assert_allclose(singular_values(kernel), 0.5, atol=1e-5)
    assert np.abs(flat["query"] - flat["key"]).max() > 0.1


def test_dct_is_the_transform_of_the_channels():
    new = draw(DCT(value=True))
    assert new.keys() == {"key", "value"}
    channels = np.random.default_rng(0).normal(size=D)
    spectrum = scipy.fft.dct(channels, norm="ortho").reshape(HEADS, -1)
    for kernel in new.values():
        np.testing.assert_allclose(np.einsum("d,dhk->hk", channels, kernel), spectrum, atol=1e-6)


def test_sinusoidal_units_sum_to_zero():
    new = draw(Sinusoidal())
    np.testing.assert_array_equal(new["query"], new["key"])
    for role in ("query", "value", "mlp_out", "token_in"):
        sums = new[role].reshape(new[role].shape[0], -1).sum(axis=0)
        exceptions = {"token_in": [9]}.get(role, [])
        assert [unit + 1 for unit in np.flatnonzero(np.abs(sums) > 1e-5)] == exceptions
    # A fused kernel would have other frequencies: these are the fans of each kernel alone.
    assert new["mlp_in"].var(ddof=1) == pytest.approx(2 / (D + HIDDEN), rel=1e-5)
    assert new["out"].var(ddof=1) == pytest.approx(1 / D, rel=1e-5)


def test_products_of_sinusoidal_lean_to_plus_the_identity():
    new = draw(Sinusoidal())
    reversal = np.eye(D)[(D - 2 - np.arange(D)) % D]
    for product in (
        np.einsum("dhk,ehk->de", new["query"], new["key"]),
        np.einsum("dhk,hke->de", new["value"], new["out"]),
    ):
        scale = product[0, 0]
        assert scale == pytest.approx((D**2 - 1) / (D * (D - 2)), rel=1e-4)
        np.testing.assert_allclose(product, scale * (np.eye(D) - reversal), atol=1e-5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Orthogonal(gain=0.0), "gain 0.0 is not a finite number of at least 1e-12"),
        (lambda: DCT(key=False), "DCT writes nothing"),
        (lambda: Sinusoidal("glorott"), "did you mean 'glorot'"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(InputError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)
