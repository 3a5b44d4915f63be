"""The table of docs/libraries.md: how rotary positions turn, by what the libraries compute."""

import json
import pathlib
import re

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from mimetic_jax import InputError, llama_rules, rewrite, zoo
from mimetic_jax.command import files
from mimetic_jax.schemes import Mimetic, PositionalHeads
from tests.schemes.test_positional import law

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "libraries.md").read_text().replace("−", "-")
KEY, K, N = jax.random.key(0), 16, 24
DISTANCES = np.arange(N)[:, None] - np.arange(N)[None]


def angles(columns, base):
    return np.arange(N)[:, None] * base ** (-np.arange(0, columns, 2) / columns)


def rotate_half(x, base):
    """transformers' Llama: x cos + rotate_half(x) sin; gemma, praxis, levanter, litgpt alike."""
    cos, sin = (np.tile(f(angles(x.shape[-1], base)), 2) for f in (np.cos, np.sin))
    first, second = np.split(x, 2, axis=-1)
    return x * cos + np.concatenate([-second, first], -1) * sin


def rotate_every_two(x, base):
    """transformers' GPT-J; MaxText's LLaMARotaryEmbedding shifts neighbors likewise."""
    cos, sin = (np.repeat(f(angles(x.shape[-1], base)), 2, -1) for f in (np.cos, np.sin))
    other = np.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape)
    return x * cos + other * sin


def complex_numbers(x, base):
    """Llama as published: view_as_complex of pairs, times exp(iθn)."""
    turned = (x[..., ::2] + 1j * x[..., 1::2]) * np.exp(1j * angles(x.shape[-1], base))
    return np.stack([turned.real, turned.imag], -1).reshape(x.shape)


def other_way(x, base):
    """nanochat: y1 = x1 cos + x2 sin, y2 = x2 cos − x1 sin."""
    cos, sin = (f(angles(x.shape[-1], base)) for f in (np.cos, np.sin))
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([first * cos + second * sin, second * cos - first * sin], -1)


ROTATIONS = {
    "Llama as published": complex_numbers,
    "MaxText": rotate_half,
    "llama3.1": rotate_every_two,
    "gemma, openpi": rotate_half,
    "levanter": rotate_half,
    "litgpt": rotate_half,
    "nanochat": other_way,
}


def rows():
    for pairs, rotation in {"halves": rotate_half, "neighbors": rotate_every_two}.items():
        for share in ("all", "some"):  # Hugging Face's, whose models `make real` runs
            yield pytest.param(pairs, share, "0, 1, 2", rotation)
    table = re.search(r"\| library \| pairs .*?\n\n", PAGE, re.DOTALL)[0]
    for line in table.strip().splitlines()[3:]:
        library, pairs, share, offsets, _ = (cell.strip() for cell in line.strip("| ").split(" | "))
        (rotation,) = {
            rotation.__name__ for mark, rotation in ROTATIONS.items() if mark in library
        } - ({"rotate_half"} if "llama3.1" in library else set())
        yield pytest.param(pairs, share, offsets, globals()[rotation], id=library[:24])


@pytest.mark.parametrize(("pairs", "share", "offsets", "rotation"), [*rows()])
def test_heads_look_back_as_the_table_says(pairs, share, offsets, rotation):
    numbers = tuple(int(number) for number in re.findall(r"-?\d+", offsets))
    turned = 1.0 if share.startswith("all") else 0.5
    scheme = PositionalHeads(10_000, offsets=numbers, sharpness=8.0, pairs=pairs, turned=turned)
    shapes = {f"{name}/kernel": (24, 3, K) for name in ("query", "key")}
    shapes |= {f"{name}/bias": (3, K) for name in ("query", "key")}
    new = rewrite(KEY, {path: np.ones(shape) for path, shape in shapes.items()}, scheme)
    columns = int(turned * K)
    for head in range(3):
        query, key = (
            np.concatenate([rotation(part[:, :columns], 10_000.0), part[:, columns:]], -1)
            for part in (np.tile(new[f"{name}/bias"][head], (N, 1)) for name in ("query", "key"))
        )
        found = query @ key.T / np.sqrt(K)
        np.testing.assert_allclose(found, law(DISTANCES, head, K, turned=turned), atol=1e-4)
        assert (found.argmax(axis=1)[head:] == np.arange(N - head)).all(), "tokens before"


