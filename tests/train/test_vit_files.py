"""Files of pretrained vision transformers.

`hugging_face_vit.npz` holds a ViTForImageClassification of transformers 5.23 as `save_pretrained`
writes it (width 24, 2 layers, 3 heads, 16x16 images, patches of 4, 5 classes; weights normal of
order 1/√fan-in, biases of .3, LayerNorm scales 1 ± .3, ε 1e-12), three images and its logits.
"""

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util
from safetensors.numpy import save_file

from mimetic_jax import InputError
from mimetic_jax.models import ViT, resample
from mimetic_jax.train.vit_files import fit_vit, read_vit

SIZES = {"num_classes": 5, "width": 24, "depth": 2, "heads": 3, "patch": 4, "mlp_ratio": 2.0}


@pytest.fixture
def hugging_face(golden):
    arrays = golden("hugging_face_vit")
    return {name: array for name, array in arrays.items() if name not in ("images", "logits")}


@pytest.fixture
def timm(hugging_face):
    return to_timm(hugging_face)


def renamed(tensors, *changes):
    """The tensors under the names that (pattern, replacement) pairs give them, one by one."""
    new = {}
    for name, array in tensors.items():
        for pattern, replacement in changes:
            name = re.sub(pattern, replacement, name)
        new[name] = array
    return new


MLP_AND_NORMS = (
    ("layernorm_before", "norm1"),
    ("layernorm_after", "norm2"),
    (r"intermediate\.dense", "mlp.fc1"),
    (r"(?<!attention\.)output\.dense", "mlp.fc2"),
)


def to_timm(tensors):
    """The same tensors as timm names and fuses them."""
    new = renamed(
        tensors,
        *MLP_AND_NORMS,
        (r"^vit\.(embeddings\.|encoder\.)?", ""),
        ("^position_embeddings", "pos_embed"),
        (r"^patch_embeddings\.projection", "patch_embed.proj"),
        ("^layernorm", "norm"),
        ("^classifier", "head"),
        (r"^layer\.", "blocks."),
        (r"attention\.output\.dense", "attn.proj"),
    )
    for layer, kind in itertools.product((0, 1), ("weight", "bias")):
        names = (
            f"blocks.{layer}.attention.attention.{n}.{kind}" for n in ("query", "key", "value")
        )
        new[f"blocks.{layer}.attn.qkv.{kind}"] = np.concatenate([new.pop(name) for name in names])
    return new


def to_augreg(tensors):
    """The same tensors as AugReg names and shapes them."""
    attention, norm2, mlp = "MultiHeadDotProductAttention_1", "LayerNorm_2", "MlpBlock_3"
    new = renamed(
        tensors,
        *MLP_AND_NORMS,
        (r"^vit\.embeddings\.cls_token", "cls"),
        (r"^vit\.embeddings\.position_embeddings", "Transformer/posembed_input/pos_embedding"),
        (r"^vit\.embeddings\.patch_embeddings\.projection\.", "embedding/"),
        (r"^vit\.layernorm\.", "Transformer/encoder_norm/"),
        (r"^classifier\.", "head/"),
        (r"^vit\.encoder\.layer\.(\d)\.", r"Transformer/encoderblock_\1/"),
        (r"norm1\.", "LayerNorm_0/"),
        (r"norm2\.", f"{norm2}/"),
        (r"attention\.attention\.(\w+)\.", rf"{attention}/\1/"),
        (r"attention\.output\.dense\.", f"{attention}/out/"),
        (r"mlp\.fc1\.", f"{mlp}/Dense_0/"),
        (r"mlp\.fc2\.", f"{mlp}/Dense_1/"),
        (r"norm(_\d)?/weight|Norm_\d/weight", lambda found: found[0].replace("weight", "scale")),
        ("weight$", "kernel"),
    )
    for name, array in new.items():
        if name.endswith("kernel"):
            array = np.moveaxis(array, (2, 3, 1, 0), (0, 1, 2, 3)) if array.ndim == 4 else array.T
        if re.search("/(query|key|value)/", name):
            array = array.reshape(*array.shape[:-1], 3, 8)
        if name.endswith("/out/kernel"):
            array = array.reshape(3, 8, 24)
        new[name] = array
    return new


