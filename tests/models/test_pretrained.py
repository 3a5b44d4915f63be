"""Pretrained checkpoints.

`hugging_face_vit.npz` holds a ViTForImageClassification of transformers 5.23 as `save_pretrained`
writes it (width 24, 2 layers, 3 heads, 16x16 images, patches of 4, 5 classes; weights normal of
order 1/√fan-in, biases of .3, LayerNorm scales 1 ± .3, ε 1e-12), three images and its logits.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

from mimetic_jax import InputError
from mimetic_jax.models import ViT, resample
from mimetic_jax.models.pretrained import load_pretrained

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


def silent(line):
    raise AssertionError(f"said {line!r}")


FORMS = {
    "hugging_face.safetensors": lambda tensors: tensors,
    "without_prefix.safetensors": lambda tensors: {
        name.removeprefix("vit."): array for name, array in tensors.items()
    },
    "timm.safetensors": to_timm,
    "dinov2.safetensors": to_dinov2,
    "timm_with_scales.safetensors": to_timm_with_scales,
    "augreg.npz": to_vit_jax,
    "linen.npz": lambda tensors: to_vit_jax(tensors, linen=True),
}


@pytest.mark.parametrize("form", FORMS)
def test_logits_are_those_of_transformers(golden, hugging_face, tmp_path, form):
    arrays = golden("hugging_face_vit")
    path = write(tmp_path / form, FORMS[form](hugging_face))
    params = load_pretrained(path, shapes(), say=silent)
    assert jax.tree.map(lambda a: (a.shape, a.dtype), params) == jax.tree.map(
        lambda a: (a.shape, a.dtype), shapes()
    )
    for scan in (False, True):
        params = load_pretrained(path, shapes(scan=scan), say=silent)
        logits = jax.jit(ViT(**SIZES, scan=scan).apply)({"params": params}, arrays["images"])
        np.testing.assert_allclose(logits, arrays["logits"], atol=1e-4)


def test_half_precision_files(hugging_face, tmp_path):
    """NumPy forgets the name of bfloat16; safetensors doesn't."""
    half = {n: a.astype(jnp.bfloat16) for n, a in hugging_face.items()}
    expected = half["vit.layernorm.weight"].astype(np.float32)
    for path in (
        write(tmp_path / "a.safetensors", half),
        write(tmp_path / "a.npz", to_vit_jax(half)),
    ):
        params = load_pretrained(path, shapes(), say=silent)
        assert params["norm"]["scale"].dtype == jnp.float32
        np.testing.assert_array_equal(params["norm"]["scale"], expected)


def test_positions_are_resampled_to_the_models_grid(hugging_face, tmp_path):
    path = write(tmp_path / "a.safetensors", hugging_face)
    table = hugging_face["vit.embeddings.position_embeddings"]
    said = []
    params = load_pretrained(path, shapes(side=24), say=said.append)
    np.testing.assert_array_equal(params["pos_embed"], resample(table, (4, 4), (6, 6), 1))
    assert said == [
        "vit.embeddings.position_embeddings is resampled from 4x4 to 6x6 patches",
    ]
    model = ViT(**SIZES)
    wide = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 8, 32, 3)))["params"]
    params = load_pretrained(
        path, wide, grid=(2, 8), say=said.append
    )  # as many patches, another grid
    np.testing.assert_array_equal(params["pos_embed"], resample(table, (4, 4), (2, 8), 1))


def test_mean_pooling_drops_the_class_token(hugging_face, tmp_path):
    path = write(tmp_path / "a.safetensors", hugging_face)
    said = []
    params = load_pretrained(path, shapes(pool="mean"), say=said.append)
    table = hugging_face["vit.embeddings.position_embeddings"]
    np.testing.assert_array_equal(params["pos_embed"], table[:, 1:])
    assert "cls_token" not in params
    assert said == ["cls_token and its position are left out: the model pools the mean"]
    # And with resampling: the patches of the table with a class token.
    params = load_pretrained(path, shapes(side=8, pool="mean"), say=said.append)
    expected = resample(table, (4, 4), (2, 2), 1)[:, 1:]
    np.testing.assert_array_equal(params["pos_embed"], expected)


