"""The functions of docs/ for programs without this library, against our draw of the same noise."""

import importlib.util
import pathlib
import re
import sys
import types

import jax
import numpy as np
import pytest

from mimetic_jax import schemes
from mimetic_jax.schemes import Block, Context, Mimetic, NormMatched
from mimetic_jax.weights.attention import _draw
from tests.products import query_key, value_out

D, H, K = 48, 4, 12
KEY = jax.random.key(3)


class Tensor(np.ndarray):
    """As much of a `torch.Tensor` as is asked for."""

    def copy_(self, values):
        self[...] = values


STAND_IN = types.SimpleNamespace(no_grad=lambda: lambda function: function, from_numpy=np.asarray)
"""A module like torch, of NumPy's arrays."""

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "pytorch_and_files.md"


def executed(torch=STAND_IN):
    """The functions of the page."""
    section = PAGE.read_text().partition("## Without this library")[2]
    names = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torch", torch)
        exec("".join(re.findall(r"^```python\n(.*?)^```", section, re.M | re.S)), names)
    return types.SimpleNamespace(**names)


def noise(groups):
    """What our draw has as Z, times √D: a matrix for each group, and that of value and out."""
    key_qk, key_vo = jax.random.split(KEY)
    keys = jax.numpy.stack([*jax.random.split(key_qk, groups), key_vo])
    return list(np.asarray(_draw(keys, D, "normal"), np.float64) * D**0.5)


class Random:
    """Gives our noise first."""

    def __init__(self, groups):
        self.waiting, self.more = noise(groups), np.random.default_rng(0)

    def standard_normal(self, shape):
        return self.waiting.pop(0) if self.waiting else self.more.standard_normal(shape)


def by_numpy(groups, **options):
    return executed().mimetic(Random(groups), D, H, groups, **options)


def by_torch(torch, array, groups, **options):
    shapes = ((D, D), (groups * K, D), (groups * K, D), (D, D))
    filled = [array(np.zeros(shape)) for shape in shapes]
    executed(torch).mimetic_(Random(groups), *filled, H, groups, **options)
    query, key, value, out = (np.asarray(weight).T for weight in filled)
    return (
        query.reshape(D, H, K),
        key.reshape(D, groups, K),
        value.reshape(D, groups, K),
        out.reshape(H, K, D),
    )


def by_stand_in(*arguments, **options):
    return by_torch(STAND_IN, lambda x: np.asarray(x).view(Tensor), *arguments, **options)


def by_real_torch(*arguments, **options):
    torch = pytest.importorskip("torch")
    return by_torch(torch, torch.as_tensor, *arguments, **options)


WAYS = [by_numpy, by_stand_in]
if importlib.util.find_spec("torch"):
    WAYS.append(by_real_torch)
every_way = pytest.mark.parametrize("draw", WAYS)


def ours(scheme, groups):
    shapes = {"query": (D, H, K), "key": (D, groups, K), "value": (D, groups, K), "out": (H, K, D)}
    drawn = scheme(KEY, Block(shapes, {}.__getitem__), Context())
    return [np.asarray(drawn[role], np.float64) for role in shapes]


def all_heads(value, out):
    return value_out(value, out).sum(axis=0)


@every_way
@pytest.mark.parametrize("groups", [4, 2, 1])
@pytest.mark.parametrize(
    "scheme", [Mimetic(), Mimetic(0.5, -0.3, 0.1), schemes.mimetic_language()], ids=str
)
def test_the_products_are_ours(draw, groups, scheme):
    right = ours(scheme, groups)
    constants = {f"{name}_{of}" for name in ("alpha", "beta") for of in ("qk", "vo")}
    found = draw(groups, **{name: getattr(scheme, name) for name in constants})
    for product, first, second in ((query_key, 0, 1), (all_heads, 2, 3)):
        a, b = product(found[first], found[second]), product(right[first], right[second])
        assert np.sqrt(np.mean((a - b) ** 2)) < 1e-6  # ours is in float32


@every_way
@pytest.mark.parametrize("groups", [4, 2])
def test_the_control_has_the_norms_and_no_structure(draw, groups):
    found, right = draw(groups, control=True), ours(NormMatched(Mimetic()), groups)
    for mine, its in zip(found, right, strict=True):
        assert np.linalg.norm(mine) == pytest.approx(np.linalg.norm(its), rel=1e-5)
    assert abs(all_heads(found[2], found[3]).diagonal().mean()) < 0.05