def write(path, tensors):
    if path.suffix == ".npz":
        np.savez(path, **tensors)
    else:
        save_file({n: np.ascontiguousarray(a) for n, a in tensors.items()}, path)
    return path


def shapes(side=16, channels=3, **change):
    model = ViT(**{**SIZES, **change})
    images = jnp.zeros((1, side, side, channels))
    return jax.eval_shape(model.init, jax.random.key(0), images)["params"]


def drawn(**change):
    """A tree with values: 7 everywhere."""
    return jax.tree.map(lambda leaf: np.full(leaf.shape, 7, leaf.dtype), shapes(**change))


def fitted(path, tree, say):
    return fit_vit(read_vit(path), tree, say)


def whole(path, tree):
    """The tree with all its parameters from a file of the same sizes."""
    return traverse_util.unflatten_dict(fitted(path, tree, silent), sep="/")


def silent(line):
    raise AssertionError(f"said {line!r}")


@pytest.mark.parametrize(
    ("name", "form"), [("timm.safetensors", to_timm), ("augreg.npz", to_augreg)]
)
def test_logits_are_those_of_transformers(golden, hugging_face, tmp_path, name, form):
    arrays = golden("hugging_face_vit")
    path = write(tmp_path / name, form(hugging_face))
    for scan in (False, True):
        params = whole(path, shapes(scan=scan))
        assert jax.tree.map(np.shape, params) == jax.tree.map(np.shape, shapes(scan=scan))
        logits = jax.jit(ViT(**SIZES, scan=scan).apply)({"params": params}, arrays["images"])
        np.testing.assert_allclose(logits, arrays["logits"], atol=1e-4)


def test_positions_are_resampled_to_the_models_grid(timm, tmp_path):
    path = write(tmp_path / "a.safetensors", timm)
    table = timm["pos_embed"]
    said = []
    found = fitted(path, shapes(side=24), said.append)
    np.testing.assert_array_equal(found["pos_embed"], resample(table, (4, 4), (6, 6), 1))
    assert said == ["positions are resampled from 4x4 to 6x6 patches"]
    model = ViT(**SIZES)
    wide = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 8, 20, 3)))["params"]
    with pytest.raises(InputError, match="positions of 16 patches and the model 10: only square"):
        fitted(path, wide, silent)


def test_mean_pooling_drops_the_class_token(timm, tmp_path):
    path = write(tmp_path / "a.safetensors", timm)
    table = timm["pos_embed"]
    found = fitted(path, shapes(pool="mean"), silent)
    np.testing.assert_array_equal(found["pos_embed"], table[:, 1:])
    assert "cls_token" not in found
    # And with resampling: the patches of the table with a class token.
    found = fitted(path, shapes(side=8, pool="mean"), lambda line: None)
    expected = resample(table, (4, 4), (2, 2), 1)[:, 1:]
    np.testing.assert_array_equal(found["pos_embed"], expected)


@pytest.mark.parametrize(
    ("alter", "sizes", "words"),
    [
        (
            lambda t: t.update({"blocks.0.ls1.gamma": np.ones(3)}),
            {},
            r"ls1.gamma of .* has no place",
        ),
        (
            lambda t: (t.clear(), t.update(a=np.ones(3))),
            {},
            "must be a ViT of AugReg .* or timm .*; it has a",
        ),
        (lambda t: t.update({"norm.bias": np.ones(24, int)}), {}, "not floating point"),
        (lambda t: None, {"width": 30}, "24 columns, not a multiple of head width 10"),
    ],
)
def test_files_of_another_kind_or_width(timm, tmp_path, alter, sizes, words):
    alter(timm)
    path = write(tmp_path / "a.safetensors", timm)
    with pytest.raises(InputError, match=words):
        fitted(path, shapes(**sizes), silent)
