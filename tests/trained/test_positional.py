"""The distances at which heads look, read off weights: against plain NumPy, and the inverse."""

import jax
import numpy as np
import pytest

from mimetic_jax import (
    InputError,
    Rule,
    attention_rules,
    check,
    fit,
    mlp_rules,
    rewrite,
    schemes,
    zoo,
)
from mimetic_jax.command import files
from mimetic_jax.models.gpt import GPT, RULES
from mimetic_jax.models.position import rotated
from mimetic_jax.models.vit import ViT
from mimetic_jax.schemes import PositionalHeads
from mimetic_jax.trained.pairs import layer_pairs
from mimetic_jax.trained.picture import heads_figure
from mimetic_jax.trained.positional import HeadReader, LayerHeads
from mimetic_jax.tree.label import label
from mimetic_jax.tree.layers import views
from mimetic_jax.weights import Rotary
from tests.models.values import initial

KEY = jax.random.key(0)
TOKENS = np.zeros((1, 8), np.int32)


def gpt(depth=3, **fields):
    modern = {"positions": "rotary", "rms_norm": True, "swiglu": True, "base": "torch"}
    module = GPT(vocab=50, width=64, depth=depth, heads=4, **modern, **fields)
    return initial(module, TOKENS)


BY_DEPTH = ((0, 1, 2, 3), (7, 1, 1, 0), (2, 2, 4, 4))
CHANNEL = PositionalHeads(10_000, offsets=(3, 1, 0, 2), sharpness=8.0, channel=9)
SCHEMES = {
    "biases": (PositionalHeads(10_000, offsets=(0, 5, 2, 1), sharpness=6.0), {}),
    "by depth": (PositionalHeads(10_000, offsets=BY_DEPTH, sharpness=(8.0, 3.0)), {}),
    "a channel": (CHANNEL, {"bias_free": True}),
}


@pytest.mark.parametrize(("scheme", "fields"), SCHEMES.values(), ids=SCHEMES)
def test_fit_is_the_inverse(scheme, fields):
    params = rewrite(KEY, gpt(**fields), scheme, rules=RULES)
    found = fit(params, rules=RULES, rotary=10_000).positional
    for layer in range(3):
        ours, expected = (np.array(one.heads(4, layer, 3)) for one in (found, scheme))
        np.testing.assert_array_equal(ours[:, 0], expected[:, 0])
        np.testing.assert_allclose(ours[:, 1], expected[:, 1], rtol=1e-3)
    assert (found.channel is None) == (scheme.channel is None)
    hint = "fit reads if it is given the base"
    assert hint in str(fit(params, rules=RULES))
    assert hint not in str(fit(gpt(**fields), rules=RULES))


@pytest.mark.parametrize("channel", [False, True])
def test_weights_without_heads_that_look_have_no_positional_heads(channel):
    """Neither of a fresh model, nor of one whose embedding has lost its constant channel."""
    params = gpt(bias_free=True)
    if channel:
        drawn = rewrite(KEY, params, CHANNEL, rules=RULES)
        params |= {name: leaf for name, leaf in drawn.items() if name.startswith("block")}
    found = fit(params, rules=RULES, rotary=10_000)
    assert found.positional is None
    assert not any(isinstance(scheme, PositionalHeads) for scheme in found.schemes)
    assert "if it is given the base" not in str(found)
    zero = rewrite(KEY, gpt(), PositionalHeads(10_000, sharpness=0.0), rules=RULES)
    assert fit(zero, rules=RULES, rotary=10_000).positional is None


def test_weights_are_those_of_biases_that_turn():
    """In the last row of 64 tokens, as the model turns them."""
    scheme = PositionalHeads(10_000, offsets=(0, 5, 2, 1), sharpness=(2.0, 6.0, 12.0))
    params = rewrite(KEY, gpt(), scheme, rules=RULES)
    for number, layer in enumerate(check(params, rules=RULES, rotary=10_000).positional):
        attention = params[f"block_{number}"]["attention"]
        places = np.arange(64.0)[:, None]
        query, key = (
            rotated(np.tile(attention[name]["bias"], (1, 64, 1, 1)), places, 10_000.0)[0]
            for name in ("query", "key")
        )
        logits = np.einsum("hk,mhk->hm", query[-1], key) / query.shape[-1] ** 0.5
        row = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        at = [row[head, 63 - distance] for head, distance in enumerate((0, 5, 2, 1))]
        np.testing.assert_allclose(layer.weights, at, rtol=1e-3)
        tokens = np.exp(-(row * np.log(row)).sum(axis=1))
        np.testing.assert_allclose(layer.tokens, tokens, rtol=1e-3)


