"""The distances at which heads look, read off weights: against plain NumPy, and the inverse."""

import jax
import numpy as np
import pytest

from mimetic_jax import InputError, check, fit, rewrite, schemes
from mimetic_jax.command import files
from mimetic_jax.models.gpt import GPT, RULES
from mimetic_jax.models.vit import ViT
from mimetic_jax.schemes import PositionalHeads
from mimetic_jax.weights import Rotary

KEY = jax.random.key(0)
TOKENS = np.zeros((1, 8), np.int32)


def gpt(depth=3, **fields):
    modern = {"positions": "rotary", "rms_norm": True, "swiglu": True, "base": "torch"}
    module = GPT(vocab=50, width=64, depth=depth, heads=4, **modern, **fields)
    return module.init(KEY, TOKENS)["params"]


SCHEMES = {
    "biases": (PositionalHeads(10_000, offsets=(0, 5, 2, 1), sharpness=6.0), {}),
    "by depth": (
        PositionalHeads(
            10_000, offsets=((0, 1, 2, 3), (7, 1, 1, 0), (2, 2, 4, 4)), sharpness=(8.0, 3.0)
        ),
        {},
    ),
    "a channel": (PositionalHeads(10_000, offsets=(3, 1, 0, 2), channel=9), {"bias_free": True}),
}


@pytest.mark.parametrize(("scheme", "fields"), SCHEMES.values(), ids=SCHEMES)
def test_fit_is_the_inverse(scheme, fields):
    params = rewrite(KEY, gpt(**fields), scheme, rules=RULES)
    found = fit(params, rules=RULES, rotary=10_000).positional
    for layer in range(3):
        ours, expected = (one.heads(4, layer, 3) for one in (found, scheme))
        assert [offset for offset, _ in ours] == [offset for offset, _ in expected]
        np.testing.assert_allclose(
            *([S for _, S in heads] for heads in (ours, expected)), rtol=1e-3
        )
    assert (found.channel is None) == (scheme.channel is None)


def test_neighbors_that_turn_in_half_of_the_columns():
    rotary = Rotary(500.0, 0.5, "neighbors")
    scheme = PositionalHeads(500, turned=0.5, pairs="neighbors")
    found = fit(rewrite(KEY, gpt(), scheme, rules=RULES), rules=RULES, rotary=rotary).positional
    assert (found.turned, found.pairs) == (0.5, "neighbors")
    assert [offset for offset, _ in found.heads(4)] == [0, 1, 2, 3]


def test_offsets_on_a_grid():
    module = ViT(num_classes=3, width=64, depth=2, heads=4, patch=4, rotary=100.0, pool="mean")
    params = module.init(KEY, np.ones((1, 8, 8, 3), np.float32))["params"]
    offsets = ((0, 0), (-1, 1), (0, 1), (1, 1))
    params = rewrite(KEY, params, PositionalHeads(100, offsets=offsets, axes=2))
    found = fit(params, rotary=Rotary(100, axes=2)).positional
    assert [offset for offset, _ in found.heads(4)] == list(offsets)
    assert "-1,+1" in str(check(params, rotary=Rotary(100, axes=2)))


def test_a_trained_start_for_another_depth(tmp_path):
    """Read, stored, and given to a network of six layers."""
    _, _, scheme = (one for one, _ in SCHEMES.values())
    old = rewrite(KEY, gpt(bias_free=True), scheme, rules=RULES)
    schemes.save(tmp_path / "s.json", fit(old, rules=RULES, rotary=10_000).positional)
    again = schemes.load(tmp_path / "s.json")
    new = rewrite(KEY, gpt(6, bias_free=True), again, rules=RULES)
    checked = check(new, rules=RULES, rotary=10_000)
    assert [layer.offsets for layer in checked.positional] == [(3.0, 1.0, 0.0, 2.0)] * 6
    assert [layer.channel for layer in checked.positional] == [0] * 6
    assert "distance 3 in 6, 1 in 6, 0 in 6, 2 in 6 of 24 heads" in str(checked)


def test_the_direction_is_that_of_plain_numpy(tmp_path):
    """A model without a structure, gains folded in: the eigenvector by power iteration."""
    rng = np.random.default_rng(0)
    at = "model.layers.0."
    widths = {"q": 32, "k": 16, "v": 16}
    sizes = {f"self_attn.{name}_proj": (width, 48) for name, width in widths.items()}
    sizes |= {"self_attn.o_proj": (48, 32), "mlp.down_proj": (48, 96)}
    sizes |= dict.fromkeys(("mlp.gate_proj", "mlp.up_proj"), (96, 48))
    sizes |= dict.fromkeys(("input_layernorm", "post_attention_layernorm"), (48,))
    tensors = {f"{at}{name}.weight": rng.normal(size=size) for name, size in sizes.items()}
    for name in ("q_proj", "k_proj"):
        tensors[f"{at}self_attn.{name}.weight"][:, 7] *= 6
    (found,) = check(tensors, num_heads=4, num_kv_heads=2, rotary=1000.0).positional

    def read(name, gain):
        kernel = tensors[f"{at}{name}.weight"].T * tensors[f"{at}{gain}.weight"][:, None]
        return kernel, kernel @ kernel.T / np.sum(kernel**2)

    query, of_query = read("self_attn.q_proj", "input_layernorm")
    key, of_key = read("self_attn.k_proj", "input_layernorm")
    least = read("self_attn.v_proj", "input_layernorm")[1]
    least = least + read("mlp.up_proj", "post_attention_layernorm")[1]
    values, vectors = np.linalg.eig(np.linalg.solve(least, of_query + of_key))
    order = np.argsort(values.real)[::-1]
    u = vectors[:, order[0]].real
    u /= np.linalg.norm(u)
    assert found.channel == np.argmax(u**2)
    assert found.share == pytest.approx(u[found.channel] ** 2, rel=1e-3)
    assert found.runner_up == pytest.approx((values[order[1]] / values[order[0]]).real, rel=1e-3)
    rates = 1000.0 ** (-np.arange(4) / 4)
    for head in range(4):
        q, k = (u @ query).reshape(4, 8)[head], (u @ key).reshape(2, 8)[head // 2]
        products = (q[:4] + 1j * q[4:]) * (k[:4] - 1j * k[4:])
        curve = [np.sum(products * np.exp(1j * rates * n)).real for n in range(64)]
        assert found.offsets[head] == np.argmax(curve)


def test_the_command_prints_distances(tmp_path, capsys):
    from safetensors.numpy import save_file

    at = "model.layers.0.self_attn."
    tensors = {f"{at}{x}_proj.weight": np.ones((16, 16), np.float32) for x in "qkvo"}
    tensors |= {f"{at}{x}_proj.bias": np.zeros(16, np.float32) for x in "qk"}
    save_file(tensors, tmp_path / "in.safetensors")
    out = str(tmp_path / "out.safetensors")
    scheme = "--scheme=PositionalHeads(100, offsets=(2, 1))"
    files.rewrite_file([str(tmp_path / "in.safetensors"), out, scheme, "--heads=2"])
    capsys.readouterr()
    files.check_file([out, "--heads=2", "--rotary-base=100"])
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[-3:] == ["2", "1", "8"] for line in lines)
    files.fit_file([out, "--heads=2", "--rotary-base=100"])
    assert "PositionalHeads(base=100.0, offsets=((2.0, 1.0),)" in capsys.readouterr().out


@pytest.mark.parametrize("rotary", [0.5, "10000", Rotary])
def test_bad_rotary_positions(rotary):
    with pytest.raises(InputError, match=r"rotary|base"):
        check(gpt(), rules=RULES, rotary=rotary)
