"""What holds for every model: its loop over blocks, half precision, its size, one-line errors."""

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util

from mimetic_jax import InputError, plan, schemes
from mimetic_jax.models import MODELS, VARIANTS, Model
from tests.models.values import of_shapes, stacked
from tests.typical import typical

KEY = jax.random.key(0)
DRAWS = np.random.default_rng(1)
IMAGES = jnp.float32(DRAWS.normal(size=(2, 8, 8, 3)))
TOKENS = jnp.int32(DRAWS.integers(0, 11, (2, 8)))
MIXING = {"num_classes": 5, "width": 6, "depth": 2, "patch": 2}
GRID = {"depths": (2,), "downscaling": (2,), "head_dim": 4, "window": 2}
SMALL: dict[str, dict[str, Any]] = {
    "vit": {"num_classes": 5, "width": 12, "depth": 2, "heads": 3, "patch": 4},
    "mixer": MIXING,
    "convmixer": {**MIXING, "filter_size": 3},
    "convnext": {**MIXING, "filter_size": 3},
    "swin": {"num_classes": 5, "width": 8, **GRID},
    "gpt": {"vocab": 11, "width": 12, "depth": 2, "heads": 3},
}


def of_models(*names: str) -> pytest.MarkDecorator:
    """Every model; those that aren't typical take minutes together."""
    return typical("name", names, slow=[name for name in SMALL if name not in names])


def small(name: str, **change: Any) -> Any:
    return MODELS[name](**SMALL[name] | change)


def inputs(name: str) -> jax.Array:
    return TOKENS if "vocab" in SMALL[name] else IMAGES


def shapes(name: str, **change: Any) -> Any:
    return jax.eval_shape(small(name, **change).init, KEY, inputs(name))


@functools.cache
def variables(name: str) -> dict[str, Any]:
    return of_shapes(shapes(name))


def loss(model: Any, variables: Any, x: jax.Array) -> tuple[jax.Array, Any]:
    """Of training, where the model has running statistics, with these as they are after it."""
    train = {"train": True} if "batch_stats" in variables else {}
    output, changed = model.apply(variables, x, mutable=["batch_stats"], **train)
    return jnp.square(output).mean(), changed


def test_every_model_is_here():
    assert SMALL.keys() == MODELS.keys()


@pytest.mark.parametrize("name", SMALL)
def test_scanned_parameters_are_those_of_the_blocks_stacked(name):
    found = jax.tree.map(jnp.shape, shapes(name, scan=True))
    assert found == jax.tree.map(jnp.shape, stacked(variables(name)))


# These have all that `stack` does: statistics, numbers per block.
@of_models("convmixer", "swin")
def test_a_scan_that_recomputes_blocks_is_the_unrolled_function(name):
    """Loss, gradient and running statistics, of the same parameters stacked."""

    @functools.partial(jax.jit, static_argnums=0)
    def gradient(model, given):
        def of(params):
            return loss(model, given | {"params": params}, inputs(name))

        (value, changed), gradient = jax.value_and_grad(of, has_aux=True)(given["params"])
        return value, {"params": gradient, **changed}

    value, expected = gradient(small(name), variables(name))
    again, found = gradient(small(name, scan=True, remat=True), stacked(variables(name)))
    assert float(again) == pytest.approx(float(value), rel=1e-5)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))
    close = functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-4)
    jax.tree.map(close, found, stacked(expected))


@of_models("vit")
@typical("scan", [True], slow=[False])
def test_remat_recomputes_blocks(name, scan):
    """By the products of the gradient, where those of the forward pass come again, and by the GELUs
    of each block: forward, again, and in the gradient itself.
    """

    def counted(remat):
        model, given = small(name, scan=scan, remat=remat), shapes(name, scan=scan)
        ones = jax.tree.map(lambda leaf: jnp.ones(leaf.shape), given)
        gradient = jax.grad(lambda params: loss(model, ones | {"params": params}, inputs(name))[0])
        program = str(jax.make_jaxpr(gradient)(ones["params"]))
        return [
            len(re.findall(f"= (?:{primitives})", program))
            for primitives in ("dot_general|conv_general_dilated", "erfc? ")
        ]

    (products, gelus), (products_again, gelus_again) = counted(False), counted(True)
    assert products_again >= products + (1 if scan else SMALL[name].get("depth", 1))
    outside = 2 if name == "convmixer" else 0  # the GELU behind its patches
    assert gelus > outside, "no block has the GELU of models/low_memory.py, which is counted here"
    assert 2 * (gelus_again - outside) == 3 * (gelus - outside)


@of_models("vit")
def test_bfloat16_computes_close_to_float32(name):
    """Parameters, logits and hidden states stay float32."""
    leaves = jax.tree.leaves(shapes(name, dtype=jnp.bfloat16))
    assert {leaf.dtype for leaf in leaves} == {jnp.dtype("float32")}
    exact, found = (
        jax.jit(small(name, dtype=dtype).apply)(variables(name), inputs(name))
        for dtype in (jnp.float32, jnp.bfloat16)
    )
    assert found.dtype == jnp.float32
    error = np.abs(exact - found)
    assert 0 < error.mean() < 0.02 * np.abs(exact).mean() + 0.02


