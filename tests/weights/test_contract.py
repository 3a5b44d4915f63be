"""What holds for every draw: float32, the same alone and inside a program; one error per mistake.

Factors of a singular value decomposition differ by signs, so attention is compared by its products.
"""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax import InputError, weights
from mimetic_jax.weights import sincos_2d
from tests.typical import typical

KEY = jax.random.key(0)
GRID = (4, 4)
TABLE = np.random.default_rng(0).normal(size=(16, 32)).astype(np.float32)


def query_key(query, key):
    group = query.shape[-2] // key.shape[-2]
    return jnp.einsum("...dhk,...ehk->...hde", query, key.repeat(group, axis=-2))


def value_out(value, out):
    return jnp.einsum("...dhk,...hke->...de", value, out)


def factors(left, right):
    return left @ right.mT


def normal(key, *shape):
    return jax.random.normal(key, shape, "float32")


PRODUCTS = {
    "query_key": query_key,
    "identity alone": query_key,
    "value_out": value_out,
    "factorize": factors,
    "impulse_query_key": query_key,
    "impulses of traced tables": query_key,
    "impulses of positive filters": query_key,
}
"""What is compared of two arrays."""
DRAWS = {
    "query_key": lambda key: weights.query_key(key, 24, 2, num_kv_heads=1),
    "identity alone": lambda key: weights.query_key(
        key, 8, 1, head_dim=9, alpha=0.0, beta=np.float64(-0.5)
    ),
    "value_out": lambda key: weights.value_out(key, 24, 2),
    "factorize": lambda key: weights.factorize(normal(key, 3, 16, 16), 4),
    "impulse_query_key": lambda key: weights.impulse_query_key(key, TABLE, GRID, 4),
    "impulses of traced tables": lambda key: weights.impulse_query_key(
        key, normal(key, 16, 32), GRID, 4
    ),
    "impulses of positive filters": lambda key: weights.impulse_query_key(
        key, TABLE, GRID, 2, order="positive"
    ),
    "from_counts": lambda key: weights.from_counts(key, np.ones((5, 5)) + np.eye(5), 4),
    "whitened": lambda key: weights.whitened(key, np.diag([3.0, 2.0, 1.0]), 4, share=1),
    "norm_matched": lambda key: weights.norm_matched(key, jnp.ones(4)),
    "mean_shift": lambda key: weights.mean_shift(
        normal(key, 6, 4), jax.random.uniform(key, dtype="float32")
    ),
    "mean_shift_per_input": lambda key: weights.mean_shift_per_input(key, TABLE, 0.5),
}


def test_every_draw_is_here():
    functions = {name: inspect.signature(getattr(weights, name)) for name in weights.__all__}
    assert {name for name, call in functions.items() if "key" in call.parameters} <= DRAWS.keys()


SLOW = ["identity alone", "impulses of positive filters"]
"""Functions with other options, which draw by the code of the first."""


@typical("name", [name for name in DRAWS if name not in SLOW], slow=SLOW)
def test_draws_are_float32_and_the_same_inside_a_program(name):
    """Alone and for several keys under jit and vmap; float32 also where JAX's default is wider.

    Also under JAX's checks for a user's own code: no implicit ranks, no implicit dtypes.
    """
    draw, seen = DRAWS[name], PRODUCTS.get(name, lambda *arrays: arrays)
    keys = jax.random.split(KEY, 2)
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        together = jax.jit(jax.vmap(draw))(keys)
        if name in PRODUCTS:  # these compute with NumPy outside of a program
            draw(KEY)
    for index, key in enumerate(keys):
        alone = draw(key)
        inside = jax.tree.map(lambda array, index=index: array[index], together)
        for one, other in zip(*map(jax.tree.leaves, (inside, alone)), strict=True):
            assert one.dtype == other.dtype == np.float32
        products = (seen(*x) if isinstance(x, tuple) else x for x in (inside, alone))
        for one, other in zip(*map(jax.tree.leaves, products), strict=True):
            atol = 1e-3 if name.startswith("impulse") else 1e-5
            np.testing.assert_allclose(one, other, atol=atol * max(1, np.abs(other).max()))
    with jax.enable_x64(True):
        wide = draw(KEY) if name in PRODUCTS else None, jax.eval_shape(draw, KEY)
    assert {array.dtype for array in jax.tree.leaves(wide)} == {np.dtype("float32")}


