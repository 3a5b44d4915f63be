"""Schemes on PyTorch's modules: by a stand-in here, and by the real ones where torch is installed.

`make real` installs it.
"""

import argparse
import json
import pathlib
import re

import jax
import numpy as np
import pytest

from mimetic_jax import InputError, attention_rules, check, rewrite, zoo
from mimetic_jax import torch as mimetic_torch
from mimetic_jax.command import files
from mimetic_jax.schemes import Mimetic, Permuted, ZeroOut
from mimetic_jax.weights import cooccurrence, from_counts

KEY = jax.random.key(1)
D, H = 32, 4


class Parameter:
    """As much of a `torch.Tensor` on the CPU as is asked for."""

    def __init__(self, values, device="cpu"):
        self.values = values
        self.device = type("Device", (), {"type": device})
        self.dtype = f"torch.{values.dtype}"

        self.shape, self.data_ptr = values.shape, lambda: values.ctypes.data
        self.numel, self.element_size = lambda: values.size, lambda: values.itemsize

    def stride(self):
        return tuple(step // self.values.itemsize for step in self.values.strides)

    def is_contiguous(self):
        return True

    def detach(self):
        return self

    cpu = contiguous = detach

    def numpy(self):
        return self.values


class Module:
    def __init__(self, device="cpu", **modules):
        self.modules = {name.replace("__", "."): module for name, module in modules.items()}
        random = np.random.default_rng(0)
        shapes = {"attn.qkv.weight": (3 * D, D), "attn.proj.weight": (D, D), "norm.weight": (D,)}
        self.parameters = {
            f"blocks.0.{name}": Parameter(random.standard_normal(shape).astype(np.float32), device)
            for name, shape in shapes.items()
        }

    def named_parameters(self):
        return self.parameters.items()

    def named_modules(self):
        names = {name.rpartition(".")[0] for name in self.parameters} | {"", "blocks.0.attn"}
        return {name: self.modules.get(name) for name in names}.items()


@pytest.mark.parametrize("scheme", [Mimetic(), Permuted(Mimetic())])
def test_a_module_gets_what_the_dictionary_of_its_parameters_gets(scheme):
    module = Module()
    before = {name: array.copy() for name, array in mimetic_torch.arrays_of(module).items()}
    planned = mimetic_torch.initialize(module, KEY, scheme, num_heads=H)
    assert planned.table == "COMMON"
    expected = rewrite(KEY, before, scheme, num_heads=H)
    for name, parameter in module.parameters.items():
        np.testing.assert_array_equal(parameter.values, expected[name], err_msg=name)


def holder(**attributes):
    return argparse.Namespace(**attributes)


@pytest.mark.parametrize(
    "modules",
    [
        {"blocks__0__attn": holder(num_heads=H)},
        {"blocks__0__attn": holder(config=holder(num_attention_heads=H))},
        {"": holder(config=holder(n_head=H, num_key_value_heads=None))},
    ],
)
def test_heads_are_read_from_modules_that_say_them(modules):
    said, given = Module(**modules), Module()
    for module in (said, given):  # cross-attention is left out, and has no number
        module.parameters["cross_attn.qkv.weight"] = Parameter(np.ones((3 * D, D), np.float32))
    expected = mimetic_torch.initialize(given, KEY, Mimetic(), num_heads=H)
    assert mimetic_torch.initialize(said, KEY, Mimetic()) == expected
    for name, parameter in said.parameters.items():
        np.testing.assert_array_equal(parameter.values, given.parameters[name].values)


def test_heads_that_differ_between_layers_are_those_of_each():
    """As the stages of a Swin V2, whose weights show nothing of them."""
    module = Module(blocks__0__attn=holder(num_heads=H), blocks__1__attn=holder(num_heads=2))
    wide = np.random.default_rng(1).standard_normal((4, 2 * D, 2 * D)).astype(np.float32)
    module.parameters["blocks.1.attn.qkv.weight"] = Parameter(wide[:3].reshape(6 * D, 2 * D))
    module.parameters["blocks.1.attn.proj.weight"] = Parameter(wide[3])
    names = (
        f"blocks.{layer}{part}" for layer in range(2) for part in ("", ".attn.qkv", ".attn.proj")
    )
    plain = dict.fromkeys(("", "blocks", *names))
    module.named_modules = lambda: (plain | module.modules).items()
    mimetic_torch.initialize(module, KEY, Mimetic())
    for layer, heads in enumerate((H, 2)):
        stored = module.parameters[f"blocks.{layer}.attn.qkv.weight"].values
        query, key, _ = stored.reshape(3, heads, -1, stored.shape[1])
        products = np.einsum("hkd,hkd->h", query, key) / stored.shape[1]
        # Each head leans to the identity by its own width: the best rank-K part of 0.7 (Z + I).
        assert products.min() > 0.7 * products.mean() > 0.1


def with_config(config, shapes, **modules):
    """A module of Hugging Face, whose configuration says its type, with kernels of ones."""
    root = holder(config=holder(to_dict=lambda: config, model_type=config["model_type"]))
    module = Module(**{"": root}, **modules)
    module.parameters = {
        name: Parameter(np.ones(shape, np.float32)) for name, shape in shapes.items()
    }
    return module


def test_the_type_of_a_model_tells_what_names_do_not():
    """GPTBigCode has GPT-2's names, and one head after the other."""
    layer = "h.0.attn"
    shapes = {f"{layer}.c_attn.weight": (D, 3 * D), f"{layer}.c_proj.weight": (D, D)}
    module = with_config({"model_type": "gpt2", "n_head": H}, shapes)
    assert mimetic_torch.initialize(module, KEY, Mimetic()).table == "GPT2"
    module = with_config({"model_type": "gpt_bigcode", "n_head": H}, shapes)
    with pytest.raises(InputError, match="model_type 'gpt_bigcode', which the table of types"):
        mimetic_torch.initialize(module, KEY, Mimetic())


@pytest.mark.parametrize("by_hand", [{}, {"rules": zoo.TABLES["BART"]}])
def test_encoder_and_decoder_have_heads_of_their_own(by_hand):
    """By the configuration; modules say the same."""
    sides = {"encoder": 2 * H, "decoder": H}
    config = {f"{side}_attention_heads": heads for side, heads in sides.items()}
    attention = {f"{side}.layers.0.self_attn": heads for side, heads in sides.items()}
    shapes = {
        f"{path}.{name}_proj.weight": (D, D)
        for path in attention
        for name in ("q", "k", "v", "out")
    }
    shapes |= {f"{side}.layernorm_embedding.weight": (D,) for side in sides}
    module = with_config({"model_type": "bart"} | config, shapes)
    mimetic_torch.initialize(module, KEY, Mimetic(), **by_hand)
    for path, heads in attention.items():
        alone = {name: np.ones(shape, np.float32) for name, shape in shapes.items() if path in name}
        expected = rewrite(KEY, alone, Mimetic(), num_heads=heads, rules=zoo.TABLES["BART"])
        for name, array in expected.items():
            np.testing.assert_array_equal(module.parameters[name].values, array)


def apart(width, groups, path, **parameters):
    """Kernels of heads of width 8, `groups` of them of key and value."""
    shapes = dict.fromkeys("qo", (width, width)) | dict.fromkeys("kv", (8 * groups, width))
    for name, shape in shapes.items():
        values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        parameters[f"{path}.{name}_proj.weight"] = Parameter(values)
    return parameters


def with_modules(parameters, **modules):
    module = Module(**modules)
    module.parameters = parameters
    inner = {"block", *parameters, *(name.rpartition(".")[0] for name in parameters)}
    module.named_modules = lambda: (dict.fromkeys(inner) | module.modules).items()
    return module


@pytest.mark.parametrize(
    "modules",
    [
        {"": holder(num_heads=8)},
        {"": holder(heads=2), "block": holder(n_head=2), "block__attn": holder(nh=H)},
        {"block__attn__q_proj": holder(num_features=D), "block": holder(num_heads=H)},
    ],
)
def test_a_number_of_a_module_above_attention_is_of_something_else(modules):
    module = with_modules(apart(D, H, "block.attn"), **modules)
    with pytest.raises(InputError, match="stores its heads flattened: pass num_heads"):
        mimetic_torch.initialize(module, KEY, Mimetic())
    one = with_modules(module.parameters, **modules | {"": holder(config=holder(n_head=H))})
    assert mimetic_torch.initialize(one, KEY, Mimetic())


def test_attention_that_says_no_number_has_not_that_of_another():
    both = apart(D, H, "block.attn", **apart(D, H, "other.attn"))
    module = with_modules(both, block__attn=holder(num_heads=2), other__attn=holder(nh=H))
    with pytest.raises(InputError, match=r"other.attn.*stores its heads flattened: pass num_heads"):
        mimetic_torch.initialize(module, KEY, Mimetic())


@pytest.mark.parametrize("widths", [(D,), (D, 2 * D)])
def test_heads_of_key_and_value_that_no_module_says_are_asked_for(widths):
    """One attention, or two of other numbers; given, they are those of the arrays."""
    arrays, modules = {}, {}
    for width in widths:
        arrays |= apart(width, 2, f"part{width}.attn")
        modules[f"part{width}__attn"] = holder(num_heads=width // 8)
    module = with_modules(arrays, **modules)
    with pytest.raises(InputError, match="by 4 query heads and 4 key/value heads: pass num_kv_h"):
        mimetic_torch.initialize(module, KEY, Mimetic())
    with pytest.raises(InputError, match="by 4 query heads and 1 key/value heads: one of these"):
        mimetic_torch.initialize(module, KEY, Mimetic(), num_kv_heads=1)
    mimetic_torch.initialize(module, KEY, Mimetic(), num_kv_heads=2)
    for width in widths:
        rows = {n: arrays[f"part{width}.attn.{n}_proj.weight"].values for n in "qk"}
        query, key = (x.reshape(-1, 8, width) for x in rows.values())
        products = np.einsum("hkd,hkd->h", query, np.repeat(key, len(query) // 2, 0)) / width
        assert products.min() > 0.7 * products.mean() > 0.05


def test_stages_of_other_heads_may_have_names_of_others():
    """As TinyViT's, whose attn.qkv holds one head after the other."""
    module = Module(stages__0__attn=holder(num_heads=H), stages__1__attn=holder(num_heads=2))
    module.parameters = {
        f"stages.{layer}.attn.{name}.weight": Parameter(np.ones(shape, np.float32))
        for layer in range(2)
        for name, shape in {"qkv": (3 * D, D), "proj": (D, D), "norm": (D,)}.items()
    }
    with pytest.raises(InputError, match=r"no rule and no family of models knows stages.0.attn.q"):
        mimetic_torch.initialize(module, KEY, Mimetic())


def test_two_names_of_one_memory_are_refused_and_parts_of_it_are_not():
    """One draw would overwrite the other; views beside each other are tensors of their own."""
    shared = np.ones((4, D, D), np.float32)
    names = [f"layers.0.self_attn.{name}_proj.weight" for name in "qkvo"]
    module = Module()
    module.parameters = {name: Parameter(x) for name, x in zip(names, shared, strict=True)}
    assert len(mimetic_torch.initialize(module, KEY, Mimetic(), num_heads=H)) == 4
    before = shared.copy()
    module.parameters[names[1]] = Parameter(shared[0])
    with pytest.raises(InputError, match=r"k_proj.weight and .*q_proj.weight share their memory"):
        mimetic_torch.initialize(module, KEY, Mimetic(), num_heads=H)
    np.testing.assert_array_equal(shared, before)
    module.parameters[names[1]] = Parameter(shared[1])
    module.parameters["head.weight"], module.parameters["embed.weight"] = 2 * [Parameter(before)]
    assert len(mimetic_torch.initialize(module, KEY, Mimetic(), num_heads=H)) == 4


def tied_model(torch):
    torch.manual_seed(0)
    layer = torch.nn.ModuleDict({f"{name}_proj": torch.nn.Linear(D, D) for name in "qkvo"})
    model = torch.nn.ModuleDict({"embed_tokens": torch.nn.Embedding(60, D)})
    model["layers"] = torch.nn.ModuleList([torch.nn.ModuleDict({"self_attn": layer})])
    model["lm_head"] = torch.nn.Linear(D, 60, bias=False)
    model["lm_head"].weight = model["embed_tokens"].weight
    return model


def saved_in_two(model, folder):
    from safetensors.torch import save_file

    parts = {name: f"{'lm_head' in name}.safetensors" for name in model.state_dict()}
    for part in set(parts.values()):
        held = {name: x.clone() for name, x in model.state_dict().items() if parts[name] == part}
        save_file(held, folder / part)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": parts}))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", ["file.safetensors", "model.safetensors", "model.safetensors.index.json"]
)
def test_a_tied_model_has_its_new_embedding_when_it_is_loaded(tmp_path, name):
    """Stored once or twice, in a file or in two: the model's only table of tokens is the law's."""
    torch = pytest.importorskip("torch")
    from safetensors import torch as tensors

    model, path, out = tied_model(torch), str(tmp_path / name), str(tmp_path / f"new_{name}")
    before = model["embed_tokens"].weight.detach().numpy().copy()
    if name == "file.safetensors":
        tensors.save_file({name: x.clone() for name, x in model.state_dict().items()}, path)
    elif name == "model.safetensors":
        tensors.save_model(model, path)
    else:
        saved_in_two(model, tmp_path)
    tokens = np.random.default_rng(0).zipf(1.3, 6000) % 60
    np.save(tmp_path / "tokens.npy", tokens)
    flags = ["--scheme=Cooccurrence", f"--tokens={tmp_path / 'tokens.npy'}", f"--heads={H}"]
    files.rewrite_file([path, out, *flags])
    loaded = tied_model(torch)
    if name == "model.safetensors":
        tensors.load_model(loaded, out)
    else:
        loaded.load_state_dict(files_of(tensors, out))
    rows = loaded["embed_tokens"].weight.detach().numpy()
    law = from_counts(KEY, cooccurrence(tokens, 60), D, base=before)
    np.testing.assert_allclose(rows @ rows.T, law @ law.T, rtol=1e-3, atol=1e-3)
    assert loaded["lm_head"].weight is loaded["embed_tokens"].weight


def files_of(tensors, out):
    held = pathlib.Path(out)
    parts = sorted(held.glob("*.safetensors")) if held.is_dir() else [held]
    return {name: x for part in parts for name, x in tensors.load_file(part).items()}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((KEY, Module(), Mimetic()), r"initialize\(module, key, scheme\): the key must be"),
        ((object(), KEY, Mimetic()), "object has no named_parameters"),
        ((Module(), KEY, Mimetic()), "pass num_heads"),
        ((Module("meta"), KEY, Mimetic()), "is on the meta device or sharded"),
    ],
)
def test_mistakes_are_one_line(arguments, words):
    with pytest.raises(InputError, match=words):
        mimetic_torch.initialize(*arguments)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("change", ["bfloat16", "float8_e4m3fn", "transposed"])
def test_tensors_that_numpy_does_not_hold(change):
    torch = pytest.importorskip("torch")
    layer = torch.nn.TransformerEncoderLayer(D, H)
    before = {name: array.copy() for name, array in mimetic_torch.arrays_of(layer).items()}
    expected = rewrite(KEY, before, Mimetic(), num_heads=H)["self_attn.out_proj.weight"]
    out = layer.self_attn.out_proj
    if change == "transposed":  # a view: its memory isn't that of its values in their order
        layer.linear1.weight = torch.nn.Parameter(layer.linear1.weight.detach().T)
        out.weight = torch.nn.Parameter(out.weight.detach().T)
    else:
        layer.linear1.weight.requires_grad_(False)
        layer.linear1.weight.data = layer.linear1.weight.data.to(getattr(torch, change))
    mimetic_torch.initialize(layer, KEY, Mimetic(), num_heads=H)
    np.testing.assert_array_equal(out.weight.detach().numpy(), expected)


@pytest.mark.slow
def test_parameters_without_values_are_one_line():
    torch = pytest.importorskip("torch")
    module = torch.nn.ModuleDict({"self_attn": torch.nn.MultiheadAttention(D, H)})
    module["head"] = torch.nn.LazyLinear(4)
    with pytest.raises(InputError, match=r"head.weight can't be read as an array"):
        mimetic_torch.initialize(module, KEY, Mimetic(), num_heads=H)


def block_of_the_page(start):
    page = (pathlib.Path(__file__).parents[1] / "docs" / "pytorch_and_files.md").read_text()
    (block,) = re.findall(rf"^```\n({start}\n.*?)^```", page, re.M | re.S)
    return block


def test_the_pages_llama_gets_heads_and_the_counts_of_its_text():
    torch = pytest.importorskip("torch")

    def linear(rows, columns):
        made = torch.nn.Linear(columns, rows, bias=False)
        torch.nn.init.normal_(made.weight, std=0.02)
        return made

    torch.manual_seed(0)
    attention = torch.nn.ModuleDict({f"{name}_proj": linear(64, 64) for name in "qkvo"})
    mlp = {"gate_proj": linear(96, 64), "up_proj": linear(96, 64), "down_proj": linear(64, 96)}
    layer = torch.nn.ModuleDict({"self_attn": attention, "mlp": torch.nn.ModuleDict(mlp)})
    inner = torch.nn.ModuleDict({"embed_tokens": torch.nn.Embedding(200, 64)})
    inner["layers"] = torch.nn.ModuleList([layer])
    inner["norm"] = torch.nn.LayerNorm(64, bias=False)
    model = torch.nn.ModuleDict({"model": inner, "lm_head": linear(200, 64)})
    config = {"model_type": "llama", "rope_theta": 1e4, "hidden_size": 64, "num_attention_heads": 4}
    model.config = holder(to_dict=lambda: config, vocab_size=200, **config)
    tokens = np.random.default_rng(0).zipf(1.3, 30_000) % 200
    exec(block_of_the_page("import jax"), {"model": model, "tokens": tokens})
    arrays = mimetic_torch.arrays_of(model)
    found = check(arrays, num_heads=4, rotary=1e4)
    np.testing.assert_allclose(found.positional[0].sharpness, [8, 8, 0, 0], atol=0.3)
    law = np.asarray(from_counts(jax.random.key(0), cooccurrence(tokens, 200), 64))
    rows = arrays["model.embed_tokens.weight"]
    cosines = [
        x @ x.T / np.linalg.norm(x, axis=1) / np.linalg.norm(x, axis=1)[:, None]
        for x in (rows, law)
    ]
    assert np.corrcoef(*(x.ravel() for x in cosines))[0, 1] > 0.9


def test_the_pages_own_attention_is_initialized():
    torch = pytest.importorskip("torch")

    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for name in ("to_q", "to_k", "to_v", "to_out"):
                setattr(self, name, torch.nn.Linear(64, 64))

    model = torch.nn.Sequential(Attention(), Attention())
    names = {"model": model, "jax": jax, "mimetic_torch": mimetic_torch, "Mimetic": Mimetic}
    names["attention_rules"] = attention_rules
    exec(block_of_the_page(r"rules = attention_rules\(.*?\)"), names)
    found = check(mimetic_torch.arrays_of(model), rules=names["rules"], num_heads=4)
    assert [layer.value_out < -0.5 for layer in found] == [True, True]


def test_a_class_token_near_0_is_said():
    module = Module(blocks__0__attn=type("Attention", (), {"num_heads": H}))
    module.parameters["cls_token"] = Parameter(np.zeros((1, 1, D), np.float32))
    with pytest.warns(UserWarning, match="cls_token and its position start near 0"):
        written = mimetic_torch.initialize(module, KEY, ZeroOut())
    assert written.notes[-1].startswith("cls_token and")


@pytest.mark.parametrize("rules", ["TIMM", attention_rules, 5])
def test_what_is_not_rules(rules):
    with pytest.raises(InputError, match="are not a sequence of Rule"):
        mimetic_torch.initialize(Module(), KEY, Mimetic(), rules=rules)
