"""`--what=fit`: tables of arms, at the start and trained, and of a pretrained file."""

from __future__ import annotations

import re

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

import mimetic_jax
from configs.default import default, model
from mimetic_jax import InputError
from mimetic_jax.analysis import fit
from mimetic_jax.schemes import Mimetic
from tests.analysis.networks import small
from tests.training import quiet

D, H, L = 48, 2, 2


def analyzed(config, workdir):
    return fit.analyze(quiet(config), workdir)


def test_arms_at_the_start(tmp_path):
    config = small(scan=True, fused_qkv=True)
    config.arms = {"default": {}, "mimetic": {"scheme": (Mimetic(),)}}
    before = analyzed(config, tmp_path)
    assert [line for line in before.splitlines() if line[0] != " "] == [
        "default, initial",
        "mimetic, initial",
    ]
    assert "  blocks/attention[1]  " in before
    printed = re.findall(r"^  (Mimetic\(.*\))$", before, re.MULTILINE)
    scheme = eval(printed[1], {"Mimetic": Mimetic})
    assert scheme.alpha_qk == pytest.approx((0.7, 0.7), rel=0.1)
    assert scheme.beta_vo == pytest.approx((-0.4, -0.4), rel=0.1)


def timm_file(path, scheme, depth=3):
    """Attention of a ViT in timm's names."""
    draw = np.random.default_rng(0).standard_normal
    shape = {"query": (D, H, D // H), "key": (D, H, D // H), "value": (D, H, D // H)}
    shape["out"] = (H, D // H, D)
    layer = {role: {"kernel": np.float32(draw(s))} for role, s in shape.items()}
    params = {f"block_{i}": layer for i in range(depth)}
    params = mimetic_jax.rewrite(jax.random.key(0), params, scheme)
    tensors = {"patch_embed.proj.weight": np.zeros((D, 3, 1, 1), np.float32)}
    tensors["pos_embed"] = np.zeros((1, 5, D), np.float32)
    for index in range(depth):
        kernels = [np.asarray(params[f"block_{index}"][role]["kernel"]) for role in shape]
        qkv = np.concatenate([kernel.reshape(D, D) for kernel in kernels[:3]], axis=1)
        tensors[f"blocks.{index}.attn.qkv.weight"] = np.ascontiguousarray(qkv.T)
        tensors[f"blocks.{index}.attn.proj.weight"] = kernels[3].reshape(D, D).T.copy()
    save_file(tensors, path)
    return path


def test_a_pretrained_file_is_fit_in_its_own_sizes(tmp_path):
    scheme = Mimetic(beta_qk=(0.2, 0.4, 0.6), alpha_vo=0.3)
    path = timm_file(tmp_path / "vit.safetensors", scheme)
    config = small()  # of two layers, where the file has three
    config.init_from, config.init_parts = str(path), ("attention",)
    said = analyzed(config, tmp_path)
    assert said.startswith(f"{path}\n")
    of_file, of_arm = re.findall(r"beta_qk=\((.*?)\)", said)
    assert [float(x) for x in of_file.split(",")] == pytest.approx([0.2, 0.4, 0.6], rel=0.2)
    assert of_arm.split(",")[0] == of_file.split(",")[0]  # weight selection: first and last layer
    assert len(of_arm.split(",")) == 2


def test_a_gpt2_is_fit_though_no_model_here_starts_from_it(tmp_path):
    """Its tensors are stored inputs first, query, key and value side by side."""
    draws = np.random.default_rng(0)
    value = draws.normal(size=(D, D)) / D**0.5
    out = np.linalg.solve(value, 0.3 * draws.normal(size=(D, D)) / D**0.5 - 0.5 * np.eye(D))
    qkv = np.concatenate([draws.normal(size=(D, 2 * D)) / D**0.5, value], axis=1)
    np.savez(
        tmp_path / "gpt2.npz",
        **{"h.0.attn.c_attn.weight": qkv, "h.0.attn.c_proj.weight": out},
    )
    config = small()
    config.init_from = str(tmp_path / "gpt2.npz")
    said = analyzed(config, tmp_path)
    (beta,) = re.findall(r"beta_vo=\(?([-.\d]+)", said)
    assert float(beta) == pytest.approx(-0.5, rel=0.1)
    assert "no arm starts from that file" in said


def test_models_without_attention_say_so(tmp_path):
    said = analyzed(mixer(), tmp_path)
    assert said.splitlines()[0] == "run, initial"
    assert "model mixer: there is no attention to fit" in said
    config = mixer()
    config.init_from = str(timm_file(tmp_path / "vit.safetensors", Mimetic()))
    with pytest.raises(InputError, match=r"^model mixer has no attention: .*vit\.safetensors"):
        analyzed(config, tmp_path)


def mixer():
    config = default()
    config.batch, config.steps, config.eval.batch = 32, 2, 72
    config.model = model("mixer", width=8, depth=1, patch=4)
    return config


def test_missing_sources_are_one_line(tmp_path):
    config = small()
    config.init_from = str(tmp_path / "no.npz")
    with pytest.raises(InputError, match=r"^there is no checkpoint .*no\.npz$"):
        analyzed(config, tmp_path)
    (tmp_path / "empty").mkdir()
    config.init_from = str(tmp_path / "empty")
    with pytest.raises(InputError, match="is neither a run's folder"):
        analyzed(config, tmp_path)
