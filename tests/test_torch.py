"""Schemes on PyTorch's modules: by a stand-in here, and by the real ones where torch is installed.

pip install torch torchvision timm transformers
"""

from __future__ import annotations

import importlib.util

import jax
import numpy as np
import pytest

from mimetic_jax import InputError, check, rewrite
from mimetic_jax import torch as mimetic_torch
from mimetic_jax.schemes import Mimetic, mimetic_language

KEY = jax.random.key(1)
D, H = 32, 4


class Parameter:
    """As much of a `torch.Tensor` on the CPU as is asked for."""

    def __init__(self, values, device="cpu"):
        self.values = values
        self.device = type("Device", (), {"type": device})
        self.dtype = f"torch.{values.dtype}"

    def is_contiguous(self):
        return True

    def detach(self):
        return self

    cpu = contiguous = detach

    def numpy(self):
        return self.values


class Module:
    def __init__(self, device="cpu"):
        random = np.random.default_rng(0)
        shapes = {"attn.qkv.weight": (3 * D, D), "attn.proj.weight": (D, D), "norm.weight": (D,)}
        self.parameters = {
            f"blocks.0.{name}": Parameter(random.standard_normal(shape).astype(np.float32), device)
            for name, shape in shapes.items()
        }

    def named_parameters(self):
        return self.parameters.items()


def test_a_module_gets_what_the_dictionary_of_its_parameters_gets():
    module = Module()
    before = {name: array.copy() for name, array in mimetic_torch.arrays_of(module).items()}
    planned = mimetic_torch.initialize(module, KEY, Mimetic(), num_heads=H)
    assert planned.table == "PYTORCH"
    expected = rewrite(KEY, before, Mimetic(), num_heads=H)
    for name, parameter in module.parameters.items():
        np.testing.assert_array_equal(parameter.values, expected[name], err_msg=name)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((KEY, Module(), Mimetic()), r"initialize\(module, key, scheme\): the key must be"),
        ((object(), KEY, Mimetic()), "object has no named_parameters"),
        ((Module(), KEY, Mimetic()), "give num_heads"),
        ((Module("meta"), KEY, Mimetic()), "has no whole value here"),
    ],
)
def test_mistakes_are_one_line(arguments, words):
    with pytest.raises(InputError, match=words) as refused:
        mimetic_torch.initialize(*arguments)
    assert "\n" not in str(refused.value)


def test_a_state_dict_without_torch_says_what_to_do(tmp_path):
    if importlib.util.find_spec("torch"):
        pytest.skip("torch is installed")
    with pytest.raises(InputError, match=r"pip install torch, or save it as \.safetensors"):
        mimetic_torch.read_tensors(str(tmp_path / "model.pt"))


def vit():
    import timm

    return timm.create_model("vit_tiny_patch16_224"), 3, Mimetic()


def swin():
    import timm

    return timm.create_model("swin_tiny_patch4_window7_224"), None, Mimetic()


def torchvision_vit():
    import torchvision

    return torchvision.models.vit_b_32(), 12, Mimetic()


def encoder():
    import torch

    layer = torch.nn.TransformerEncoderLayer(D, H, dropout=0.0, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 2), H, Mimetic()


