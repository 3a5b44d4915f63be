"""Arguments of library calls that are none: InputError in one line, with the value in it."""

import inspect
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax import InputError, Rule, block_key, initializers, rewrite, schemes, weights
from mimetic_jax.schemes import Mimetic, SinCos
from tests.weights.test_contract import DRAWS

KEY = jax.random.key(0)
KERNEL = jnp.ones((16, 2, 8))
PARAMS = {name: {"kernel": KERNEL} for name in ("query", "key", "value")}
PARAMS = {"attention": PARAMS | {"out": {"kernel": jnp.ones((2, 8, 16))}}}
TABLE = {"pos_embed": jnp.ones((1, 16, 8)), "patch_embed": {"kernel": jnp.ones((48, 8))}}
COUNTS = weights.cooccurrence([0, 1, 0, 1, 2, 3, 2, 3], 4)
NO_NUMBERS = ("x", None, [], "0.7", 1j, {}, object(), np.ones(3), math.nan, math.inf)
NO_ALPHAS = ("x", 1j, {}, object(), np.ones(3), math.nan, -1)
NO_KEYS = (0, None, "x", 1.5, np.zeros(3), np.array([0, 1], np.int32), jax.random.split(KEY))
INITIALIZERS = {
    "attention": lambda key: initializers.attention(Mimetic())(key, 16, 2),
    "identity_gauge": lambda key: initializers.identity_gauge()(key, (16, 16)),
    "mean_shift": lambda key: initializers.mean_shift()(key, (16, 16)),
}
NO_GRIDS = ((3,), 4, "4x4", (0, 4), (4, -4), (2.5, 2), (1, 2, 3), ())
NO_KERNELS = ((16,), (), (0, 3), (3, 0), 3, "x", (-1, 2), (2.5, 3), (2, 3, 4))
NO_RULES = ("flax", 3, (("a", "query", "d h k"),), [None])


KEYED = [
    DRAWS[name]
    for name in DRAWS
    if "key" in inspect.signature(getattr(weights, name, len)).parameters
]
NO_EXPRESSIONS = ("a(", "*", 3, None, "(?P<x>a)(?P<x>b)", "a{5000000000}")
NO_TEXTS = (3, None, b"a", ["a"])
NO_LAYERS = (-1, 2**32, 1.5, "x", True, np.arange(2))
NO_BASES = (
    *(0, 3, "lecun", jnp.ones((16, 16))),
    *(lambda key, shape, dtype: 1.0, lambda key, shape, dtype: jnp.ones((2, *shape), dtype)),
)
NO_FUNCTIONS_OF_DEPTH = (lambda: 0.5, lambda depth, layer: 0.5, lambda *, depth: 0.5, math.atan2)
NO_FILES = ("nowhere/a.json", ".", "", "a\0b", 3, None)
NO_LAYOUTS = ("a b", 3, None, "", "d (h", "d h k z")


def refused(call, bad, words=None):
    with pytest.raises(InputError, match=words) as caught:
        call(bad)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def rule(**field):
    return Rule(**{"path": "a", "role": "query", "layout": "d h k", **field})


@pytest.mark.parametrize(
    ("call", "values"),
    [
        (lambda bad: weights.query_key(KEY, 16, 2, alpha=bad), NO_NUMBERS),
        (lambda bad: weights.value_out(KEY, 16, 2, beta=bad), NO_NUMBERS),
        (lambda bad: weights.sincos_2d(4, 4, 8, scale=bad), NO_NUMBERS),
        (lambda bad: rewrite(KEY, TABLE, SinCos(scale=bad)), NO_NUMBERS),
        (lambda bad: weights.query_key(KEY, bad, 2), NO_NUMBERS),
        (lambda bad: weights.query_key(KEY, 16, bad), NO_NUMBERS),
        (lambda bad: weights.sincos_2d(4, bad, 8), NO_NUMBERS),
        (lambda bad: rewrite(KEY, PARAMS, Mimetic(alpha_qk=bad)), NO_ALPHAS),
        (lambda bad: rule(path=bad), NO_EXPRESSIONS),
        (lambda bad: rule(within=bad), NO_EXPRESSIONS),
        (lambda bad: rule(layout=bad), NO_LAYOUTS),
        (lambda bad: rewrite(KEY, PARAMS, Mimetic(), rules=bad), NO_RULES),
        (lambda bad: rewrite(KEY, TABLE, SinCos(), grid=bad), NO_GRIDS),
        (lambda bad: weights.impulse_query_key(KEY, jnp.ones((16, 8)), bad, 2), NO_GRIDS),
        (lambda bad: initializers.mean_shift(0.1)(KEY, bad), NO_KERNELS),
        (lambda bad: initializers.from_counts(COUNTS)(KEY, bad), NO_KERNELS),
        (lambda bad: initializers.mean_shift(base=bad)(KEY, (16, 16)), NO_BASES),
        (lambda bad: initializers.from_counts(COUNTS, base=bad)(KEY, (4, 16)), NO_BASES),
        (lambda bad: block_key(KEY, bad), NO_TEXTS),
        (lambda bad: block_key(KEY, "a", bad), NO_LAYERS),
        (lambda bad: block_key(KEY, "a", jnp.int32(bad)), [-1]),
        (lambda bad: schemes.save(bad, Mimetic()), NO_FILES),
        (lambda bad: schemes.load(bad), NO_FILES),
    ],
)
def test_other_values_are_refused(call, values):
    for bad in values:
        refused(call, bad)


@pytest.mark.parametrize(
    "call",
    [
        lambda bad: rewrite(bad, PARAMS, Mimetic()),
        lambda bad: block_key(bad, "a"),
        *KEYED,
        *INITIALIZERS.values(),
    ],
)
def test_what_is_no_key(call):
    for bad in NO_KEYS:
        refused(call, bad, "the key must be")


@pytest.mark.parametrize("function", NO_FUNCTIONS_OF_DEPTH)
def test_what_is_no_function_of_depth(function):
    scheme = Mimetic(beta_qk=function)
    words = "beta_qk must be a function of one number, the relative depth"
    refused(lambda scheme: rewrite(KEY, PARAMS, scheme), scheme, words)
    refused(lambda scheme: scheme.at(0, 2), scheme, words)


def test_functions_of_depth_and_layers_of_other_kinds():
    for function in (abs, np.cos, lambda depth, other=1.0: depth, lambda *depth: sum(depth)):
        assert Mimetic(beta_qk=function).at(0, 2).beta_qk == function(0.0)
    key = block_key(KEY, "a", 3)
    for other in (np.int64(3), jnp.uint32(3)):
        assert block_key(KEY, "a", other) == key
    assert jax.jit(lambda layer: block_key(KEY, "a", layer))(3) == key


def test_swapped_arguments():
    refused(lambda params: rewrite(params, KEY, Mimetic()), PARAMS, "the key must be")
