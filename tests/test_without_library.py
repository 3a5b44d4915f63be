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

    def repeat_interleave(self, times, axis):
        return self.repeat(times, axis)

    def sqrt(self):
        return np.sqrt(self)

    def norm(self):
        return np.linalg.norm(self)


def stand_in():
    """A module like torch, of NumPy's arrays."""
    random = np.random.default_rng(0)

    def randn(*shape, generator, dtype):
        return random.standard_normal(shape).astype(dtype).view(Tensor)

    return types.SimpleNamespace(
        randn=randn,
        eye=np.eye,
        stack=lambda arrays: np.stack(arrays).view(Tensor),
        linalg=types.SimpleNamespace(svd=lambda x: [y.view(Tensor) for y in np.linalg.svd(x)]),
        no_grad=lambda: lambda function: function,
        float64=np.float64,
    )


PAGE = pathlib.Path(__file__).parents[1] / "docs" / "pytorch_and_files.md"


def executed(library, torch=None):
    """The function of the page for a library."""
    section = PAGE.read_text().partition("## Without this library")[2]
    (block,) = re.findall(rf"^```python\n(import {library}.*?)^```", section, re.M | re.S)
    names = {}
    with pytest.MonkeyPatch.context() as patch:
        if torch is not None:
            patch.setitem(sys.modules, "torch", torch)
        exec(block, names)
    return names["mimetic" if library == "numpy" else "mimetic_"]


def noise(groups):
    """What our draw has as Z, times √D: a matrix for each group, and that of value and out."""
    key_qk, key_vo = jax.random.split(KEY)
    keys = jax.numpy.stack([*jax.random.split(key_qk, groups), key_vo])
    return list(np.asarray(_draw(keys, D, "normal"), np.float64) * D**0.5)


def by_numpy(groups, **options):
    waiting = noise(groups)

    class Random:
        def standard_normal(self, shape):
            return waiting.pop(0) if waiting else np.random.default_rng(0).standard_normal(shape)

    return executed("numpy")(D, H, groups, random=Random(), **options)


def by_torch(torch, array, groups, **options):
    waiting = noise(groups)
    random = torch.randn

    def randn(*shape, **given):
        return array(waiting.pop(0)) if waiting else random(*shape, **given)

    shapes = ((D, D), (groups * K, D), (groups * K, D), (D, D))
    filled = [array(np.zeros(shape)) for shape in shapes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "randn", randn)
        executed("torch", torch)(*filled, H, groups, **options)
    query, key, value, out = (np.asarray(weight).T for weight in filled)
    return (
        query.reshape(D, H, K),
        key.reshape(D, groups, K),
        value.reshape(D, groups, K),
        out.reshape(H, K, D),
    )


def by_stand_in(*arguments, **options):
    return by_torch(stand_in(), lambda x: np.asarray(x).view(Tensor), *arguments, **options)


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
