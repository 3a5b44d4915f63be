"""Each model in one line, and `check` on what was saved and loaded."""

from __future__ import annotations

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx, serialization
from safetensors.numpy import load_file, save_file

import mimetic_jax
from mimetic_jax import InputError, attention_rules, check, models, rewrite
from mimetic_jax import torch as mimetic_torch
from mimetic_jax.command import files
from mimetic_jax.schemes import Mimetic
from mimetic_jax.tree import paths
from tests.zoo.test_zoo import CASES
from tests.zoo.trees import nested

KEY = jax.random.key(1)
D, H, G, K, L, T = 64, 4, 2, 32, 2, 6
OWN = attention_rules(query="to_q", key="to_k", value="to_v", out="to_out", flat=True)


class Rotary(nn.Module):
    """Attention of one's own: fewer heads of key and value, rotary positions."""

    @nn.compact
    def __call__(self, x):
        heads = {"query": H, "key": G, "value": G}
        q, k, v = (nn.DenseGeneral((n, K), name=name)(x) for name, n in heads.items())
        angle = jnp.arange(x.shape[-2])[:, None, None] / 100 ** jnp.linspace(0, 1, K // 2)
        turn = [(jnp.cos(angle), jnp.sin(angle))] * 2
        q, k = (
            jnp.concatenate([a * c - b * s, a * s + b * c], -1)
            for (a, b), (c, s) in zip((jnp.split(x, 2, -1) for x in (q, k)), turn, strict=True)
        )
        y = nn.dot_product_attention(q, k.repeat(H // G, -2), v.repeat(H // G, -2))
        return x + nn.DenseGeneral(x.shape[-1], (-2, -1), name="out")(y)


class Scanned(nn.Module):
    """One layer of a stack."""

    @nn.compact
    def __call__(self, x, _):
        return x + nn.MultiHeadDotProductAttention(H, name="attention")(x), None


class Own(nnx.Module):
    """Attention with names of one's own."""

    def __init__(self, rngs):
        for name in ("to_q", "to_k", "to_v", "to_out"):
            setattr(self, name, nnx.Linear(D, D, rngs=rngs))


def of_linen(module, *inputs):
    shapes = jax.eval_shape(module.init, KEY, *inputs)["params"]
    params = jax.tree.map(lambda leaf: np.ones(leaf.shape, leaf.dtype), shapes)
    return rewrite(KEY, params, Mimetic())


def of_nnx(module, **options):
    mimetic_jax.nnx.initialize(module, KEY, Mimetic(), **options)
    return nnx.to_pure_dict(nnx.state(module, nnx.Param))


def stock(rngs):
    return nnx.MultiHeadAttention(H, D, decode=False, rngs=rngs)


def vmapped():
    return nnx.vmap(stock)(nnx.Rngs(0).split(L))


def scanned():
    layers = {"variable_axes": {"params": 0}, "split_rngs": {"params": True}, "length": L}
    return nn.scan(Scanned, **layers)()


def equinox(stacked=False):
    eqx = pytest.importorskip("equinox")
    make = functools.partial(eqx.nn.MultiheadAttention, H, D)
    keys = jax.random.split(KEY, L)
    model = {"attention": eqx.filter_vmap(lambda key: make(key=key))(keys)}
    model = model if stacked else {"attention": [make(key=key) for key in keys]}
    return rewrite(KEY, model, Mimetic(), num_heads=H)


def timm():
    torch, library = pytest.importorskip("torch"), pytest.importorskip("timm")
    torch.manual_seed(0)
    model = library.models.VisionTransformer(32, 16, embed_dim=D, depth=L, num_heads=H)
    mimetic_torch.initialize(model, KEY, Mimetic(), num_heads=H)
    return mimetic_torch.arrays_of(model)


def of_case(name):
    case = CASES[name]
    return rewrite(KEY, case.params(), Mimetic(), **case.numbers)


VIT = models.ViT(num_classes=3, patch=4, width=D, depth=L, heads=H)
IMAGE, TOKENS = jnp.ones((1, 8, 8, 3)), jnp.ones((1, T, D))
SLOW = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
HEADS = {"num_heads": H}
MODELS = {
    "linen_vit": (
        lambda: of_linen(VIT, IMAGE),
        {},
    ),
    "linen_scanned": (lambda: of_linen(scanned(), TOKENS, None), {}),
    "linen_grouped_rotary": (lambda: of_linen(Rotary(), TOKENS), {}),
    "nnx_stock": (lambda: of_nnx(stock(nnx.Rngs(0))), {}),
    "nnx_own": (lambda: of_nnx(Own(nnx.Rngs(0)), rules=OWN, **HEADS), {"rules": OWN} | HEADS),
    "nnx_vmapped": (lambda: of_nnx(vmapped()), {}),
    **{
        name: (functools.partial(of_case, name), CASES[name].numbers)
        for name in (
            *("flax_llama", "llama", "timm", "bonsai_vit", "bonsai_qwen3", "tunix_llama"),
            *("maxtext_llama", "maxtext_gpt3", "axlearn_repeat_fused"),
        )
    },
    "equinox": (equinox, HEADS),
    "equinox_stacked": (lambda: equinox(stacked=True), HEADS),
    "timm_module": (timm, HEADS),
}


ALONE = {"nnx_stock", "nnx_own", "linen_grouped_rotary"}


def through_safetensors(arrays, path):
    save_file({name: np.asarray(leaf) for name, leaf in arrays.items()}, path)
    return load_file(path)


def through_msgpack(arrays, path):
    tree = nested({name: np.asarray(leaf) for name, leaf in arrays.items()})
    path.write_bytes(serialization.msgpack_serialize(tree))
    return serialization.msgpack_restore(path.read_bytes())


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=SLOW if name[:4] in ("equi", "timm") and name != "timm" else [])
        for name in MODELS
    ],
)
def test_one_line_and_check_after_saving(name, tmp_path):
    build, options = MODELS[name]
    leaves = paths.flatten(build())[0]
    arrays = {path: leaf for path, leaf in leaves if isinstance(leaf, np.ndarray | jax.Array)}
    for number, through in enumerate((through_safetensors, through_msgpack)):
        found = check(through(arrays, tmp_path / str(number)), **options)
        assert len(found) == (1 if name in ALONE else L)
        for layer in found:
            assert min(layer.query_key) > 4 * layer.noise
            assert layer.value_out < -4 * layer.noise


