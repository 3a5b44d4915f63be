"""Products with the norm's gain and LayerScale, against NumPy, whatever the names and storage."""

import jax
import numpy as np
import pytest

from mimetic_jax import InputError, check, fit, rewrite, schemes
from mimetic_jax.models import ViT
from mimetic_jax.schemes import CorrelatedMLP, Interpolated
from tests.products import cosine

D, H, F, L = 48, 4, 96, 3
KEY = jax.random.key(0)
QKV = ("query", "key", "value")


def dinov2():
    """A tree with the names of Hugging Face's DINOv2, gains and scales drawn, of any sign."""
    random = np.random.default_rng(0)

    def draw(*shape):
        return random.normal(size=shape).astype(np.float32)

    tree = {}
    for i in range(L):
        at = f"encoder.layer.{i}"
        for name in ("attention.query", "attention.key", "attention.value", "output.dense"):
            tree[f"{at}.attention.{name}.weight"] = 0.1 * draw(D, D)
            tree[f"{at}.attention.{name}.bias"] = draw(D)
        tree |= {f"{at}.mlp.fc1.weight": 0.1 * draw(F, D), f"{at}.mlp.fc2.weight": 0.1 * draw(D, F)}
        tree |= {f"{at}.norm{n}.weight": 1 + 0.3 * draw(D) for n in (1, 2)}
        tree |= {f"{at}.layer_scale{n}.lambda1": draw(D) for n in (1, 2)}
    return tree


def fresh():
    """With gains and scales of 1, as a network starts."""
    ends = (".lambda1", "norm1.weight", "norm2.weight")
    return {k: np.ones_like(x) if k.endswith(ends) else x for k, x in dinov2().items()}


def test_products_are_those_that_activations_meet():
    tree = dinov2()
    for i, layer in enumerate(check(tree, num_heads=H)):
        w = {k.split(f"layer.{i}.")[1]: np.float64(x) for k, x in tree.items() if f"r.{i}." in k}
        before, after = w["norm1.weight"], w["layer_scale1.lambda1"]
        q, k, v = (before[:, None] * w[f"attention.attention.{name}.weight"].T for name in QKV)
        heads = [cosine(a @ b.T) for a, b in zip(np.split(q, H, 1), np.split(k, H, 1), strict=True)]
        np.testing.assert_allclose(layer.query_key, heads, atol=1e-6)
        out = w["attention.output.dense.weight"].T * after
        assert layer.value_out == pytest.approx(cosine(v @ out), abs=1e-6)
        first = w["norm2.weight"][:, None] * w["mlp.fc1.weight"].T
        second = w["mlp.fc2.weight"].T * w["layer_scale2.lambda1"]
        assert layer.mlp == pytest.approx(cosine(first @ second), abs=1e-6)
        means = first.mean(1) / first.std(1) * np.sqrt(F)
        assert layer.means == pytest.approx(np.sqrt(np.mean(means**2)), rel=1e-6)


def test_gains_of_one_change_nothing_and_bare_products_ignore_them():
    ones, tree = check(fresh(), num_heads=H), dinov2()
    bare = check(tree, num_heads=H, effective=False)
    for first, second in zip(ones, bare, strict=True):
        assert first.value_out == pytest.approx(second.value_out, abs=1e-7)
        assert first.mlp == pytest.approx(second.mlp, abs=1e-7)
    both = "with the norm's gain and the scale after the layer"
    note = f"W_Q W_Kᵀ with the norm's gain; W_V W_out, W_1 W_2 {both}"
    assert (ones.note, bare.note) == (note, "")
    some = {name: x for name, x in tree.items() if "layer.2.layer_scale" not in name}
    assert check(some, num_heads=H).note.endswith("the scale after the layer in 2 of 3 layers")


def test_what_was_read_starts_a_network_of_another_depth_and_width(tmp_path):
    start = rewrite(KEY, fresh(), CorrelatedMLP(Interpolated((-0.6, 0.0, 0.6))), num_heads=H)
    path = str(tmp_path / "fit.json")
    schemes.save(path, fit(start, num_heads=H).schemes)
    model = ViT(num_classes=10, width=64, depth=5, heads=2, patch=4)
    params = jax.eval_shape(model.init, KEY, np.zeros((1, 8, 8, 3), np.float32))["params"]
    random = np.random.default_rng(0)
    params = jax.tree.map(lambda x: random.normal(size=x.shape).astype(np.float32), params)
    again = fit(rewrite(KEY, params, schemes.load(path)), effective=False).schemes[1]
    assert again.rho.values == pytest.approx((-0.6, -0.3, 0.0, 0.3, 0.6), abs=0.06)


def test_the_mlp_keeps_its_norm_and_gets_its_correlation():
    tree = fresh()
    new = rewrite(KEY, tree, CorrelatedMLP(-0.5), num_heads=H)
    before, after = (np.float64(t["encoder.layer.0.mlp.fc2.weight"]) for t in (tree, new))
    assert np.linalg.norm(after) == pytest.approx(np.linalg.norm(before), rel=0.02)
    first = np.float64(new["encoder.layer.0.mlp.fc1.weight"]).T
    assert np.corrcoef(first.ravel(), after.ravel())[0, 1] == pytest.approx(-0.5, abs=0.03)
    np.testing.assert_array_equal(first.T, tree["encoder.layer.0.mlp.fc1.weight"])


@pytest.mark.parametrize("scan", [False, True])
def test_our_models_gains_are_known(scan):
    model = ViT(
        num_classes=10, width=16, depth=2, heads=2, patch=4, layer_scale="branch", scan=scan
    )
    shapes = jax.eval_shape(model.init, KEY, np.zeros((1, 8, 8, 3), np.float32))["params"]
    random = np.random.default_rng(0)
    params = jax.tree.map(lambda x: random.normal(size=x.shape), shapes)
    everything = {"attention_gain", "mlp_gain", "attention_scale"}
    assert [set(layer.folded) for layer in check(params)] == [everything] * 2
    block = params["blocks" if scan else "block_1"]
    pick = (lambda x: x[1]) if scan else (lambda x: x)
    value, out = (pick(block["attention"][name]["kernel"]) for name in ("value", "out"))
    gain, scale = pick(block["norm1"]["scale"]), pick(block["layer_scale"])
    product = np.diag(gain) @ value.reshape(16, 16) @ out.reshape(16, 16) @ np.diag(scale)
    assert check(params)[1].value_out == pytest.approx(cosine(product), abs=1e-6)


def test_a_gain_of_another_width_is_named():
    tree = dinov2() | {"encoder.layer.1.norm1.weight": np.ones(7)}
    with pytest.raises(InputError, match=r"r\.1: its attention_gain has shape \(7,\)"):
        check(tree, num_heads=H)


@pytest.mark.parametrize("look", [check, fit])
def test_quantized_kernels_are_one_line(look):
    name = "encoder.layer.1.attention.attention.query.weight"
    integers = dinov2() | {name: np.ones((D, D), np.int8)}
    with pytest.raises(InputError, match=f"{name}.* int8"):
        look(integers, num_heads=H)
    scaled = dinov2() | {f"{name}_scale_inv": np.ones(1, np.float32)}
    with pytest.raises(InputError, match=f"{name}_scale_inv seems to multiply a kernel"):
        look(scaled, num_heads=H)