def llama(groups=2, layers=2, width=64, hidden=96, vocabulary=50):
    """A Llama's tensors by PyTorch's names, with norms of gain 1."""
    random, shapes = np.random.default_rng(0), {"model.embed_tokens.weight": (vocabulary, width)}
    shapes["lm_head.weight"] = (vocabulary, width)
    for i in range(layers):
        layer = f"model.layers.{i}."
        heads = {"q": width, "k": groups * K, "v": groups * K}
        shapes |= {f"{layer}self_attn.{n}_proj.weight": (rows, width) for n, rows in heads.items()}
        shapes[f"{layer}self_attn.o_proj.weight"] = (width, width)
        shapes |= {f"{layer}mlp.{n}_proj.weight": (hidden, width) for n in ("gate", "up")}
        shapes[f"{layer}mlp.down_proj.weight"] = (width, hidden)
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{layer}{name}.weight"] = (width,)
    return {
        name: np.ones(shape, np.float32)
        if len(shape) == 1
        else random.normal(size=shape, scale=0.05).astype(np.float32)
        for name, shape in shapes.items()
    }


def rms_norm(x):
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True))


def attend(weights, layer, normed, base):
    """Logits [H, N, N] and values of one layer, as in transformers."""
    q, k, v = (
        (normed @ weights[f"{layer}self_attn.{n}_proj.weight"].T).reshape(N, -1, K) for n in "qkv"
    )
    q, k = (np.stack([rotate_half(one[:, h], base) for h in range(one.shape[1])]) for one in (q, k))
    repeat = len(q) // len(k)
    return np.einsum("hnk,hmk->hnm", q, k.repeat(repeat, 0)) / np.sqrt(K), v.repeat(repeat, 1)


def forward(weights, tokens, base):
    """The activations before each layer and after the last."""
    x = weights["model.embed_tokens.weight"][tokens]
    activations = [x]
    for i in range(2):
        layer = f"model.layers.{i}."
        scores, values = attend(weights, layer, rms_norm(x), base)
        weight = np.exp(scores) * np.tril(np.ones((N, N)))
        weight /= weight.sum(-1, keepdims=True)
        y = np.einsum("hnm,mhk->nhk", weight, values).reshape(N, -1)
        x = x + y @ weights[f"{layer}self_attn.o_proj.weight"].T
        gate, up = (rms_norm(x) @ weights[f"{layer}mlp.{n}_proj.weight"].T for n in ("gate", "up"))
        x = x + (gate / (1 + np.exp(-gate)) * up) @ weights[f"{layer}mlp.down_proj.weight"].T
        activations.append(x)
    return activations


@pytest.mark.parametrize("rules", [None, llama_rules()])
def test_a_llama_in_pytorchs_names_looks_back(rules):
    """The page's example: the law in the first block on average, a channel that stays constant."""
    scheme = PositionalHeads(500.0, offsets=(0, 1, 2, 3), sharpness=8.0, channel=3)
    new = rewrite(KEY, llama(), scheme, rules=rules, num_heads=4, num_kv_heads=2)
    weights = {name: np.float64(array) for name, array in new.items()}
    tokens = np.random.default_rng(1).integers(0, 50, N)
    activations = forward(weights, tokens, 500.0)
    mean = rms_norm(weights["model.embed_tokens.weight"]).mean(axis=0)
    scores, _ = attend(weights, "model.layers.0.", np.tile(mean, (N, 1)), 500.0)
    for head in range(4):
        np.testing.assert_allclose(scores[head], law(DISTANCES, head, K, base=500.0), atol=0.1)
    varies = [np.ptp(x[:, 3]) for x in activations]
    assert max(varies) < 1e-6


