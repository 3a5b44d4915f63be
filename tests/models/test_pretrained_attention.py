"""Attention kernels of files whose other tensors are of no interest."""

import numpy as np
import pytest

from mimetic_jax.base.errors import InputError
from mimetic_jax.models.pretrained_attention import pretrained_attention
from mimetic_jax.tree.rewrite import blocks

D, H, K = 8, 2, 4
DRAWS = np.random.default_rng(0)


def gpt2(prefix):
    tensors = {f"{prefix}wte.weight": DRAWS.normal(size=(5, D))}
    for layer in range(2):
        name = f"{prefix}h.{layer}.attn"
        tensors[f"{name}.c_attn.weight"] = DRAWS.normal(size=(D, 3 * D))
        tensors[f"{name}.c_attn.bias"] = DRAWS.normal(size=3 * D)
        tensors[f"{name}.c_proj.weight"] = DRAWS.normal(size=(D, D))
    return tensors


@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_gpt2_attends_with_these_kernels(prefix, tmp_path):
    """Hugging Face computes x · c_attn, splits it in three, and each third in heads."""
    tensors = gpt2(prefix)
    np.savez(tmp_path / "gpt2.npz", **tensors)
    found = pretrained_attention(tmp_path / "gpt2.npz", head_dim=K)
    views = blocks(found)
    assert [path for path, *_ in views] == ["block_0/attention", "block_1/attention"]
    x = DRAWS.normal(size=(3, D))
    for layer, (_, _, block) in enumerate(views):
        name = f"{prefix}h.{layer}.attn"
        thirds = np.split(x @ tensors[f"{name}.c_attn.weight"], 3, axis=-1)
        for role, third in zip(("query", "key", "value"), thirds, strict=True):
            heads = np.einsum("nd,dhk->nhk", x, block[role])
            np.testing.assert_allclose(heads, third.reshape(3, H, K), rtol=1e-5, atol=1e-6)
        mixed = np.einsum("nhk,hkd->nd", thirds[2].reshape(3, H, K), block["out"])
        expected = thirds[2] @ tensors[f"{name}.c_proj.weight"]
        np.testing.assert_allclose(mixed, expected, rtol=1e-5, atol=1e-6)


def test_a_vit_of_timm_as_the_whole_reader_reads_it(tmp_path):
    """timm stores outputs first, and query, key and value one below the other."""
    qkv, out = DRAWS.normal(size=(3 * D, D)), DRAWS.normal(size=(D, D))
    np.savez(
        tmp_path / "vit.npz",
        **{
            "patch_embed.proj.weight": DRAWS.normal(size=(D, 3, 2, 2)),
            "blocks.0.attn.qkv.weight": qkv,
            "blocks.0.attn.proj.weight": out,
        },
    )
    ((_, _, block),) = blocks(pretrained_attention(tmp_path / "vit.npz", head_dim=K))
    np.testing.assert_allclose(
        np.einsum("dhk,ehk->hde", block["query"], block["key"])[1],
        qkv[K : 2 * K].T @ qkv[D + K : D + 2 * K],
        rtol=1e-5,
        atol=1e-5,
    )
    np.testing.assert_allclose(
        np.einsum("dhk,hke->de", block["value"], block["out"]),
        qkv[2 * D :].T @ out.T,
        rtol=1e-5,
        atol=1e-5,
    )


def test_what_is_no_such_file(tmp_path):
    np.savez(tmp_path / "gpt2.npz", **gpt2(""))
    with pytest.raises(InputError, match=r"heads of width 3 don't divide dim 8"):
        pretrained_attention(tmp_path / "gpt2.npz", head_dim=3)
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    with pytest.raises(InputError, match=r"is not a ViT of vit_jax, timm or Hugging Face"):
        pretrained_attention(tmp_path / "other.npz")