def test_head_of_other_classes_stays_the_models(hugging_face, tmp_path):
    path = write(tmp_path / "a.safetensors", hugging_face)
    said = []
    params = load_pretrained(path, drawn(num_classes=9), say=said.append)
    assert params["head"]["kernel"].shape == (24, 9)
    assert (params["head"]["kernel"] == 7).all()
    assert (params["head"]["bias"] == 7).all()
    rest = [leaf for name, leaf in params.items() if name != "head"]
    assert not any((leaf == 7).any() for leaf in jax.tree.leaves(rest))
    assert said == ["the head stays the model's: 5 classes in the file, 9 in the model"]
    with pytest.raises(InputError, match="5 classes in the file and 9 in the model"):
        load_pretrained(path, shapes(num_classes=9), say=silent)


def test_encoder_without_classifier(hugging_face, tmp_path):
    path = write(tmp_path / "a.safetensors", bare(hugging_face))
    said = []
    params = load_pretrained(path, drawn(), say=said.append)
    assert (params["head"]["kernel"] == 7).all()
    assert sorted(said) == [
        "pooler.dense.bias is left out: no classifier uses it",
        "pooler.dense.weight is left out: no classifier uses it",
        "the head stays the model's: 0 classes in the file, 5 in the model",
    ]


def test_dtypes_and_shardings_are_the_trees(hugging_face, tmp_path):
    path = write(tmp_path / "a.safetensors", hugging_face)
    mesh = jax.make_mesh((1,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    where = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    tree = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.bfloat16, sharding=where), shapes()
    )
    for leaf in jax.tree.leaves(load_pretrained(path, tree, say=silent)):
        assert (leaf.dtype, leaf.sharding) == (jnp.bfloat16, where)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"depth": 3}, "a.safetensors holds 2 blocks and the model 3"),
        ({"depth": 3, "scan": True}, "a.safetensors holds 2 blocks and the model 3"),
        (
            {"patch": 8, "side": 32},
            "vit.embeddings.patch_embeddings.projection.weight has shape (24, 3, 4, 4) "
            "((48, 24) turned) in the file; patch_embed/kernel has (192, 24) here",
        ),
        ({"channels": 1}, "patch_embed/kernel has (16, 24) here"),
        (
            {"mlp_ratio": 4.0},
            "vit.encoder.layer.0.intermediate.dense.bias has shape (48,) in the file; "
            "block_0/mlp/fc1/bias has (96,) here",
        ),
        (
            {"qkv_bias": False},
            "vit.encoder.layer.0.attention.attention.key.bias of shape (24,) has no place",
        ),
    ],
)
def test_what_does_not_fit_is_named(hugging_face, tmp_path, change, words):
    path = write(tmp_path / "a.safetensors", hugging_face)
    with pytest.raises(InputError, match=re.escape(words)):
        load_pretrained(path, shapes(**change), say=silent)


def test_heads_that_a_file_tells_must_be_the_models(hugging_face, tmp_path):
    path = write(tmp_path / "a.npz", to_vit_jax(hugging_face))
    with pytest.raises(InputError, match=r"shape \(3, 8\) in the file; .* \(2, 12\) here"):
        load_pretrained(path, shapes(heads=2), say=silent)


@pytest.mark.parametrize(
    ("alter", "words"),
    [
        (lambda t: t.pop("vit.layernorm.bias"), r"lacks norm/bias, of shape \(24,\) here"),
        (lambda t: t.pop("vit.embeddings.cls_token"), "lacks cls_token"),
        (lambda t: t.update({"vit.gamma": np.ones(3)}), r"vit.gamma of shape \(3,\) has no place"),
        (lambda t: (t.clear(), t.update(a=np.ones(3))), "is not a ViT of vit_jax, timm or"),
        (
            lambda t: t.update(
                {"vit.embeddings.position_embeddings": np.ones((1, 13, 24), np.float32)}
            ),
            r"shape \(1, 13, 24\) in the file .* 12 patches are not a square grid",
        ),
    ],
)
def test_files_that_are_not_whole(hugging_face, tmp_path, alter, words):
    alter(hugging_face)
    path = write(tmp_path / "a.safetensors", hugging_face)
    with pytest.raises(InputError, match=words):
        load_pretrained(path, shapes(), say=silent)


def test_files_that_are_no_checkpoints(hugging_face, tmp_path):
    path = write(tmp_path / "a.safetensors", hugging_face)
    with pytest.raises(InputError, match="a grid of 3x4 doesn't fit the model's 16 patches"):
        load_pretrained(path, shapes(), grid=(3, 4), say=silent)