def folder(tmp_path, tensors, **config):
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": K}
    (tmp_path / "config.json").write_text(json.dumps(heads | config))
    save_file(tensors, tmp_path / "in.safetensors")
    return str(tmp_path / "in.safetensors"), str(tmp_path / "out.safetensors")


def test_granite_multiplies_logits_and_embedding(tmp_path, capsys):
    """Logits are those of the law after the model's own factor, and check reads them."""
    config = {"rope_theta": 500.0, "attention_multiplier": 1 / 64, "embedding_multiplier": 12.0}
    file, out = folder(tmp_path, llama(), model_type="granite", **config)
    files.rewrite_file([file, out, "--scheme=PositionalHeads(500, sharpness=8.0, channel=3)"])
    assert capsys.readouterr().out.count(" 0 1 2 3 ") == 2
    weights = {name: np.float64(array) for name, array in load_file(out).items()}
    mean = rms_norm(weights["model.embed_tokens.weight"]).mean(axis=0)
    scores, _ = attend(weights, "model.layers.0.", np.tile(mean, (N, 1)), 500.0)
    for head in range(4):
        expected = law(DISTANCES, head, K, base=500.0)
        np.testing.assert_allclose(scores[head] * np.sqrt(K) / 64, expected, atol=0.1)
    rules = zoo.rules_of_config(weights, tmp_path)
    embedding = next(rule for rule in rules if "embedding" in rule.roles)
    assert embedding.form == 12
    files.check_file([out, "--rules=LLAMA"])  # by hand, too
    assert capsys.readouterr().out.count(" 0 1 2 3 ") == 2


def test_layers_with_positions_of_their_own_are_checked_by_these(tmp_path, capsys):
    tensors, other = (
        rewrite(
            KEY,
            llama(),
            PositionalHeads(base, (1, 4, 10, 20), 8.0, channel=3),
            num_heads=4,
            num_kv_heads=2,
        )
        for base in (100, 1e6)
    )
    tensors |= {name: array for name, array in other.items() if "layers.1." in name}
    config = {"rope_theta": 1e6, "rope_local_base_freq": 100.0, "sliding_window_pattern": 2}
    config["query_pre_attn_scalar"] = K
    file, out = folder(tmp_path, tensors, model_type="gemma3_text", **config)
    files.check_file([file])
    assert capsys.readouterr().out.count(" 1 4 10 20 ") == 2
    files.check_file([file, "--rotary-base=1e6"])
    text = capsys.readouterr().out
    assert "local and global layers with other bases (100, 1e+06)" in text
    assert text.count(" 1 4 10 20 ") == 1
    for scheme in ("PositionalHeads(1e6, channel=0)", "Permuted(PositionalHeads(1e6, channel=0))"):
        with pytest.raises(InputError, match=r"layers with other bases .*\(100, 1e\+06\)"):
            files.rewrite_file([file, out, f"--scheme={scheme}", "--overwrite-trained"])


def test_another_base_than_that_of_the_configuration_is_refused(tmp_path):
    file, out = folder(tmp_path, llama(), model_type="llama", rope_theta=5e5)
    with pytest.raises(InputError, match=r"for Rotary\(base=10000\.0.*says Rotary\(base=500000\.0"):
        files.rewrite_file([file, out, "--scheme=PositionalHeads(10000, channel=0)"])
    assert PositionalHeads.for_config(tmp_path).base == 5e5


WHOLE = {"model_type": "llama", "rope_theta": 500.0, "num_hidden_layers": 2, "hidden_size": 64}
WHOLE |= {"intermediate_size": 96, "vocab_size": 50}


def halved(*names, axis=0):
    """Half of the rows or columns of some tensors, as tensor parallelism and pruning leave them."""
    return {
        name: np.split(array, 2, axis)[0].copy() if name.endswith(names) else array
        for name, array in llama().items()
    }


