"""Pretrained checkpoints.

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
from mimetic_jax.train.pretrained import by_path
from tests.typical import typical

SIZES = {"num_classes": 5, "width": 24, "depth": 2, "heads": 3, "patch": 4, "mlp_ratio": 2.0}


@pytest.fixture
def hugging_face(golden):
    arrays = golden("hugging_face_vit")
    return {name: array for name, array in arrays.items() if name not in ("images", "logits")}


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
    """The same function as timm names and fuses its tensors, with scales."""
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
    return scaled(new, "blocks", ("attn.proj", "mlp.fc2"), "ls{}.gamma")


def scaled(tensors, block, ends, scales):
    """The same function with scales of random signs, by which last layers are divided."""
    new = dict(tensors)
    for layer in (0, 1):
        generator = np.random.default_rng(layer)
        for number, end in enumerate(ends, 1):
            scale = generator.uniform(0.1, 2, 24) * generator.choice([-1, 1], 24)
            for name in (f"{block}.{layer}.{end}.{kind}" for kind in ("weight", "bias")):
                new[name] = (new[name].T / np.float32(scale)).T
            new[f"{block}.{layer}.{scales.format(number)}"] = np.float32(scale)
    return new


def to_dinov2(tensors):
    """The same function as DINOv2 names it, with scales."""
    new = renamed(tensors, (r"^vit\.", "dinov2."), *MLP_AND_NORMS)
    ends = ("attention.output.dense", "mlp.fc2")
    return scaled(new, "dinov2.encoder.layer", ends, "layer_scale{}.lambda1")


def to_vit_jax(tensors, linen=False):
    """The same tensors as vit_jax names and shapes them, before Linen as in AugReg, or after."""
    attention, norm2, mlp = (
        ("MultiHeadDotProductAttention_0", "LayerNorm_1", "MlpBlock_0")
        if linen
        else ("MultiHeadDotProductAttention_1", "LayerNorm_2", "MlpBlock_3")
    )
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


def bare(tensors):
    """As the encoder alone is saved: no prefix, no classifier, and a pooler."""
    named = {name.removeprefix("vit."): array for name, array in tensors.items()}
    named = {name: array for name, array in named.items() if "classifier" not in name}
    return named | {
        "pooler.dense.weight": np.eye(24, dtype=np.float32),
        "pooler.dense.bias": np.zeros(24, np.float32),
    }


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


def whole(path, tree):
    """The tree with all its parameters from a file of the same sizes."""
    return traverse_util.unflatten_dict(by_path(path, tree, silent), sep="/")


def silent(line):
    raise AssertionError(f"said {line!r}")


FORMS = {
    "hugging_face.safetensors": lambda tensors: tensors,
    "dinov2.safetensors": to_dinov2,
    "timm.safetensors": to_timm,
    "augreg.npz": to_vit_jax,
    "linen.npz": lambda tensors: to_vit_jax(tensors, linen=True),
}


TYPICAL = ("hugging_face.safetensors", "dinov2.safetensors", "augreg.npz")


@typical("form", TYPICAL, slow=sorted(FORMS.keys() - TYPICAL))
def test_logits_are_those_of_transformers(golden, hugging_face, tmp_path, form):
    arrays = golden("hugging_face_vit")
    path = write(tmp_path / form, FORMS[form](hugging_face))
    for scan in (False, True):
        params = whole(path, shapes(scan=scan))
        assert jax.tree.map(np.shape, params) == jax.tree.map(np.shape, shapes(scan=scan))
        logits = jax.jit(ViT(**SIZES, scan=scan).apply)({"params": params}, arrays["images"])
        np.testing.assert_allclose(logits, arrays["logits"], atol=1e-4)


def test_positions_are_resampled_to_the_models_grid(hugging_face, tmp_path):
    path = write(tmp_path / "a.safetensors", hugging_face)
    table = hugging_face["vit.embeddings.position_embeddings"]
    said = []
    found = by_path(path, shapes(side=24), said.append)
    np.testing.assert_array_equal(found["pos_embed"], resample(table, (4, 4), (6, 6), 1))
    assert said == ["positions are resampled from 4x4 to 6x6 patches"]
    model = ViT(**SIZES)
    wide = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 8, 20, 3)))["params"]
    with pytest.raises(InputError, match="positions of 16 patches and the model 10: only square"):
        by_path(path, wide, silent)


def test_mean_pooling_drops_the_class_token(hugging_face, tmp_path):
    path = write(tmp_path / "a.safetensors", hugging_face)
    table = hugging_face["vit.embeddings.position_embeddings"]
    found = by_path(path, shapes(pool="mean"), silent)
    np.testing.assert_array_equal(found["pos_embed"], table[:, 1:])
    assert "cls_token" not in found
    # And with resampling: the patches of the table with a class token.
    found = by_path(path, shapes(side=8, pool="mean"), lambda line: None)
    expected = resample(table, (4, 4), (2, 2), 1)[:, 1:]
    np.testing.assert_array_equal(found["pos_embed"], expected)


def test_encoder_without_classifier(hugging_face, tmp_path):
    full = by_path(write(tmp_path / "a.safetensors", hugging_face), shapes(), silent)
    found = by_path(write(tmp_path / "b.safetensors", bare(hugging_face)), shapes(), silent)
    assert found.keys() == {name for name in full if not name.startswith("head/")}


@pytest.mark.parametrize(
    ("alter", "sizes", "words"),
    [
        (lambda t: t.update({"vit.gamma": np.ones(3)}), {}, r"vit.gamma of shape .* has no place"),
        (lambda t: (t.clear(), t.update(a=np.ones(3))), {}, "is not a ViT of vit_jax, timm or"),
        (lambda t: t.update({"vit.layernorm.bias": np.ones(24, int)}), {}, "not floating point"),
        (lambda t: None, {"width": 30}, "24 columns, not a multiple of head width 10"),
    ],
)
def test_files_of_another_kind_or_width(hugging_face, tmp_path, alter, sizes, words):
    alter(hugging_face)
    path = write(tmp_path / "a.safetensors", hugging_face)
    with pytest.raises(InputError, match=words):
        by_path(path, shapes(**sizes), silent)