READ = {
    "impulse": lambda key, table: weights.impulse_query_key(key, table, GRID, 2),
    "factorize": lambda key, table: weights.factorize(table[None, :8], 4),
    "norm_matched": weights.norm_matched,
}


@pytest.mark.parametrize("name", READ)
def test_narrow_inputs_of_a_program(name):
    """They are computed as their values in float32 are."""
    draw = jax.jit(READ[name])
    narrow = normal(KEY, 16, 8).astype(jnp.bfloat16)
    drawn, expected = draw(KEY, narrow), draw(KEY, narrow.astype(jnp.float32))
    jax.tree.map(np.testing.assert_array_equal, drawn, expected)
    assert {array.dtype for array in jax.tree.leaves(drawn)} == {np.dtype("float32")}


def test_norms_beyond_the_range_of_the_input():
    drawn = weights.norm_matched(KEY, jnp.ones((512, 512), jnp.float16))
    np.testing.assert_allclose(np.linalg.norm(drawn), 512, rtol=1e-5)


def impulse(**options):
    arguments = {"key": KEY, "position": TABLE, "grid": GRID, "num_heads": 4}
    return weights.impulse_query_key(**arguments | options)


def ones(*shape):
    return np.ones(shape, np.float32)


HEADS = [
    ({"num_heads": 5}, "num_heads 5 does not divide dim 192"),
    ({"num_heads": 12, "num_kv_heads": 5}, "num_kv_heads 5 does not divide num_heads 12"),
    ({"num_heads": 3, "alpha": -0.1}, "alpha must be .*; got -0.1"),
    ({"num_heads": 3, "alpha": 0.0, "beta": 0.0}, "both 0"),
    ({"num_heads": 3, "noise": "norml"}, "did you mean 'normal'"),
]
PORT = [
    ({"orientation": "portrait"}, "did you mean 'port'"),
    ({"orientation": "port", "num_kv_heads": 1}, "dim 192 is not num_heads 3 x head_dim 64"),
]
BAD = [
    *(
        (functools.partial(function, KEY, 192, **options), words)
        for options, words in HEADS
        for function in (weights.query_key, weights.value_out)
    ),
    *((functools.partial(weights.value_out, KEY, 192, 3, **o), words) for o, words in PORT),
    (lambda: weights.query_key(KEY, 10**7, 1), "GiB"),
    (lambda: weights.factorize(ones(4, 4), 2), r"\(4, 4\)"),
    (lambda: weights.factorize(ones(1, 4, 3), 2), r"\(1, 4, 3\)"),
    (lambda: weights.factorize(ones(1, 4, 4), 5), "rank 5"),
    (lambda: impulse(grid=(3, 4)), r"grid of 3x4 needs .* \[12, D\], not \(16, 32\)"),
    (lambda: impulse(position=TABLE[None]), r"not \(1, 16, 32\)"),
    (lambda: impulse(kernel_size=4), "kernel_size must be .*odd; got 4"),
    (lambda: impulse(amplitude=-1.0), "amplitude must be .*; got -1.0"),
    (lambda: impulse(num_heads=1), "numerical rank 16 and 32 is needed"),
    (lambda: impulse(position=ones(16, 32)), "rank 0 and 8 is needed: use random .*s$"),
    (lambda: weights.mean_shift(ones(2, 3, 4)), r"shape \(2, 3, 4\)"),
    (lambda: weights.mean_shift_per_input(KEY, ones(3, 4), -0.5), "sigma must be .*; got -0.5"),
    (lambda: sincos_2d(4, 4, 410), "multiple of 4, not dim 410"),
]


@pytest.mark.parametrize(("call", "words"), BAD, ids=[words for _, words in BAD])
def test_bad_input(call, words):
    with pytest.raises(InputError, match=words):
        call()
