import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util

from mimetic_jax import InputError
from mimetic_jax.models import ViT, resample
from mimetic_jax.models.layers import Dropout
from mimetic_jax.models.vit import Block
from tests.models.values import drawn
from tests.typical import typical

KEY = jax.random.key(0)
VIT = {
    **{"num_classes": 5, "width": 12, "depth": 2, "heads": 2, "patch": 4, "token_std": 1e-6},
    **{"dropout": 0.2, "drop_path": 0.5},
}
"""Of the recorded arrays."""
SMALL = {"num_classes": 5, "width": 24, "depth": 2, "heads": 3, "patch": 4}


def images(batch=2):
    return jax.random.normal(jax.random.key(1), (batch, 8, 8, 3))


def recorded(golden, base):
    """Parameters of a model and its logits with and without dropout, as recorded when attention
    was Flax's own layer."""
    arrays = golden("vit")
    prefix = f"{base}/params/"
    flat = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
    params = traverse_util.unflatten_dict(flat, sep="/")
    return {"params": params}, arrays[f"{base}/logits"], arrays[f"{base}/logits_train"]


def train_logits(model, variables, x, key):
    return jax.jit(lambda v: model.apply(v, x, train=True, rngs={"dropout": key}))(variables)


@typical(("base", "pool"), [("torch", "mean")], slow=[("timm", "token")])
def test_parameters_and_results_stay_what_they_were(golden, base, pool):
    model = ViT(**VIT, base=base, pool=pool)
    found, variables = jax.jit(model.init_with_output)(KEY, images())
    expected, logits, _ = recorded(golden, base)
    assert jax.tree.structure(variables) == jax.tree.structure(expected)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-8), variables, expected
    )
    np.testing.assert_allclose(found, logits, atol=1e-5)


@typical("change", [{"remat": True}], slow=[{}])
def test_training_results_stay_what_they_were(golden, change):
    model = ViT(**VIT, **change)
    variables, _, logits_train = recorded(golden, "timm")
    shapes = jax.eval_shape(model.init, KEY, images())
    assert jax.tree.map(jnp.shape, variables) == jax.tree.map(jnp.shape, shapes)
    found = train_logits(model, variables, images(), jax.random.key(2))
    np.testing.assert_allclose(found, logits_train, atol=1e-5)


def test_scanned_layers_are_drawn_apart_and_like_the_unrolled():
    model = ViT(**SMALL, base="torch", scan=True)
    params = jax.jit(lambda key: model.init(key, images())["params"]["blocks"]["mlp"]["fc1"])(KEY)
    kernels = params["kernel"]
    assert not np.isclose(*kernels).all(axis=0).any()
    for kernel in kernels:  # U(±1/√24)
        assert float(kernel.std()) == pytest.approx((3 * 24) ** -0.5, rel=0.05)


def test_scan_drops_paths_in_later_layers_only():
    """Of two layers the first has rate 0 and the second .9: four outcomes, not sixteen."""
    x = jnp.broadcast_to(images(1), (64, 8, 8, 3))
    model = ViT(**SMALL, drop_path=0.9, scan=True, remat=True)
    dropped = train_logits(model, {"params": drawn(model, x[:1])}, x, KEY)
    outcomes, counts = np.unique(np.round(dropped, 4), axis=0, return_counts=True)
    assert 2 <= len(outcomes) <= 4
    assert counts.max() / 64 == pytest.approx(0.81, abs=0.15)  # both branches dropped


@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("axes", [(), (1, 2)])
def test_dropout_is_flaxs_and_takes_a_traced_rate(rate, axes):
    x = jax.random.normal(KEY, (16, 5, 3))
    rngs = {"dropout": jax.random.key(3)}
    expected = nn.Dropout(rate, axes, deterministic=False).apply({}, x, rngs=rngs)
    layer = Dropout(axes)
    np.testing.assert_array_equal(layer.apply({}, x, rate, True, rngs=rngs), expected)
    traced = jax.jit(lambda rate: layer.apply({}, x, rate, True, rngs=rngs))(rate)
    np.testing.assert_allclose(traced, expected, rtol=1e-6)
    np.testing.assert_array_equal(layer.apply({}, x, rate, False), x)


@pytest.mark.parametrize("form", ["branch", "skip"])
def test_layer_scale_multiplies_the_branch_or_the_skip(form):
    x = jax.random.normal(KEY, (2, 5, 24))
    block = Block(heads=3, mlp_ratio=2.0, base="torch", layer_scale=form, scale_init=0.3)
    name = {"branch": "layer_scale", "skip": "skip_scale"}[form]
    start = jax.jit(lambda key: block.init(key, x)["params"][name])(KEY)
    np.testing.assert_allclose(start, [0.3] * 24)
    params = drawn(block, x)
    params["mlp"] = jax.tree.map(np.zeros_like, params["mlp"])
    apply = jax.jit(functools.partial(block.apply, capture_intermediates=True))
    (found, _), state = apply({"params": params}, x)
    (attended,), scale = state["intermediates"]["attention"]["__call__"], params[name]
    expected = x + scale * attended if form == "branch" else scale * x + attended
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("case", ["up", "down", "finer"])
def test_is_pytorchs_antialiased_bicubic(golden, case):
    """`torch.nn.functional.interpolate(mode="bicubic")` 2.13 of white noise, both ways."""
    arrays = golden("resample")
    table, (grid_from, grid_to) = arrays[f"{case}/table"], arrays[f"{case}/grids"].tolist()
    ours = resample(table, grid_from, grid_to)
    np.testing.assert_allclose(ours, arrays[f"{case}/antialias"], atol=5e-6)
    # What the docstring says of the other form.
    difference = float(np.std(ours - arrays[f"{case}/plain"]))
    assert difference == pytest.approx({"up": 0.08, "down": 0.59, "finer": 0.07}[case], abs=0.01)


def test_a_class_token_the_same_grid_and_half_precision():
    """The token's row and the same grid stay; half precision is computed in single."""
    table = jax.random.normal(jax.random.key(0), (1, 10, 4))
    both = resample(table, (3, 3), (5, 4), prefix=1)
    assert both.shape == (1, 21, 4)
    np.testing.assert_array_equal(both[:, 0], table[:, 0])
    np.testing.assert_array_equal(both[:, 1:], resample(table[:, 1:], (3, 3), (5, 4)))
    np.testing.assert_array_equal(resample(table, (3, 3), (3, 3), prefix=1), table)
    half = table[:, 1:].astype(jnp.bfloat16)
    exact = resample(half.astype(jnp.float32), (3, 3), (6, 6)).astype(jnp.bfloat16)
    found = resample(half, (3, 3), (6, 6))
    assert found.dtype == jnp.bfloat16
    np.testing.assert_array_equal(found, exact)


@pytest.mark.parametrize(
    ("shape", "grid_to", "prefix", "words"),
    [
        ((1, 9, 4), (2, 2), 1, r"\(1, 9, 4\) does not hold 1 rows and a 3x3 grid"),
        ((9, 4), (2, 2), 0, r"\(9, 4\) does not hold"),
        ((1, 9, 4), (0, 2), 0, "the grid 0x2 is empty"),
    ],
)
def test_bad_input(shape, grid_to, prefix, words):
    with pytest.raises(InputError, match=words):
        resample(jnp.zeros(shape), (3, 3), grid_to, prefix)
