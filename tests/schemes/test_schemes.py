import dataclasses
import functools
import json
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax import InputError, plan, rewrite, schemes
from mimetic_jax.schemes import Block, Context, Interpolated, Mimetic, NormMatched, Scheme, SinCos
from tests.products import query_key, value_out
from tests.schemes.blocks import biases, kernels, ones

KEY = jax.random.key(0)


def attention_block(dim=16, heads=2, groups=2, head_dim=8):
    sizes = dim, heads, groups, head_dim
    return ones(kernels(*sizes) | biases(*sizes))


def value_out_diagonal(new):
    return value_out(new["value"], new["out"]).sum(axis=0).diagonal().mean()


def test_mimetic_writes_kernels_and_zeroes_biases():
    block = attention_block()
    new = Mimetic()(KEY, block, Context())
    assert {role: array.shape for role, array in new.items()} == block.shapes
    for role, array in new.items():
        assert bool(array.any()) != role.endswith("_bias")
    assert value_out_diagonal(new) == pytest.approx(-0.4, abs=0.1)
    assert not any(
        role.endswith("bias") for role in Mimetic(zero_bias=False)(KEY, block, Context())
    )


def test_other_pair_does_not_depend_on_the_untouched_one():
    both = Mimetic()(KEY, attention_block(), Context())
    only = Mimetic(alpha_qk=None, beta_qk=None)(KEY, attention_block(), Context())
    np.testing.assert_array_equal(both["value"], only["value"])


def test_constants_may_depend_on_depth():
    by_layer = Mimetic(beta_vo=[-0.4, 0.0, 0.4], alpha_vo=0.01)
    by_depth = Mimetic(beta_vo=lambda depth: 0.8 * depth - 0.4, alpha_vo=0.01)
    for layer, beta in enumerate((-0.4, 0.0, 0.4)):
        for scheme in (by_layer, by_depth):
            new = scheme(KEY, attention_block(), Context(layer=layer, num_layers=3))
            assert value_out_diagonal(new) == pytest.approx(beta, abs=0.02)
    with pytest.raises(InputError, match="beta_vo has 3 values for 12 layers"):
        by_layer.at(0, 12)
    stored = Mimetic(beta_vo=Interpolated((-0.1, -0.4)))
    assert schemes.from_dict(schemes.to_dict(stored)) == stored
    assert Mimetic(beta_vo=Interpolated((-0.2,))).at(3, 5).beta_vo == -0.2


def test_language_setting():
    new = schemes.mimetic_language()(KEY, attention_block(), Context())
    found = query_key(new["query"], new["key"])
    np.testing.assert_allclose(found, [np.diag([0.5] * 8 + [0.0] * 8)] * 2, atol=1e-6)
    assert schemes.mimetic_language(beta_vo=0.2).beta_vo == 0.2


@pytest.mark.parametrize("tokens", [0, 1, 2])
def test_sincos_leaves_class_tokens_zero(tokens):
    block = Block.of({"position": jnp.ones((12 + tokens, 8))})
    table = SinCos(scale=2.0)(KEY, block, Context(grid=(3, 4)))["position"]
    np.testing.assert_array_equal(table[:tokens], 0)
    np.testing.assert_allclose((table[tokens:] ** 2).sum(axis=1), 4 * 8 / 2, rtol=1e-5)


def test_sincos_draws_class_tokens_in_the_size_of_the_patches():
    dim, tokens = 512, 2
    block = Block.of({"position": jnp.ones((12 + tokens, dim))})
    scheme = SinCos(scale=2.0, class_token=0.5)
    table = np.asarray(scheme(KEY, block, Context(grid=(3, 4)))["position"])
    size = np.sqrt(np.square(table).mean(axis=1))
    np.testing.assert_allclose(size[:tokens], 0.5 * size[tokens:].mean(), rtol=0.1)
    assert abs(np.corrcoef(table[:tokens])[0, 1]) < 0.2
    rest = SinCos(scale=2.0)(KEY, block, Context(grid=(3, 4)))["position"][tokens:]
    np.testing.assert_array_equal(table[tokens:], rest)
    other = scheme(jax.random.key(1), block, Context(grid=(3, 4)))["position"]
    assert not np.allclose(other[:tokens], table[:tokens])


@pytest.mark.parametrize("axes", [1, 2])
def test_sincos_finds_no_class_token(axes):
    """In a table of patches alone, or of text."""
    block = Block.of({"position": jnp.ones((12, 8))})
    with pytest.raises(InputError, match=r"SinCos\(class_token=1\) finds no row .* a (line|grid)"):
        SinCos(axes=axes, class_token=1.0)(KEY, block, Context(grid=(3, 4)))


@dataclasses.dataclass(frozen=True)
class OfTheUser(Scheme):
    """Defined outside the package, with every kind of field that can be stored."""

    number: float
    per_layer: tuple[float, ...]
    parts: tuple[Scheme, ...]

    def writes(self, roles):
        return roles & {"out"}

    def draw(self, key, block, context):
        return {"out": jnp.full(block.shapes["out"], self.per_layer[context.layer])}


def test_a_users_own_scheme_is_stored_by_its_name():
    scheme = OfTheUser(0.5, (1.0, 2.0), (SinCos(), NormMatched(Mimetic(beta_vo=(0.1, 0.2)))))
    again = schemes.from_dict(json.loads(json.dumps(schemes.to_dict(scheme))))
    assert again == scheme
    assert hash(again) == hash(scheme)
    tree = {"attn": {role: {"kernel": jnp.ones((2, 2, 2))} for role in ("query", "out")}}
    np.testing.assert_array_equal(rewrite(KEY, tree, again)["attn"]["out"]["kernel"], 1.0)