def layers(laws: dict[str, float], bias: float | None = None) -> dict[str, float]:
    """The laws of layers' kernels and biases, the same for both unless that of biases is given."""
    kernels = {f"{layer}/kernel": law for layer, law in laws.items()}
    return kernels | {f"{name}/bias": law if bias is None else bias for name, law in laws.items()}


W64, TORCH, TOKEN = {"width": 64}, {"base": "torch"}, "block_0/token_mixing"
PATCH, DEPTHWISE_3 = {"patch_embed": 12}, {"block_0/depthwise": 9}
NORMAL = dict.fromkeys(("patch_embed", "block_0/depthwise", "block_0/mlp/fc1", "head"), 0.02)
INITIAL = [
    ("vit", {"width": 192}, layers({"block_0/attention/query": 0.02}, bias=0.0)),
    (
        *("vit", {"width": 192, **TORCH}),
        layers({"block_0/attention/query": 192, "block_0/attention/out": 192})
        | {"block_0/mlp/fc2/bias": 768, "pos_embed": 0.02},
    ),
    ("mixer", W64 | TORCH, layers(PATCH | {f"{TOKEN}/fc1": 16, f"{TOKEN}/fc2": 64})),  # of tokens
    ("convmixer", W64, layers(PATCH | DEPTHWISE_3 | {"block_0/pointwise": 64})),
    ("convnext", W64 | TORCH, layers(PATCH | DEPTHWISE_3 | {"block_0/mlp/fc2": 256})),
    ("convnext", W64 | {"base": "timm"}, layers(NORMAL, bias=0.0)),
    (
        *("gpt", {"width": 96}),  # embeddings of Bai et al.
        layers({"block_0/attention/query": 0.02, "block_0/mlp/fc2": 0.02}, bias=0.0)
        | {"embedding": 0.01, "decoder_bias": 0.0},
    ),
    ("gpt", {"width": 96, **TORCH}, layers({"block_0/mlp/fc2": 384}) | {"embedding": 0.01}),
    ("gpt", {"width": 96, "embedding_std": 0.1}, {"embedding": 0.1}),
]


@pytest.mark.parametrize(("name", "fields", "laws"), INITIAL)
def test_initial_values(name, fields, laws):
    """U(±1/√fan-in), where an integer is the fan-in; else normal, of that standard deviation."""
    model = small(name, depth=1, **fields)

    @jax.jit
    def drawn(key):  # nothing else is compiled
        params = traverse_util.flatten_dict(model.init(key, inputs(name))["params"], sep="/")
        return {path: params[path] for path in laws}

    for path, leaf in drawn(KEY).items():
        leaf, law = np.asarray(leaf), laws[path]
        if isinstance(law, int):
            assert 0.9 < np.abs(leaf).max() * law**0.5 <= 1.0001, path
            assert leaf.std() == pytest.approx((3 * law) ** -0.5, rel=0.15), path
        else:
            assert leaf.std() == pytest.approx(law, rel=0.1), path


def test_a_token_changes_nothing_before_it():
    fields = {"positions": "learned", "max_length": 9}
    given = of_shapes(shapes("gpt", **fields))
    apply = jax.jit(small("gpt", **fields).apply)
    changed = TOKENS.at[:, 5].set((TOKENS[:, 5] + 1) % 11)
    before, after = (np.asarray(apply(given, ids)) for ids in (TOKENS, changed))
    np.testing.assert_allclose(before[:, :5], after[:, :5], rtol=1e-6, atol=1e-6)
    assert (np.abs(before - after)[:, 5:].max(-1) > 1e-4).all()


SWIN_T = {
    **{"form": "cifar", "width": 96, "depths": (2, 2, 6, 2)},
    **{"downscaling": (2, 2, 2, 1), "window": 4},
}
TINY = {"width": 16, "depth": 3, "mlp_ratio": 2.0}
COUNTS = [
    # vit_{tiny,small,base}_patch16_224 of timm and DeiT.
    ("vit", 1000, {"patch": 16, **VARIANTS["Ti"]}, 224, 5_717_416),
    ("vit", 1000, {"patch": 16, **VARIANTS["S"]}, 224, 22_050_664),
    ("vit", 1000, {"patch": 16, **VARIANTS["B"]}, 224, 86_567_656),
    ("mixer", 10, {}, 32, 1_819_530),  # kentaroy47's for CIFAR-10
    # Table 7 of the structured paper.
    ("convmixer", 10, {"width": 256, "filter_size": 3}, 32, 561_418),
    ("convmixer", 10, {"width": 256, "filter_size": 8}, 32, 674_058),
    ("convmixer", 10, {"width": 512, "filter_size": 5}, 32, 2_236_938),
    # ConvNeXt-256/8 of the MLP paper, and the two of its populations.
    ("convnext", 10, {}, 32, 4_317_450),
    ("convnext", 10, {**TINY, "patch": 2}, 32, 6_122),
    ("convnext", 10, {**TINY, "patch": 4}, 32, 6_698),
    ("swin", 10, SWIN_T, 32, 26_598_646),  # kentaroy47's Swin-T for CIFAR
    ("swin", 1000, {}, 224, 87_768_224),  # Microsoft's Swin-B
    # WikiText-103's words, by hand.
    ("gpt", 267_735, {"width": 410, "depth": 16, "heads": 10}, 80, 142_400_385),
]