ATTENTION = halved("q_proj.weight", "k_proj.weight", "v_proj.weight")
ATTENTION |= {n: x[:, :32].copy() for n, x in llama().items() if n.endswith("o_proj.weight")}
MLPS = halved("gate_proj.weight", "up_proj.weight")
MLPS |= {n: x[:, :48].copy() for n, x in llama().items() if n.endswith("down_proj.weight")}


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        (ATTENTION, "head_dim 16, but query in model.layers.0.self_attn has 8"),
        (llama(layers=1), "2 layers, but it has attention in 1"),
        (MLPS, "intermediate_size 96, but mlp_in in model.layers.0 has 48"),
        (halved("embed_tokens.weight"), "vocab_size 50, but embedding in model has 25"),
    ],
)
def test_a_part_of_a_checkpoint_is_refused(tmp_path, tensors, words):
    """By the sizes in config.json, which names of files don't show."""
    file, out = folder(tmp_path, tensors, **WHOLE)
    for call in (lambda: files.check_file([file]), lambda: files.rewrite_file([file, out])):
        with pytest.raises(InputError, match=f"{re.escape(words)}: it is a slice or a shard"):
            call()
    files.check_file([file, "--rules=LLAMA"])


def test_heads_and_widths_are_those_of_the_configuration(tmp_path, capsys):
    file, out = folder(tmp_path, llama(), **WHOLE)
    files.rewrite_file([file, out, "--scheme=PositionalHeads(500, sharpness=8.0, channel=3)"])
    files.fit_file([out])
    assert capsys.readouterr().out.count(" 0 1 2 3 ") == 2
    with pytest.raises(InputError, match=r"num_kv_heads is 4, but .*config.json says 2"):
        files.check_file([file, "--kv-heads=4"])


def test_a_type_that_the_table_lacks_needs_rules_by_hand(tmp_path, capsys):
    file, out = folder(tmp_path, llama(), **WHOLE | {"model_type": "my_llama"})
    heads = ["--heads=4", "--kv-heads=2"]
    for call, names in ((files.check_file, [file]), (files.rewrite_file, [file, out])):
        with pytest.raises(InputError, match="model_type 'my_llama', which the table of types"):
            call(names)
        call([*names, "--rules=LLAMA", *heads])
    for own in ({"architecture": "vit_tiny_patch16_224"}, {"n_layer": 2, "n_head": 8}):
        (tmp_path / "config.json").write_text(json.dumps(own))
        files.check_file([file, *heads])  # of another library
        assert "config.json has no model_type" in capsys.readouterr().out


def bart():
    """The encoder and the decoder of a BART of one layer each, all random."""
    shapes = {"model.shared.weight": (50, 96)}
    for side in ("encoder", "decoder"):
        shapes[f"model.{side}.layernorm_embedding.weight"] = (96,)
        layer = f"model.{side}.layers.0."
        for attention in ("self_attn", "encoder_attn")[: 1 + (side == "decoder")]:
            for name in ("q", "k", "v", "out"):
                shapes[f"{layer}{attention}.{name}_proj.weight"] = (96, 96)
                shapes[f"{layer}{attention}.{name}_proj.bias"] = (96,)
        shapes |= {f"{layer}fc1.weight": (128, 96), f"{layer}fc2.weight": (96, 128)}
        norms = ("self_attn_layer_norm", "final_layer_norm")
        shapes |= {f"{layer}{name}.weight": (96,) for name in norms}
    draw = np.random.default_rng(0).standard_normal
    return {name: np.float32(0.02 * draw(shape)) for name, shape in shapes.items()}