@pytest.mark.parametrize("content", ["", "{}", "[]", '[{"scheme": "Mimetik"}]'])
def test_a_file_of_schemes_that_is_none_is_one_line(content, tmp_path):
    path = tmp_path / "x.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError):
        schemes.load(str(path))


def define(module, name, qualname):
    return dataclasses.dataclass(frozen=True)(
        type(name, (Scheme,), {"__module__": module, "__qualname__": qualname})
    )


def test_a_new_definition_of_a_scheme_replaces_the_first():
    first, second = (define("notebook", "Rerun", "Rerun") for _ in range(2))
    assert type(schemes.from_dict({"scheme": "Rerun"})) is second is not first


@pytest.mark.parametrize(
    ("module", "qualname"), [("elsewhere", "Mimetic"), ("mimetic_jax.schemes.mimetic", "f.Mimetic")]
)
def test_two_schemes_of_one_name_are_an_error(module, qualname):
    words = f"Mimetic: mimetic_jax.schemes.mimetic.Mimetic and {module}.{qualname}; rename one"
    with pytest.raises(InputError, match=words):
        define(module, "Mimetic", qualname)
    assert schemes.from_dict({"scheme": "Mimetic"}) == Mimetic()


def drawn(scheme, **shapes):
    return scheme(KEY, ones(shapes), Context())


CORRELATED, LARGE = schemes.CorrelatedMLP(), schemes.ImpulseBias(kernel_size=5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Interpolated(()), "are not one or more numbers"),
        (lambda: drawn(schemes.ConvMimetic(), depthwise=(3, 5, 4)), r"\(3, 5, 4\)"),
        (lambda: drawn(CORRELATED, mlp_in=(3, 4), mlp_out=(3, 4)), r"mlp_out \(3, 4\) are not \["),
        (lambda: drawn(LARGE, relative_bias=(9, 10)), "offset of 2 doesn't fit a window of 2x2"),
        (lambda: drawn(schemes.ImpulseBias(), relative_bias=(10, 2)), r"\(10, 2\) are not \["),
        (lambda: drawn(schemes.ImpulseBias(), shared_bias=(7, 5)), r"\(7, 5\) are not"),
        (lambda: schemes.from_dict({"scheme": "Mimetik"}), "did you mean 'Mimetic'"),
        (lambda: schemes.from_dict({"scheme": "_Kernels"}), "unknown scheme '_Kernels'"),
        (lambda: schemes.from_dict({"scheme": "Mimetic", "alfa_qk": 1}), "did you mean 'alpha_qk'"),
        (lambda: schemes.from_dict({"scheme": "ConstantBias"}), "missing a required argument"),
        (lambda: schemes.to_dict(Mimetic(beta_vo=abs)), "Mimetic.beta_vo is a function"),
        (lambda: Mimetic(alpha_qk=-1), r"alpha_qk must be a number.*got -1"),
        (lambda: Mimetic(alpha_vo=None), "alpha_vo=None and beta_vo=-0.4"),
        (lambda: Mimetic().writes(frozenset({"query", "value"})), "only query was found"),
        (lambda: drawn(SinCos(), position=(7, 8)), "7 positions"),
        (lambda: type("X", (Scheme,), {"by_depth": 1}), "X defines by_depth: name it depends"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(InputError, match=words):
        call()


def test_numbers_by_depth_are_data_whatever_they_came_in():
    """JAX keys its programs by a scheme's hash."""
    lists = Mimetic(beta_qk=Interpolated([0.25, 0.5])), Mimetic(beta_qk=Interpolated((0.25, 0.5)))
    arrays = Mimetic(beta_qk=Interpolated(np.array([0.25, 0.5], np.float32)))
    assert len({*lists, arrays}) == 1
    with pytest.raises(InputError, match=r"values must be a sequence.*got 0\.5"):
        Interpolated(0.5)


def test_a_constant_kernel_correlates_with_nothing():
    with pytest.raises(InputError, match="mlp_in is constant"):
        drawn(CORRELATED, mlp_in=(3, 4), mlp_out=(4, 3))


@dataclasses.dataclass(frozen=True)
class ReadsAnMLP(Scheme):
    def writes(self, roles):
        return roles & {"out"}

    def draw(self, key, block, context):
        return {"out": block["out"] + block["mlp_in"].sum()}


def test_a_draw_that_reads_what_a_block_lacks_is_told_which_roles_it_has():
    kernels = {"query": np.ones((8, 2, 4)), "key": np.ones((8, 2, 4)), "out": np.ones((2, 4, 8))}
    words = "draw of ReadsAnMLP must read .* got 'mlp_in'. The block has key, out, query. "
    for tree_form in (plan, functools.partial(rewrite, KEY)):
        with pytest.raises(InputError, match=words):
            tree_form({"attn": {name: {"kernel": x} for name, x in kernels.items()}}, ReadsAnMLP())
    block = Block.of(kernels)
    assert block.get("mlp_in") is None


def test_fields_without_the_decorator_are_told():
    class _WithoutDecorator(Scheme):
        constant: ClassVar[float] = 2.0
        rho: float = 1.0

    for fields in ({}, {"rho": 2.0}):
        with pytest.raises(
            InputError, match=r"must be a dataclass, .* field rho. Put @dataclasses"
        ):
            _WithoutDecorator(**fields)
