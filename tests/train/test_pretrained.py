"""Pretrained checkpoints.

`hugging_face_vit.npz` holds a ViTForImageClassification of transformers 5.23 as `save_pretrained`
writes it (width 24, 2 layers, 3 heads, 16x16 images, patches of 4, 5 classes; weights normal of
order 1/√fan-in, biases of .3, LayerNorm scales 1 ± .3, ε 1e-12), three images and its logits.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util
from safetensors.numpy import save_file

from mimetic_jax import InputError
from mimetic_jax.models import ViT, resample
from mimetic_jax.train.pretrained import by_path

SIZES = {"num_classes": 5, "width": 24, "depth": 2, "heads": 3, "patch": 4, "mlp_ratio": 2.0}


@pytest.fixture
def hugging_face(golden):
    arrays = golden("hugging_face_vit")
    return {name: array for name, array in arrays.items() if name not in ("images", "logits")}


def to_timm(tensors):
    """The same tensors as timm names and fuses them."""
    new = {
        "cls_token": tensors["vit.embeddings.cls_token"],
        "pos_embed": tensors["vit.embeddings.position_embeddings"],
    }
    for kind in ("weight", "bias"):
        new[f"patch_embed.proj.{kind}"] = tensors[
            f"vit.embeddings.patch_embeddings.projection.{kind}"
        ]
        new[f"norm.{kind}"] = tensors[f"vit.layernorm.{kind}"]
        new[f"head.{kind}"] = tensors[f"classifier.{kind}"]
        for layer in (0, 1):
            old, ours = f"vit.encoder.layer.{layer}.", f"blocks.{layer}."
            new[f"{ours}norm1.{kind}"] = tensors[f"{old}layernorm_before.{kind}"]
            new[f"{ours}norm2.{kind}"] = tensors[f"{old}layernorm_after.{kind}"]
            new[f"{ours}attn.qkv.{kind}"] = np.concatenate(
                [tensors[f"{old}attention.attention.{n}.{kind}"] for n in ("query", "key", "value")]
            )
            new[f"{ours}attn.proj.{kind}"] = tensors[f"{old}attention.output.dense.{kind}"]
            new[f"{ours}mlp.fc1.{kind}"] = tensors[f"{old}intermediate.dense.{kind}"]
            new[f"{ours}mlp.fc2.{kind}"] = tensors[f"{old}output.dense.{kind}"]
    return new


def layer_scales(layer):
    """λ of random signs, for attention and the MLP."""
    generator = np.random.default_rng(layer)
    return [
        (generator.uniform(0.1, 2, 24) * generator.choice([-1, 1], 24)).astype(np.float32)
        for _ in range(2)
    ]


def to_dinov2(tensors):
    """The same function as DINOv2 names it, with scales that its last layers are divided by."""
    new = {}
    for name, array in tensors.items():
        place, _, rest = name.removeprefix("vit.").partition(".layer.")
        if not rest:
            new[f"dinov2.{place}" if name.startswith("vit.") else name] = array
            continue
        layer, _, rest = rest.partition(".")
        rest = rest.replace("layernorm_before", "norm1").replace("layernorm_after", "norm2")
        rest = rest.replace("intermediate.dense", "mlp.fc1")
        for end, scale in zip(
            ("attention.output", "output"), layer_scales(int(layer)), strict=True
        ):
            if rest.startswith(f"{end}.dense"):
                array = (array.T / scale).T
        if rest.startswith("output.dense"):
            rest = rest.replace("output.dense", "mlp.fc2")
        new[f"dinov2.encoder.layer.{layer}.{rest}"] = array
    for layer in (0, 1):
        for number, scale in enumerate(layer_scales(layer), 1):
            new[f"dinov2.encoder.layer.{layer}.layer_scale{number}.lambda1"] = scale
    return new


def to_timm_with_scales(tensors):
    """The same function as timm names it, with scales."""
    new = to_timm(tensors)
    for layer in (0, 1):
        ends = zip(("attn.proj", "mlp.fc2"), layer_scales(layer), strict=True)
        for number, (end, scale) in enumerate(ends, 1):
            for kind in ("weight", "bias"):
                name = f"blocks.{layer}.{end}.{kind}"
                new[name] = (new[name].T / scale).T
            new[f"blocks.{layer}.ls{number}.gamma"] = scale
    return new


def to_vit_jax(tensors, linen=False):
    """The same tensors as vit_jax names and shapes them, before Linen as in AugReg, or after."""
    attention, norm2, mlp = (
        ("MultiHeadDotProductAttention_0", "LayerNorm_1", "MlpBlock_0")
        if linen
        else ("MultiHeadDotProductAttention_1", "LayerNorm_2", "MlpBlock_3")
    )
    patch = "vit.embeddings.patch_embeddings.projection."
    new = {
        "cls": tensors["vit.embeddings.cls_token"],
        "Transformer/posembed_input/pos_embedding": tensors["vit.embeddings.position_embeddings"],
        "embedding/kernel": np.moveaxis(tensors[patch + "weight"], (2, 3, 1, 0), (0, 1, 2, 3)),
        "embedding/bias": tensors[patch + "bias"],
        "Transformer/encoder_norm/scale": tensors["vit.layernorm.weight"],
        "Transformer/encoder_norm/bias": tensors["vit.layernorm.bias"],
        "head/kernel": tensors["classifier.weight"].T,
        "head/bias": tensors["classifier.bias"],
    }
    for layer in (0, 1):
        old, ours = f"vit.encoder.layer.{layer}.", f"Transformer/encoderblock_{layer}/"
        for name, source in (("LayerNorm_0", "before"), (norm2, "after")):
            new[f"{ours}{name}/scale"] = tensors[f"{old}layernorm_{source}.weight"]
            new[f"{ours}{name}/bias"] = tensors[f"{old}layernorm_{source}.bias"]
        for name in ("query", "key", "value"):
            source = f"{old}attention.attention.{name}."
            new[f"{ours}{attention}/{name}/kernel"] = tensors[source + "weight"].T.reshape(24, 3, 8)
            new[f"{ours}{attention}/{name}/bias"] = tensors[source + "bias"].reshape(3, 8)
        source = f"{old}attention.output.dense."
        new[f"{ours}{attention}/out/kernel"] = tensors[source + "weight"].T.reshape(3, 8, 24)
        new[f"{ours}{attention}/out/bias"] = tensors[source + "bias"]
        for name, source in (("Dense_0", "intermediate"), ("Dense_1", "output")):
            new[f"{ours}{mlp}/{name}/kernel"] = tensors[f"{old}{source}.dense.weight"].T
            new[f"{ours}{mlp}/{name}/bias"] = tensors[f"{old}{source}.dense.bias"]
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
    "timm.safetensors": to_timm,
    "dinov2.safetensors": to_dinov2,
    "timm_with_scales.safetensors": to_timm_with_scales,
    "augreg.npz": to_vit_jax,
    "linen.npz": lambda tensors: to_vit_jax(tensors, linen=True),
}


TYPICAL = ("hugging_face.safetensors", "dinov2.safetensors", "augreg.npz")


@pytest.mark.parametrize(
    "form",
    [*TYPICAL, *(pytest.param(f, marks=pytest.mark.slow) for f in FORMS if f not in TYPICAL)],
)
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
    ("alter", "words"),
    [
        (lambda t: t.update({"vit.gamma": np.ones(3)}), r"vit.gamma of shape \(3,\) has no place"),
        (lambda t: (t.clear(), t.update(a=np.ones(3))), "is not a ViT of vit_jax, timm or"),
        (lambda t: t.update({"vit.layernorm.bias": np.ones(24, int)}), "not floating point"),
    ],
)
def test_files_of_another_kind(hugging_face, tmp_path, alter, words):
    alter(hugging_face)
    path = write(tmp_path / "a.safetensors", hugging_face)
    with pytest.raises(InputError, match=words):
        by_path(path, shapes(), silent)


def test_heads_of_another_width(hugging_face, tmp_path):
    path = write(tmp_path / "a.safetensors", hugging_face)
    with pytest.raises(InputError, match="24 columns, not a multiple of head width 10"):
        by_path(path, shapes(width=30), silent)