def test_neighbors_that_turn_in_half_of_the_columns():
    rotary = Rotary(500.0, 0.5, "neighbors")
    scheme = PositionalHeads(500, sharpness=8.0, turned=0.5, pairs="neighbors")
    found = fit(rewrite(KEY, gpt(), scheme, rules=RULES), rules=RULES, rotary=rotary).positional
    assert (found.turned, found.pairs) == (0.5, "neighbors")
    assert [offset for offset, _ in found.heads(4)] == [0, 1, 2, 3]


def test_offsets_on_a_grid():
    module = ViT(num_classes=3, width=64, depth=2, heads=4, patch=4, rotary=100.0, pool="mean")
    params = initial(module, np.ones((1, 8, 8, 3), np.float32))
    offsets = ((0, 0), (-1, 1), (0, 1), (1, 1))
    params = rewrite(KEY, params, PositionalHeads(100, offsets=offsets, sharpness=8.0, axes=2))
    found = fit(params, rotary=Rotary(100, axes=2)).positional
    assert [offset for offset, _ in found.heads(4)] == list(offsets)
    assert "-1,+1" in str(check(params, rotary=Rotary(100, axes=2)))


@pytest.mark.slow
def test_a_trained_start_for_another_depth(tmp_path):
    """Read, stored, and given to a network of six layers."""
    old = rewrite(KEY, gpt(bias_free=True), CHANNEL, rules=RULES)
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
    printed = capsys.readouterr().out
    files.check_file([out, "--heads=2", "--rotary-base=100"])
    for lines in (printed.splitlines(), capsys.readouterr().out.splitlines()):
        assert any(line.split()[-5:-2] == ["2", "-", "8"] for line in lines)
        assert "1 of 2 heads have no constant part (-)" in lines
    files.fit_file([out, "--heads=2", "--rotary-base=100"])
    assert "PositionalHeads(base=100.0, offsets=((2.0, 0.0),)" in capsys.readouterr().out


@pytest.mark.parametrize("rotary", [0.5, "10000", Rotary])
def test_bad_rotary_positions(rotary):
    with pytest.raises(InputError, match=r"rotary|base"):
        check(gpt(), rules=RULES, rotary=rotary)


def qwen3(random, base, delta, spread):
    """A layer in Qwen 3's names, whose gain of the queries leaves every second pair a tenth."""
    at, sizes = "model.layers.0.", {"q": (64, 48), "k": (64, 48), "v": (64, 48), "o": (48, 64)}
    sizes = {f"self_attn.{name}_proj": size for name, size in sizes.items()}
    sizes |= {"mlp.gate_proj": (96, 48), "mlp.up_proj": (96, 48), "mlp.down_proj": (48, 96)}
    tensors = {name: random.normal(size=size, scale=0.02) for name, size in sizes.items()}
    for name in ("self_attn.v_proj", "mlp.up_proj", "mlp.gate_proj"):
        tensors[name][:, 5] = 0
    rates = base ** (-np.arange(16) / 16)
    odd = np.arange(16) % 2 == 1
    query = np.where(odd, 2 * np.exp(-9j * rates), np.exp(-1j * delta * rates))
    tensors["self_attn.q_proj"][:, 5] = np.tile([*query.real, *query.imag], 2)
    tensors["self_attn.k_proj"][:, 5] = np.tile([1.0] * 16 + [0.0] * 16, 2)
    tensors["self_attn.q_norm"] = np.tile(np.where(odd, spread, 2.0), 2)
    tensors["self_attn.k_norm"] = np.ones(32)
    tensors |= {name: np.ones(48) for name in ("input_layernorm", "post_attention_layernorm")}
    return {f"{at}{name}.weight": array for name, array in tensors.items()}


def test_gains_of_queries_and_keys_are_folded_in():
    tensors = qwen3(np.random.default_rng(0), 1e4, delta=2, spread=0.05)
    gains = (Rule(f"{name[0]}_norm/weight", f"{name}_gain", "k") for name in ("query", "key"))
    known = check(tensors, rules=(*gains, *zoo.LLAMA), num_heads=2, rotary=1e4)
    assert known.positional[0].offsets == (2.0, 2.0)
    bare = tuple(rule for rule in zoo.LLAMA if rule.role not in ("query_gain", "key_gain"))
    left_out = check(tensors, rules=bare, num_heads=2, rotary=1e4)
    assert left_out.positional[0].offsets != (2.0, 2.0)
    assert "q_norm" in left_out.note


