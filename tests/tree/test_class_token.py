"""A class token near 0 that is read gets nothing from attention that ends in zeros."""

import functools
import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import save_file

import mimetic_jax.nnx
from mimetic_jax import plan, rewrite
from mimetic_jax.command import files
from mimetic_jax.models.vit import ViT
from mimetic_jax.schemes import Layers, Mimetic, NormMatched, SinCos, Zero, ZeroOut

KEY = jax.random.key(0)
IMAGES = jax.random.normal(KEY, (5, 16, 16, 3))
RECOMMENDED = (SinCos(), ZeroOut(mlp=True))
ALONE = (SinCos(), ZeroOut(mlp=True, attention=False))
NOTE = r"cls_token and its position start near 0, .* ZeroOut\(mlp=True, attention=False\)"


def vit(token_std=0.02, **fields):
    return ViT(num_classes=3, width=16, depth=2, heads=2, patch=4, token_std=token_std, **fields)


@functools.cache
def params_of(token_std=0.02, **fields):
    return vit(token_std, **fields).init(KEY, IMAGES)["params"]


def noted(params, scheme, **options):
    return any(re.search(NOTE, note) for note in plan(params, scheme, **options).notes)


@pytest.mark.parametrize(("scheme", "alike"), [(RECOMMENDED, True), (ALONE, False)])
def test_the_note_is_true(scheme, alike):
    """All images have the same logits."""
    params = params_of(0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        logits = vit(0.0).apply({"params": rewrite(KEY, params, scheme)}, IMAGES)
    assert bool(np.ptp(logits, axis=0).max() < 1e-6) == alike
    assert noted(params, scheme) == alike


@pytest.mark.parametrize("std", [0.0, 0.02])
@pytest.mark.parametrize("scheme", [ZeroOut(), Zero(), NormMatched(ZeroOut()), RECOMMENDED])
def test_tokens_near_0_are_named(std, scheme):
    params = params_of(std)
    assert noted(params, scheme)
    with pytest.warns(UserWarning, match=NOTE):
        rewrite(KEY, params, scheme)


@pytest.mark.parametrize(
    ("fields", "scheme"),
    [
        ({}, ALONE),
        ({}, Mimetic()),
        ({}, (ZeroOut(mlp=True), Mimetic())),  # attention is drawn after it
        ({}, Layers(ZeroOut(), 0, 0.5)),
        ({}, (SinCos(class_token=1.0), ZeroOut())),
        ({"token_std": 1.0}, RECOMMENDED),
        ({"pool": "mean"}, RECOMMENDED),
    ],
)
def test_nothing_is_said_of_others(fields, scheme):
    params = params_of(**fields)
    assert not plan(params, scheme).notes
    rewrite(KEY, params, scheme)  # warnings are errors


def test_a_position_counts():
    """That of the first row, unless the table has rows for patches alone."""
    params = params_of(0.0)
    rows = params["pos_embed"].shape[1]
    assert rows == 17
    for table, near in (
        (params["pos_embed"].at[:, 0].set(1.0), False),
        (params["pos_embed"].at[:, 1:].set(1.0), True),
        (jnp.ones((1, rows - 1, 16)), True),
    ):
        assert noted(params | {"pos_embed": table}, ZeroOut()) == near


def test_values_that_are_not_there_are_not_judged():
    params = params_of()
    assert not plan(jax.eval_shape(lambda: params), ZeroOut()).notes
    jax.jit(lambda params: rewrite(KEY, params, ZeroOut()))(params)


@pytest.mark.parametrize(
    ("name", "shape", "near"),
    [
        ("class_embedding", (16,), True),
        ("embeddings.cls_token", (1, 1, 16), True),
        ("distillation_token", (1, 1, 16), True),
        ("class_embedding", (10, 16), False),  # of classes
        ("register_tokens", (1, 4, 16), False),  # nothing reads them
        ("cls_token.bias", (16,), False),
    ],
)
def test_names_of_tokens(name, shape, near):
    params = {key: value for key, value in params_of().items() if key != "cls_token"}
    notes = plan(params | {name: np.zeros(shape, np.float32)}, ZeroOut()).notes
    assert [note.split(" ")[0] for note in notes] == [name] * near


class OfTheUser(nnx.Module):
    def __init__(self, rngs):
        self.attention = nnx.MultiHeadAttention(2, 16, decode=False, rngs=rngs)
        self.cls = nnx.Param(jnp.zeros((1, 1, 16)))


def test_modules_say_it():
    with pytest.warns(UserWarning, match="^cls and its position"):
        written = mimetic_jax.nnx.initialize(OfTheUser(nnx.Rngs(0)), KEY, ZeroOut())
    assert written.notes[-1].startswith("cls and its position")


def test_the_command_says_it_once(tmp_path, capsys):
    """In its plan; what it writes is silent."""
    random = np.random.default_rng(0)
    shapes = {"cls_token": (1, 1, 32), "pos_embed": (1, 17, 32)}
    for block in ("blocks.0", "blocks.1"):
        shapes |= {f"{block}.attn.qkv.weight": (96, 32), f"{block}.attn.proj.weight": (32, 32)}
    tensors = {
        name: 0.02 * random.standard_normal(shape).astype(np.float32)
        for name, shape in shapes.items()
    }
    save_file(tensors, tmp_path / "in.safetensors")
    out = tmp_path / "out.safetensors"
    files.rewrite_file(
        [str(tmp_path / "in.safetensors"), str(out), "--heads=4", "--scheme=ZeroOut"]
    )
    said = " ".join(capsys.readouterr().out.split())
    assert len(re.findall(NOTE, said)) == 1
    assert out.exists()