# Names as in the published files, in sizes of their own: those of self-attention and all others.
W, E = 32, 64
SQUARE, HALF = (W, W), (W // 2, W)
SELF = "attention.{0}.query attention.{0}.key attention.{0}.value attention.output.dense"
LLAMA, BART = "q_proj k_proj v_proj o_proj", "q_proj k_proj v_proj out_proj"


def attention(prefix, names, narrow=SQUARE, biases=0):
    """Weights of four layers, and biases of the first of them."""
    layers = dict(zip(names.split(), (SQUARE, narrow, narrow, SQUARE), strict=True))
    shapes = {f"{prefix}{name}.weight": shape for name, shape in layers.items()}
    first = list(layers.items())[:biases]
    return shapes | {f"{prefix}{name}.bias": shape[:1] for name, shape in first}


def others(prefix="", **shapes):
    return {f"{prefix}{name.replace('__', '.')}": shape for name, shape in shapes.items()}


def mamba(prefix, projection=2 * E + 12):
    return others(prefix, A_log=(4,), in_proj__weight=(projection, W), out_proj__weight=(W, E))


DENSE = {"intermediate__dense__weight": (E, W), "output__dense__weight": (W, E)}
FAMILIES = {
    "vit": (
        attention("vit.encoder.layer.0.", SELF.format("attention"), biases=4),
        others("vit.encoder.layer.0.", **DENSE)
        | others(vit__embeddings__position_embeddings=(1, 17, W), classifier__weight=(9, W)),
    ),
    "bert": (
        attention("bert.encoder.layer.0.", SELF.format("self"), biases=4),
        others("bert.encoder.layer.0.", **DENSE),
    ),
    "gpt2": (
        {"h.0.attn.c_attn.weight": (W, 3 * W), "h.0.attn.c_proj.weight": SQUARE},
        others(
            "h.0.", attn__bias=(1, 1, 8, 8), mlp__c_fc__weight=(W, E), mlp__c_proj__weight=(E, W)
        ),
    ),
    "llama": (
        attention("model.layers.0.self_attn.", LLAMA, HALF),
        others("model.layers.0.self_attn.rotary_emb.", inv_freq=(4,)),
    ),
    "qwen2": (attention("model.layers.0.self_attn.", LLAMA, HALF, biases=3), {}),
    "qwen3": (
        attention("model.layers.0.self_attn.", LLAMA, HALF),
        others("model.layers.0.self_attn.", q_norm__weight=(8,), k_norm__weight=(8,)),
    ),
    "jamba": (
        attention("model.layers.1.self_attn.", LLAMA, HALF),
        mamba("model.layers.0.mamba.", 2 * E),
    ),
    "bamba": (
        attention("model.layers.1.self_attn.", LLAMA, HALF),
        mamba("model.layers.0.mamba."),
    ),
    "nemotron_h": (
        attention("backbone.layers.1.mixer.", LLAMA, HALF),
        mamba("backbone.layers.0.mixer."),
    ),
    "t5": (
        attention("encoder.block.0.layer.0.SelfAttention.", "q k v o")
        | attention("decoder.block.0.layer.0.SelfAttention.", "q k v o"),
        attention("decoder.block.0.layer.1.EncDecAttention.", "q k v o"),
    ),
    "bart": (
        attention("model.encoder.layers.0.self_attn.", BART)
        | attention("model.decoder.layers.0.self_attn.", BART),
        attention("model.decoder.layers.0.encoder_attn.", BART),
    ),
    "whisper": (
        attention("model.encoder.layers.0.self_attn.", BART)
        | attention("model.decoder.layers.0.self_attn.", BART),
        attention("model.decoder.layers.0.encoder_attn.", BART),
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_published_names_are_found_without_a_false_alarm(family, tmp_path, capsys):
    written, kept = FAMILIES[family]
    random = np.random.default_rng(0)
    shapes = {**written, **kept}
    arrays = {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    path, out = tmp_path / "model.safetensors", tmp_path / "new.safetensors"
    save_file(arrays, path)
    flags = ["--heads=4", *(["--kv-heads=2"] if HALF in written.values() else [])]
    files.check_file([str(path), *flags])
    assert "aligned with +I in 0, with -I in 0" in capsys.readouterr().out
    files.rewrite_file([str(path), str(out), *flags])
    printed = capsys.readouterr().out
    assert "rules: zoo.PYTORCH" in printed
    after = load_file(out)
    changed = {name for name in shapes if not np.array_equal(after[name], arrays[name])}
    assert changed == set(written)
    for name in (name for name, shape in kept.items() if len(shape) > 1):
        layer = name.removesuffix(".weight").rsplit(".", 1)[-1]
        assert layer in printed.split("unchanged:")[1]


def test_zambas_shared_attention_reads_two_streams():
    """Its value reads [x, x₀] and its output writes x alone: no product with the identity."""
    block = "model.layers.1.shared_transf.self_attn."
    shapes = dict.fromkeys((f"{block}{name}_proj.weight" for name in "qkv"), (2 * W, 2 * W))
    tree = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    tree[f"{block}o_proj.weight"] = np.ones((W, 2 * W), np.float32)
    with pytest.raises(InputError, match=r"shared_transf.* have no square product"):
        rewrite(KEY, tree, Mimetic(), num_heads=4)
