import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from mimetic_jax.weights.baselines import zero_init
from mimetic_jax.weights.bases import dct, polar, semi_orthogonal, sinusoidal
from mimetic_jax.weights.selection import select, select_indices

KEY = jax.random.key(0)


def test_semi_orthogonal_has_no_preferred_direction():
    """Haar: entries of mean 0 and variance 1/D in every column."""
    draws = np.stack([semi_orthogonal(key, 6, 3) for key in jax.random.split(KEY, 300)])
    assert np.abs(draws.mean(axis=0)).max() < 0.12
    np.testing.assert_allclose(draws.var(axis=0), 1 / 6, atol=0.06)


@pytest.mark.parametrize(("fan_in", "fan_out"), [(8, 8), (12, 5), (5, 12), (1, 1)])
def test_dct_is_orthonormal_and_by_the_formula(fan_in, fan_out):
    size = max(fan_in, fan_out)
    i, k = np.arange(size)[:, None], np.arange(min(fan_in, fan_out))
    waves = np.sqrt((2 - (k == 0)) / size) * np.cos(np.pi * (2 * i + 1) * k / (2 * size))
    kernel = np.asarray(dct(fan_in, fan_out), np.float64)
    np.testing.assert_allclose(kernel, waves if fan_in == size else waves.T, atol=1e-6)
    np.testing.assert_allclose(np.linalg.svd(kernel, compute_uv=False), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("fan_in", "fan_out", "rank", "constant"),
    [(24, 24, 11, []), (24, 96, 24, [24, 72]), (96, 24, 24, []), (192, 64, 64, [])],
)
@pytest.mark.parametrize("variance", ["glorot", "he"])
def test_sinusoidal(fan_in, fan_out, rank, constant, variance):
    kernel = np.asarray(sinusoidal(fan_in, fan_out, variance), np.float64)
    i, frequency = np.arange(fan_in)[:, None], np.arange(1, fan_out + 1)
    waves = np.sin(frequency * (2 * np.pi * i / fan_in + 2 * np.pi / fan_out))
    amplitude = np.abs(kernel).max() / np.abs(waves).max()
    np.testing.assert_allclose(kernel, amplitude * waves, atol=1e-6)
    target = 2 / (fan_in + fan_out) if variance == "glorot" else 2 / fan_in
    assert kernel.var(ddof=1) == pytest.approx(target, rel=1e-5)
    assert np.linalg.matrix_rank(kernel, tol=1e-4) == rank
    sums = np.abs(kernel.sum(axis=0))
    assert [f for f, total in zip(frequency, sums, strict=True) if total > 1e-4] == constant


@pytest.mark.parametrize(("rows", "columns"), [(12, 12), (9, 4), (3, 8)])
def test_polar_is_the_factor_of_the_svd(rows, columns):
    """Singular values between 1e-3 and 1: the factor of float64's SVD, to float32 precision."""
    rng, rank = np.random.default_rng(0), min(rows, columns)
    left, _ = np.linalg.qr(rng.normal(size=(2, rows, rank)))
    right, _ = np.linalg.qr(rng.normal(size=(2, columns, rank)))
    matrices = left * np.geomspace(1, 1e-3, rank) @ right.mT
    expected = np.stack([scipy.linalg.polar(matrix)[0] for matrix in matrices])
    found = polar(jnp.asarray(matrices, jnp.float32))
    np.testing.assert_allclose(found, expected, atol=5e-4)
    np.testing.assert_allclose(np.linalg.svd(found, compute_uv=False), 1, atol=1e-5)


def test_polar_of_zero_is_zero():
    np.testing.assert_array_equal(polar(jnp.zeros((2, 3, 4))), 0)
    half = jnp.eye(4).at[:, 2:].set(0)
    np.testing.assert_allclose(polar(5 * half), half, atol=1e-6)


def test_golden_zero_init(golden):
    for name, weight in golden("zero_init").items():
        fan_out, fan_in = weight.shape
        np.testing.assert_allclose(zero_init(fan_in, fan_out), weight.T, atol=1e-7, err_msg=name)


def test_golden_indices(golden):
    arrays = golden("weight_selection_indices")
    assert len(arrays) == 5
    for name, indices in arrays.items():
        teacher, student = (int(size[1:]) for size in name.split("_"))
        np.testing.assert_array_equal(select_indices(teacher, student), indices)


def network(dim, layers=2):
    rng = np.random.default_rng(dim)
    tree = {f"layer_{i}/fc1/kernel": rng.normal(size=(dim, 4 * dim)) for i in range(layers)}
    tree |= {"multihead_attention/out/bias": rng.normal(size=dim)}
    return tree | {"head/kernel": rng.normal(size=(dim, 10)), "scale": rng.normal(size=())}


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray])
def test_every_leaf_but_the_head_is_selected(kind):
    teacher = {path: kind(array) for path, array in network(12, layers=3).items()}
    shapes = {path: array.shape for path, array in network(8).items()}
    chosen = select(teacher, shapes)
    assert set(chosen) == set(shapes) - {"head/kernel"}
    rows = [0, 2, 3, 5, 6, 8, 9, 11]
    columns = np.round(np.linspace(0, 47, 32)).astype(int)
    kernel = np.asarray(teacher["layer_1/fc1/kernel"])
    np.testing.assert_array_equal(chosen["layer_1/fc1/kernel"], kernel[rows][:, columns])
    np.testing.assert_array_equal(chosen["scale"], teacher["scale"])
    assert {path: array.shape for path, array in chosen.items()}.items() <= shapes.items()
    assert chosen["scale"].dtype == teacher["scale"].dtype


def test_fused_kernels_keep_their_blocks():
    """Half of [D, 3 D]: query from query, key from key, value from value."""
    teacher = {"qkv/kernel": np.arange(12)[:, None] * 100 + np.arange(36)}
    chosen = select(teacher, {"qkv/kernel": (6, 18)})["qkv/kernel"]
    blocks = chosen[0].reshape(3, 6) // 12
    np.testing.assert_array_equal(blocks, np.arange(3)[:, None].repeat(6, axis=1))