def gpt2():
    import transformers

    config = transformers.GPT2Config(n_embd=D, n_layer=2, n_head=H)
    return transformers.GPT2Model(config), H, mimetic_language()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("build", [vit, swin, torchvision_vit, encoder, gpt2])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_real_modules_save_and_load(build, dtype, tmp_path):
    torch = pytest.importorskip("torch")
    for package in ("timm", "torchvision", "transformers"):
        pytest.importorskip(package)
    from safetensors.torch import load_file, save_file

    torch.manual_seed(0)
    module, heads, scheme = build()
    module = module.to(getattr(torch, dtype))
    same = {name: id(parameter) for name, parameter in module.named_parameters()}
    mimetic_torch.initialize(module, KEY, scheme, num_heads=heads)
    assert {name: id(parameter) for name, parameter in module.named_parameters()} == same
    path = tmp_path / "model.safetensors"
    save_file({name: value.clone() for name, value in module.named_parameters()}, path)
    module.load_state_dict(load_file(path), strict=False)
    for layer in check(mimetic_torch.arrays_of(module), num_heads=heads):
        assert min(layer.query_key) > 4 * layer.noise
        assert layer.value_out < -4 * layer.noise


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_real_attention_attends_to_itself():
    """By the module's own forward pass: W_Q W_Kᵀ close to I makes the diagonal the largest."""
    torch = pytest.importorskip("torch")
    attention = torch.nn.MultiheadAttention(64, 2, batch_first=True, bias=False)
    torch.manual_seed(0)
    x = 64**0.5 * torch.nn.functional.normalize(torch.randn(1, 10, 64), dim=-1)
    named = torch.nn.ModuleDict({"self_attn": attention})
    mimetic_torch.initialize(named, KEY, Mimetic(alpha_qk=0.0, beta_qk=1.0), num_heads=2)
    _, maps = attention(x, x, x, average_attn_weights=True)
    assert (maps[0].argmax(-1) == torch.arange(10)).all()
    value, out = attention.in_proj_weight[128:], attention.out_proj.weight
    assert float((out @ value).diagonal().mean()) == pytest.approx(-0.4, abs=0.05)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("around", [{"epoch": 7, "state_dict": None}, {"model": None}, None])
def test_a_checkpoint_keeps_what_is_around_its_state_dict(around, tmp_path):
    torch = pytest.importorskip("torch")
    state = torch.nn.TransformerEncoderLayer(D, H).state_dict()
    state["scale"] = torch.ones(4).to(torch.float8_e4m3fn)
    state["tied"] = state["linear1.weight"]
    saved = state if around is None else {k: state if v is None else v for k, v in around.items()}
    path, out = tmp_path / "in.pt", tmp_path / "out.pt"
    torch.save(saved, path)
    mimetic_torch.rewrite_saved({str(path): str(out)}, KEY, Mimetic(), num_heads=H)
    after = torch.load(out, weights_only=True)
    if around is not None:
        assert list(after) == list(around)
        after = after[next(name for name, value in around.items() if value is None)]
    assert list(after) == list(state)
    assert after["tied"].data_ptr() == after["linear1.weight"].data_ptr()
    changed = {name for name in state if not torch.equal(after[name], state[name])}
    assert changed == {"self_attn.in_proj_weight", "self_attn.out_proj.weight"}
    _, _, value = after["self_attn.in_proj_weight"].chunk(3)
    product = value.T @ after["self_attn.out_proj.weight"].T
    assert float(product.diagonal().mean()) == pytest.approx(-0.4, abs=0.05)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("change", ["bfloat16", "float8_e4m3fn", "transposed"])
def test_tensors_that_numpy_does_not_hold(change):
    torch = pytest.importorskip("torch")
    layer = torch.nn.TransformerEncoderLayer(D, H)
    expected = {name: value.detach().clone() for name, value in layer.named_parameters()}
    mimetic_torch._initialize(expected, KEY, Mimetic(), num_heads=H)
    out = layer.self_attn.out_proj
    if change == "transposed":  # a view: its memory isn't that of its values in their order
        layer.linear1.weight = torch.nn.Parameter(layer.linear1.weight.detach().T)
        out.weight = torch.nn.Parameter(out.weight.detach().T)
    else:
        layer.linear1.weight.requires_grad_(False)
        layer.linear1.weight.data = layer.linear1.weight.data.to(getattr(torch, change))
    mimetic_torch.initialize(layer, KEY, Mimetic(), num_heads=H)
    assert torch.equal(out.weight, expected["self_attn.out_proj.weight"])


@pytest.mark.slow
def test_parameters_without_values_are_one_line():
    torch = pytest.importorskip("torch")
    module = torch.nn.ModuleDict({"self_attn": torch.nn.MultiheadAttention(D, H)})
    module["head"] = torch.nn.LazyLinear(4)
    with pytest.raises(InputError, match=r"head.weight can't be read as an array"):
        mimetic_torch.initialize(module, KEY, Mimetic(), num_heads=H)