@pytest.mark.parametrize(
    ("name", "classes", "fields", "side", "count"), COUNTS, ids=lambda value: str(value)[:20]
)
def test_number_of_parameters(name, classes, fields, side, count):
    """By published counts, scanned: stacking changes none."""
    text = "vocab" in SMALL[name]
    filled = {"vocab" if text else "num_classes": classes}
    given = jnp.zeros((1, side), jnp.int32) if text else jnp.zeros((1, side, side, 3))
    model = MODELS[name](**filled, scan=True, **fields)
    found = jax.eval_shape(model.init, KEY, given)["params"]
    assert sum(leaf.size for leaf in jax.tree.leaves(found)) == count


@pytest.mark.parametrize("name", SMALL)
def test_traits(name):
    """Only image models with square patches have a grid; each has a field of the loop."""
    fields = {name: value for name, value in SMALL[name].items() if name != "num_classes"}
    model = Model.of(name, fields | {"scan": True}, num_classes=5)
    patch = fields.get("patch")
    assert model.grid((16, 8, 3)) == (patch and (16 // patch, 8 // patch))
    assert not model.with_fields(scan=False).module.scan


FC1, DEPTHWISE = ("mlp/fc1/kernel",), ("depthwise/kernel",)
ATTENTION = tuple(f"attention/{role}/kernel" for role in ("key", "out", "query", "value"))
WRITES = [
    ("mixer", schemes.MeanShift(), FC1),
    ("mixer", schemes.ImpulseMixing(), ("token_mixing/fc1/kernel", "token_mixing/fc2/kernel")),
    ("convmixer", schemes.ConvMimetic(), DEPTHWISE),
    ("convmixer", schemes.ConvFilters("impulse"), DEPTHWISE),
    ("convnext", schemes.MeanShift(), FC1),
    ("convnext", schemes.ConvMimetic(), DEPTHWISE),
    ("convnext", schemes.ConvFilters("box"), DEPTHWISE),
    ("convnext", schemes.ConstantBias(0.0), ("mlp/fc1/bias",)),
    ("gpt", schemes.mimetic_language(zero_bias=False), ATTENTION),
]


@pytest.mark.parametrize(("name", "scheme", "leaves"), WRITES, ids=str)
@pytest.mark.parametrize("scan", [False, True])
def test_schemes_find_the_layers_that_they_are_for(name, scheme, leaves, scan):
    """And no others, such as those that mix tokens where a scheme is for channels."""
    blocks = ["blocks"] if scan else ["block_0", "block_1"]
    found = [write.path for write in plan(shapes(name, scan=scan)["params"], scheme)]
    assert sorted(found) == [f"{block}/{leaf}" for block in blocks for leaf in leaves]


MIXERS = ("mixer", "convmixer", "convnext")
BAD = [
    *((name, {"patch": 3}, "patch 3 does not divide the image 8x8") for name in ("vit", *MIXERS)),
    *((name, {"base": "touch"}, "did you mean 'torch'") for name in ("vit", "mixer", "convnext")),
    ("vit", {"heads": 5}, "heads 5 does not divide width 12"),
    ("vit", {"pool": "max"}, "unknown pool 'max'"),
    ("vit", {"drop_path": 1.0}, r"drop_path 1.0 is not in \[0, 1\)"),
    ("vit", {"token_std": -1.0}, "token_std -1.0 is not"),
    ("convmixer", {"filter_size": 0}, "filter size 0 is not positive"),
    ("swin", {"form": "cifr"}, "unknown form 'cifr'.*did you mean 'cifar'"),
    ("swin", {"head_dim": 3}, "head_dim 3 does not divide width 8"),
    ("swin", {"downscaling": (3,)}, "downscaling 3 does not divide the 8x8 image"),
    ("swin", {"downscaling": (2, 2)}, r"depths \(2,\) and downscaling \(2, 2\) have different"),
    ("swin", {"window": 3}, "window 3 does not divide the 4x4 grid of stage 0"),
    ("gpt", {"positions": "rotory"}, "unknown positions 'rotory'; did you mean 'rotary'"),
    ("gpt", {"positions": "rotary", "heads": 4}, "3 columns of a head that turn are"),
    ("gpt", {"positions": "learned", "max_length": 7}, "8 tokens are more than the 7 positions"),
    ("gpt", {"embedding": "uniform", "embedding_std": 0.1}, "embedding_std 0.1 is of a normal"),
    ("gpt", {"embedding_dropout": -0.1}, r"embedding_dropout -0.1 is not in \[0, 1\)"),
]


@pytest.mark.parametrize(("name", "change", "words"), BAD, ids=lambda value: str(value)[:30])
def test_bad_input(name, change, words):
    with pytest.raises(InputError, match=words):
        shapes(name, **change)