def test_encoder_and_decoder_have_heads_of_their_own(tmp_path):
    """As each alone with its number of heads, since a draw depends on its path alone."""
    tensors, sides = bart(), {"encoder": 6, "decoder": 4}
    config = {"model_type": "bart", "d_model": 96}
    config |= {f"{side}_attention_heads": heads for side, heads in sides.items()}
    (tmp_path / "config.json").write_text(json.dumps(config))
    file, out = (str(tmp_path / f"{name}.safetensors") for name in ("in", "out"))
    save_file(tensors, file)
    with pytest.raises(InputError, match=r"num_heads is 6.*says 6 in the encoder and 4 in the dec"):
        files.rewrite_file([file, out, "--heads=6"])
    files.rewrite_file([file, out])
    new = load_file(out)
    for side, heads in sides.items():
        alone = {name: x for name, x in tensors.items() if f".{side}." in name}
        expected = rewrite(KEY, alone, Mimetic(), num_heads=heads)
        assert {name for name in alone if not np.array_equal(new[name], alone[name])} == {
            name for name in alone if ".self_attn." in name
        }
        for name, array in expected.items():
            np.testing.assert_array_equal(new[name], array)
    parts = {side: {"num_attention_heads": heads} for side, heads in sides.items()}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "encoder-decoder"} | parts))
    other = str(tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="model_type 'encoder-decoder'"):
        files.rewrite_file([file, other])
    files.rewrite_file([file, other, "--rules=BART"])
    for name, array in load_file(other).items():
        np.testing.assert_array_equal(new[name], array)


@pytest.mark.parametrize("tied", [True, False, None])
def test_an_untied_model_may_be_stored_without_its_output_layer(tmp_path, tied):
    """As a base model is: the norm stays, since what reads it is another tensor."""
    tensors = {name.removeprefix("model."): x for name, x in llama().items() if "lm_" not in name}
    tensors["norm.weight"] = np.ones(64, np.float32)
    np.save(tmp_path / "tokens.npy", np.random.default_rng(0).zipf(1.4, 5000) % 50)
    stated = {} if tied is None else {"tie_word_embeddings": tied}
    file, out = folder(tmp_path, tensors, **WHOLE | stated)
    tokens = f"--tokens={tmp_path / 'tokens.npy'}"
    files.rewrite_file([file, out, "--scheme=Cooccurrence(std=0.25)", tokens])
    assert (load_file(out)["norm.weight"] == 1).all() == (not tied)


def test_the_rules_that_an_error_prints_are_of_the_configurations_family(tmp_path, capsys):
    """Gemma 1 has Llama's names, and gains 1 + w: with Llama's rules check would fold others."""
    tensors = llama()
    for name in [name for name in tensors if name.endswith("layernorm.weight")]:
        tensors[name] = np.linspace(0, 4, 64, dtype=np.float32)
    file, _ = folder(tmp_path, tensors, model_type="gemma")
    files.check_file([file])
    expected = capsys.readouterr().out
    extra = {"model.layers.0.self_attn.head_mix": np.ones((4, 4), np.float32)}
    save_file(tensors | extra, file)
    with pytest.raises(
        InputError, match=r"pass rules=zoo\.GEMMA_1 if .*\*zoo\.GEMMA_1\) to"
    ) as said:
        files.check_file([file])
    name = re.search(r"rules=zoo\.(\w+) if", str(said.value))[1]
    files.check_file([file, f"--rules={name}"])
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize("divided", [True, False])
def test_gpt_2_may_not_divide_logits(tmp_path, divided):
    """Logits of a token with itself are those of other models, by the model's own factor."""
    random = np.random.default_rng(0)
    shapes = {"attn.c_attn.weight": (64, 192), "attn.c_proj.weight": (64, 64)}
    shapes |= {"mlp.c_fc.weight": (64, 256), "mlp.c_proj.weight": (256, 64), "ln_1.weight": (64,)}
    tensors = {
        f"h.0.{name}": random.normal(size=shape, scale=0.02).astype(np.float32)
        for name, shape in shapes.items()
    }
    config = {"model_type": "gpt2", "n_head": 4, "n_embd": 64, "scale_attn_weights": divided}
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(tensors, tmp_path / "in.safetensors")
    out = str(tmp_path / "out.safetensors")
    files.rewrite_file([str(tmp_path / "in.safetensors"), out, "--scheme=Mimetic(alpha_qk=0)"])
    query, key, _ = np.split(np.float64(load_file(out)["h.0.attn.c_attn.weight"]), 3, axis=1)
    # β I of rank 16: a trace of .7 · 16 in each head.
    logit = np.sum(query * key) / 4 * (16**-0.5 if divided else 1)
    assert logit == pytest.approx(0.7 * 16 / 16**0.5, rel=1e-3)
