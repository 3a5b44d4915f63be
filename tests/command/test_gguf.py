"""GGUF files, written with llama.cpp's own names and order of rows, beside Hugging Face's form."""

import dataclasses

import numpy as np
import pytest
from safetensors.numpy import save_file

from mimetic_jax import InputError, check, zoo
from mimetic_jax.base import extras
from mimetic_jax.command import files
from mimetic_jax.command.gguf import read_gguf
from mimetic_jax.weights.rotary import Rotary

gguf = pytest.importorskip("gguf")

D, H, G, K, F, L = 64, 8, 4, 8, 96, 2
BASE = 1e4
NORMS = {
    "llama": "input_layernorm post_attention_layernorm",
    "qwen2": "input_layernorm post_attention_layernorm",
    "gemma2": "input_layernorm post_attention_layernorm pre_feedforward_layernorm "
    "post_feedforward_layernorm",
}


def weights(architecture):
    """Two layers by Hugging Face's names."""
    random = np.random.default_rng(0)
    shapes = {f"self_attn.{x}_proj": (G * K, D) for x in "kv"} | {"self_attn.q_proj": (H * K, D)}
    shapes |= {"self_attn.o_proj": (D, H * K), "mlp.down_proj": (D, F)}
    shapes |= dict.fromkeys(("mlp.gate_proj", "mlp.up_proj"), (F, D))
    shapes |= dict.fromkeys(NORMS[architecture].split(), (D,))
    found = {
        f"model.layers.{layer}.{name}.weight": random.normal(size=shape)
        for layer in range(L)
        for name, shape in shapes.items()
    }
    if architecture == "qwen2":
        for layer in range(L):
            for name, size in (("q", H * K), ("k", G * K), ("v", G * K)):
                found[f"model.layers.{layer}.self_attn.{name}_proj.bias"] = random.normal(size=size)
    found["model.embed_tokens.weight"] = random.normal(size=(11, D))
    return {name: array.astype(np.float32) for name, array in found.items()}


def neighbors(rows, heads):
    """The order of rows in which llama.cpp turns the columns of Llama's heads."""
    split = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return split.swapaxes(1, 2).reshape(rows.shape)


def write(path, architecture, kind=gguf.GGMLQuantizationType.F32, heads=H, scaling=None):
    """What llama.cpp's converter makes of `weights`."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_embedding_length(D)
    writer.add_head_count(heads)
    writer.add_head_count_kv(G)
    writer.add_rope_dimension_count(K)
    writer.add_rope_freq_base(BASE)
    if scaling:
        writer.add_rope_scaling_type(scaling)
    known = next(x for x, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(known, L)
    for name, array in weights(architecture).items():
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            array = neighbors(array, H if "q_proj" in name else G)
        if architecture == "gemma2" and "norm" in name:
            array = array + 1
        stored = kind if array.ndim == 2 else gguf.GGMLQuantizationType.F32
        new = names.get_name(name, try_suffixes=(".weight", ".bias"))
        writer.add_tensor(new, gguf.quants.quantize(array, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


def numbers(found):
    """What `check` found, without names of layers."""
    for layer in (*found, *found.positional):
        yield {
            name: value
            for name, value in dataclasses.asdict(layer).items()
            if name not in ("path", "index", "unknown")
        }


@pytest.mark.parametrize("architecture", NORMS)
def test_a_file_is_read_as_the_one_that_it_was_made_of(tmp_path, architecture):
    tensors, stated, rotary = read_gguf(write(tmp_path / "in.gguf", architecture))
    assert stated == {"num_heads": H, "num_kv_heads": G}
    expected = check(weights(architecture), **stated, rotary=BASE)
    found = check(tensors, **stated, rotary=rotary)
    assert len(found) == len(found.positional) == L
    for one, other in zip(numbers(found), numbers(expected), strict=True):
        for name, value in other.items():
            if name in ("folded", "channel"):
                assert one[name] == value
            else:
                np.testing.assert_allclose(one[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_eight_bits_a_weight(tmp_path):
    path = write(tmp_path / "in.gguf", "llama", gguf.GGMLQuantizationType.Q8_0)
    tensors, stated, _ = read_gguf(path)
    for layer, exact in zip(
        check(tensors, **stated), check(weights("llama"), **stated), strict=True
    ):
        for name in ("query_key", "value_out", "value_out_by_head", "mlp", "units"):
            np.testing.assert_allclose(getattr(layer, name), getattr(exact, name), atol=0.01)


def test_the_commands_need_no_flags(tmp_path, capsys):
    path, same = write(tmp_path / "in.gguf", "qwen2"), tmp_path / "in.safetensors"
    save_file(weights("qwen2"), same)
    for command in (files.check_file, files.fit_file):
        command([path])
        short = capsys.readouterr().out.replace("blk.", "model.layers.")
        command([str(same), f"--heads={H}", f"--kv-heads={G}", f"--rotary-base={BASE}"])
        long = capsys.readouterr().out.replace(".self_attn", "")
        assert ("distance" in short) == (command is files.check_file)
        assert short.split() == long.split()


def test_what_a_file_does_not_state(tmp_path):
    heads = write(tmp_path / "layers.gguf", "llama", heads=[H, H])
    assert read_gguf(heads)[1:] == ({"num_kv_heads": G}, None)
    with pytest.raises(InputError, match="give --heads"):
        files.check_file([heads])
    scaled = write(tmp_path / "yarn.gguf", "qwen2", scaling=gguf.RopeScalingType.YARN)
    assert read_gguf(scaled)[2] is None
    assert read_gguf(write(tmp_path / "in.gguf", "qwen2"))[2] == Rotary(BASE)


def test_files_that_are_refused(tmp_path, monkeypatch):
    path = write(tmp_path / "in.gguf", "llama")
    with pytest.raises(InputError, match=r"in\.gguf is not a \.safetensors"):
        files.rewrite_file([path, str(tmp_path / "out.gguf")])
    damaged = tmp_path / "damaged.gguf"
    whole = (tmp_path / "in.gguf").read_bytes()
    for content in (b"GGUF", whole[:1000], whole[:-1000], b"x" * 1000):
        damaged.write_bytes(content)
        with pytest.raises(InputError, match="is no whole GGUF file"):
            files.check_file([str(damaged)])
    monkeypatch.setitem(extras.EXTRAS, "gguf", ("no_such_module",))
    with pytest.raises(InputError, match=r"pip install .*\[gguf\]"):
        files.check_file([path])


def test_gated_delta_nets_beside_attention_have_no_rule():
    names = {f"blk.0.{name}.weight": (D, D) for name in ("attn_q", "attn_k", "attn_v")}
    names |= {"blk.0.attn_output.weight": (D, D), "blk.1.attn_qkv.weight": (2 * D, D)}
    names |= {"blk.1.ssm_out.weight": (D, D)}
    tensors = {name: np.ones(shape, np.float32) for name, shape in names.items()}
    assert [layer.path for layer in check(tensors, num_heads=H, rules=zoo.GGUF)] == ["blk.0"]