def test_the_bias_of_a_norm_is_part_of_query_and_key():
    """β W_Q looks 3 tokens back where the bias of the query alone looks 6."""
    rates = 100.0 ** (-np.arange(4) / 4)
    far, near = (np.exp(-1j * delta * rates) for delta in (6, 3))
    random = np.random.default_rng(0)
    params = {
        "norm1": {"scale": np.ones(16), "bias": np.eye(16)[5] * 4},
        "attention": {
            name: {"kernel": random.normal(size=(16, 1, 8), scale=0.02), "bias": np.zeros((1, 8))}
            for name in ("query", "key", "value")
        },
    }
    params["attention"]["out"] = {"kernel": random.normal(size=(1, 8, 16)), "bias": np.zeros(16)}
    attention = params["attention"]
    attention["query"]["bias"][0] = [*far.real, *far.imag]
    attention["query"]["kernel"][5, 0] = [*near.real, *near.imag]
    attention["key"]["bias"][0, :4] = 1
    params = {"block_0": params}
    (found,) = check(params, rotary=100.0).positional
    assert found.offsets == (3.0,)
    params["block_0"]["norm1"]["bias"][:] = 0
    (found,) = check(params, rotary=100.0).positional
    assert found.offsets == (6.0,)


def test_a_layer_is_read_with_its_own_positions_in_any_order_and_again():
    tree = label(rewrite(KEY, gpt(), PositionalHeads(500, sharpness=8.0), rules=RULES), RULES)
    described = views(tree, read_only=True)
    reader = HeadReader(tree, described, [Rotary(500.0), None, Rotary(500.0)])
    first, second, third = layer_pairs(tree, described, effective=True)
    for layer, found in [(third, True), (first, True), (first, True), (second, False)]:
        assert bool(reader.read(layer)) == found


def test_layers_that_differ_in_their_positions():
    scheme = PositionalHeads(500, sharpness=8.0)
    params = rewrite(KEY, gpt(), scheme, rules=RULES)
    found = check(params, rules=RULES, rotary=[Rotary(500.0), None, Rotary(500.0)])
    assert [layer.path for layer in found.positional] == ["block_0/attention", "block_2/attention"]
    assert [layer.offsets for layer in found.positional] == [(0.0, 1.0, 2.0, 3.0)] * 2
    with pytest.raises(InputError, match="2 rotary positions for 3 attention layers"):
        check(params, rules=RULES, rotary=[Rotary(500.0), None])
    with pytest.raises(InputError, match="layers have different rotary positions"):
        fit(params, rules=RULES, rotary=[Rotary(500.0), None, Rotary(500.0)])


def test_layers_with_other_numbers_of_heads_are_drawn():
    layers = [LayerHeads(f"block_{n}", None, *[(1.0,) * n] * 2) for n in (2, 4)]
    heads_figure(layers)


def test_mlps_alone_have_no_rotary_positions():
    params = {"fc1": {"kernel": np.eye(4, 8)}, "fc2": {"kernel": np.eye(8, 4)}}
    assert fit(params, rules=mlp_rules(), rotary=100.0).positional is None


def test_a_number_that_multiplies_logits():
    """As of Granite: a scheme gives it the logits of other models, and check reads them."""
    layer = {
        name: {"kernel": np.ones((16, 2, 8)), "bias": np.zeros((2, 8))} for name in ("query", "key")
    }
    rules = attention_rules(undivided=1 / 64)
    new = rewrite(KEY, {"a": layer}, PositionalHeads(100, offsets=(1,)), rules=rules)
    query, key = (np.float64(new["a"][name]["bias"][0]) for name in ("query", "key"))
    rates = 100.0 ** (-np.arange(4) / 4)
    products = (query[:4] + 1j * query[4:]) * (key[:4] - 1j * key[4:]) * np.exp(1j * rates)
    assert np.sum(products).real / 64 == pytest.approx(8, rel=1e-5)
    assert check(new, rules=rules, rotary=100.0).positional[0].sharpness[0] == pytest.approx(8)


def test_biases_that_are_zero_hide_no_channel():
    D, K, layer = 32, 8, "model.layers.0."
    random = np.random.default_rng(0)
    shapes = {"model.embed_tokens.weight": (50, D)}
    shapes |= {f"{layer}self_attn.{name}_proj.weight": (D, D) for name in "qkvo"}
    shapes |= {f"{layer}mlp.{name}_proj.weight": (D, D) for name in ("gate", "up", "down")}
    tree = {name: 0.02 * random.normal(size=shape) for name, shape in shapes.items()}
    tree = rewrite(jax.random.key(0), tree, PositionalHeads(1e4, channel=0), num_heads=D // K)
    zeros = {f"{layer}self_attn.{name}_proj.bias": np.zeros(D, np.float32) for name in "qk"}
    one, other = (check(x, num_heads=D // K, rotary=1e4).positional for x in (tree, tree | zeros))
    assert [layer.offsets for layer in one] == [layer.offsets for layer in other]
    assert one[0].offsets[:2] == (0, 1)
