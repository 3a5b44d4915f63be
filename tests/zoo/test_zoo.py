"""Every zoo's tree, rewritten and then used as that zoo's model uses it.

The forward computations below are written from the models' definitions, each in its own
convention, for rows x. None of them knows a layout: a table that misreads an orientation gives
other products than the scheme drew.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mimetic_jax
from mimetic_jax import InputError, block_key, zoo
from mimetic_jax.schemes import Block, Context, Mimetic, Scheme, SinCos

KEY = jax.random.key(5)
D, F, N, L, VOCAB = 32, 48, 17, 2, 11


@dataclasses.dataclass(frozen=True)
class Case:
    """A zoo's tree, and how its model computes.

    `attend(params, layer, x)` gives queries and keys [T, H, K] as the logits see them, and what
    attention puts out where every token looks at itself; `mlp` the two layers' outputs for x and
    for the hidden units; `position` the rows that are added to the tokens.
    """

    rules: tuple
    shapes: dict[str, tuple[int, ...]]
    attention: str
    blocks: tuple[tuple[str, int | None], ...]
    attend: Callable
    heads: tuple[int, int, int]
    given: dict[str, int] = dataclasses.field(default_factory=dict)
    mlp: Callable | None = None
    position: Callable | None = None

    def params(self, dtype=jnp.float32):
        rng = np.random.default_rng(0)
        tree: dict = {}
        for path, shape in self.shapes.items():
            *parents, name = path.split("/")
            node = tree
            for parent in parents:
                node = node.setdefault(parent, {})
            node[name] = jnp.asarray(rng.normal(size=shape), dtype)
        return tree

    def rewrite(self, params, scheme, rules=None):
        return mimetic_jax.rewrite(KEY, params, scheme, rules=rules or self.rules, **self.given)


def at(tree, path):
    for name in path.split("/"):
        tree = tree[name]
    return tree


def leaves(tree):
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(p, simple=True, separator="/"): leaf for p, leaf in flat}


def dense(leaf, x):
    """nn.Dense and nn.DenseGeneral of one input axis: kernel (in, *out)."""
    return jnp.tensordot(x, leaf["kernel"], 1) + leaf.get("bias", 0)


def unstacked(layer):
    """The blocks of layers that aren't stacked."""
    return tuple((layer.format(i), None) for i in range(L))


def two_layers(layer, first, second):
    """The `mlp` of two dense layers."""
    return lambda params, i, x, hidden: (
        dense(at(params, f"{layer.format(i)}/{first}"), x),
        dense(at(params, f"{layer.format(i)}/{second}"), hidden),
    )


def below(prefixes, shapes):
    """The same shapes below each of some paths."""
    return {f"{prefix}/{name}": shape for prefix in prefixes for name, shape in shapes.items()}


def per_layer(shapes, prefix):
    """The shapes of a layer, once for each of `prefix.format(layer)`."""
    return below([prefix.format(layer) for layer in range(L)], shapes)


def with_bias(kernels, bias=True, names=("kernel", "bias"), outputs=slice(1, None)):
    """The shapes of dense layers' leaves: a bias has the kernel's axes of outputs."""
    shapes = {f"{layer}/{names[0]}": shape for layer, shape in kernels.items()}
    if bias:
        shapes |= {f"{layer}/{names[1]}": shape[outputs] for layer, shape in kernels.items()}
    return shapes


OF_HEADS = slice(2, None)  # the outputs of a kernel [H, K, D]
TRANSPOSED = slice(0, 1)  # those of a kernel (out, in)


# vit_jax, scenic, big_vision: flax.linen.MultiHeadDotProductAttention.


def linen_attend(attention, x):
    query, key, value = (dense(attention[name], x) for name in ("query", "key", "value"))
    out = attention["out"]
    return query, key, jnp.einsum("thk,hkd->td", value, out["kernel"]) + out["bias"]


def linen_layer(H, K, attention="MultiHeadDotProductAttention_0", mlp="MlpBlock_0"):
    return {
        **with_bias({f"{attention}/{name}": (D, H, K) for name in ("query", "key", "value")}),
        **with_bias({f"{attention}/out": (H, K, D)}, outputs=OF_HEADS),
        **with_bias({f"{mlp}/Dense_0": (D, F), f"{mlp}/Dense_1": (F, D)}),
        "LayerNorm_0/scale": (D,),
        "LayerNorm_0/bias": (D,),
    }


def vit_jax(H=2, attention="MultiHeadDotProductAttention_0", mlp="MlpBlock_0"):
    K = D // H
    layer = "Transformer/encoderblock_{}"
    return Case(
        rules=zoo.VIT_JAX,
        shapes={
            "cls": (1, 1, D),
            "embedding/kernel": (2, 2, 3, D),
            "embedding/bias": (D,),
            "Transformer/posembed_input/pos_embedding": (1, N, D),
            **per_layer(linen_layer(H, K, attention, mlp), layer),
            "Transformer/encoder_norm/scale": (D,),
            "head/kernel": (D, 10),
            "head/bias": (10,),
        },
        attention="MultiHeadDotProductAttention",
        blocks=unstacked(layer),
        attend=lambda p, i, x: linen_attend(at(p, f"{layer.format(i)}/{attention}"), x),
        heads=(H, H, K),
        mlp=two_layers(layer, f"{mlp}/Dense_0", f"{mlp}/Dense_1"),
        position=lambda p: at(p, "Transformer/posembed_input/pos_embedding")[0],
    )


def big_vision(scan=True, H=2, prefix=""):
    K = D // H
    layer = linen_layer(H, K)
    if scan:
        blocks = {
            f"{prefix}Transformer/encoderblock/{name}": (L, *shape) for name, shape in layer.items()
        }
    else:
        blocks = per_layer(layer, f"{prefix}Transformer/encoderblock_{{}}")

    def block(params, i):
        params = at(params, f"{prefix}Transformer")
        if scan:
            return jax.tree.map(lambda leaf: leaf[i], params["encoderblock"])
        return params[f"encoderblock_{i}"]

    return Case(
        rules=zoo.BIG_VISION,
        shapes={
            f"{prefix}pos_embedding": (1, N - 1, D),
            f"{prefix}cls": (1, 1, D),
            f"{prefix}embedding/kernel": (2, 2, 3, D),
            f"{prefix}MAPHead_0/probe": (1, 1, D),
            **below([f"{prefix}MAPHead_0"], layer),
            **blocks,
        },
        attention="encoderblock.*MultiHeadDotProductAttention",
        blocks=tuple(
            (f"{prefix}Transformer/encoderblock", i)
            if scan
            else (f"{prefix}Transformer/encoderblock_{i}", None)
            for i in range(L)
        ),
        attend=lambda p, i, x: linen_attend(block(p, i)["MultiHeadDotProductAttention_0"], x),
        heads=(H, H, K),
        mlp=lambda p, i, x, h: (
            dense(block(p, i)["MlpBlock_0"]["Dense_0"], x),
            dense(block(p, i)["MlpBlock_0"]["Dense_1"], h),
        ),
        position=lambda p: at(p, f"{prefix}pos_embedding")[0],
    )


# Hugging Face: nn.Dense, then a reshape into heads.


def split(x, H):
    return x.reshape(len(x), H, -1)


def hugging_face_encoder(self_attention, rules, prefix, positions):
    H = 2
    names = {f"attention/{self_attention}/{n}": (D, D) for n in ("query", "key", "value")}
    names |= {
        "attention/output/dense": (D, D),
        "intermediate/dense": (D, F),
        "output/dense": (F, D),
    }
    layer = f"{prefix}/encoder/layer/{{}}"

    def attend(params, i, x):
        attention = at(params, f"{layer.format(i)}/attention")
        inner = attention[self_attention]
        query, key, value = (split(dense(inner[n], x), H) for n in ("query", "key", "value"))
        return query, key, dense(attention["output"]["dense"], value.reshape(len(x), -1))

    [position] = positions
    return Case(
        rules=rules,
        shapes=positions
        | {f"{prefix}/embeddings/cls_token": (1, 1, D), f"{prefix}/pooler/dense/kernel": (D, D)}
        | per_layer(with_bias(names) | {"layernorm_before/scale": (D,)}, layer),
        attention=f"layer/./attention/({self_attention}/(query|key|value)|output/dense)/",
        blocks=unstacked(layer),
        attend=attend,
        heads=(H, H, D // H),
        given={"num_heads": H},
        mlp=two_layers(layer, "intermediate/dense", "output/dense"),
        position=lambda p: at(p, position).reshape(N, D),
    )


def hugging_face_vit():
    return hugging_face_encoder(
        "attention",
        zoo.HUGGING_FACE_VIT,
        "vit",
        {"vit/embeddings/position_embeddings": (1, N, D)},
    )


def hugging_face_bert():
    case = hugging_face_encoder(
        "self",
        zoo.HUGGING_FACE_BERT,
        "bert",
        {"bert/embeddings/position_embeddings/embedding": (N, D)},
    )
    cross = {f"self/{name}": (D, D) for name in ("query", "key", "value")}
    cross |= {"output/dense": (D, D)}
    shapes = per_layer(with_bias(cross), "bert/encoder/layer/{}/crossattention")
    return dataclasses.replace(case, shapes=case.shapes | shapes)


def hugging_face_gpt2():
    H = 2
    layer = "transformer/h/{}"
    kernels = {
        "attn/c_attn": (3 * D, D),
        "attn/c_proj": (D, D),
        "mlp/c_fc": (F, D),
        "mlp/c_proj": (D, F),
    }
    names = with_bias(kernels, outputs=TRANSPOSED) | {"ln_1/scale": (D,), "ln_1/bias": (D,)}

    def conv1d(leaf, x):
        return x @ leaf["kernel"].T + leaf["bias"]

    def attend(params, i, x):
        attention = at(params, f"{layer.format(i)}/attn")
        query, key, value = jnp.split(conv1d(attention["c_attn"], x), 3, axis=-1)
        return split(query, H), split(key, H), conv1d(attention["c_proj"], value)

    return Case(
        rules=zoo.HUGGING_FACE_GPT2,
        shapes={
            "transformer/wte/embedding": (VOCAB, D),
            "transformer/wpe/embedding": (N, D),
            "transformer/ln_f/scale": (D,),
            **per_layer(names, layer),
        },
        attention="/attn/",
        blocks=unstacked(layer),
        attend=attend,
        heads=(H, H, D // H),
        given={"num_heads": H},
        mlp=lambda p, i, x, h: (
            conv1d(at(p, f"{layer.format(i)}/mlp/c_fc"), x),
            conv1d(at(p, f"{layer.format(i)}/mlp/c_proj"), h),
        ),
        position=lambda p: at(p, "transformer/wpe/embedding"),
    )


def llama_like(rules, layer, attention, names, mlp, H, G, K, bias=False):
    q, k, v, o = (f"{attention}/{name}" for name in names)
    kernels = {q: (D, H * K), k: (D, G * K), v: (D, G * K), o: (H * K, D)}
    gate, up, down = mlp

    def attend(params, i, x):
        block = at(params, layer.format(i))
        query = split(dense(at(block, q), x), H)
        key, value = (split(dense(at(block, name), x), G) for name in (k, v))
        key, value = (jnp.repeat(array, H // G, axis=1) for array in (key, value))
        return query, key, dense(at(block, o), value.reshape(len(x), -1))

    shapes = with_bias(kernels, bias)
    shapes |= with_bias({gate: (D, F), up: (D, F), down: (F, D)}, False)
    return Case(
        rules=rules,
        shapes={
            "lm_head/kernel": (D, VOCAB),
            **per_layer(shapes | {"norm/weight": (D,)}, layer),
        },
        attention=f"/{attention}/",
        blocks=unstacked(layer),
        attend=attend,
        heads=(H, G, K),
        given={"num_heads": H, "num_kv_heads": G},
    )


def hugging_face_llama(H=2, G=2, K=16, bias=True):
    return llama_like(
        zoo.HUGGING_FACE_LLAMA,
        "model/layers/{}",
        "self_attn",
        ("q_proj", "k_proj", "v_proj", "o_proj"),
        ("mlp/gate_proj", "mlp/up_proj", "mlp/down_proj"),
        *(H, G, K, bias),
    )


def easylm():
    return llama_like(
        zoo.EASYLM_LLAMA,
        "transformer/h/{}",
        "attention",
        ("wq", "wk", "wv", "wo"),
        ("feed_forward/w1", "feed_forward/w3", "feed_forward/w2"),
        *(2, 2, 16),
    )


# Gemma: einsums.


def gemma(H=2, G=2, K=32, form="gemma"):
    if H == G:
        arrays = {"attn/qkv_einsum/w": (3, H, D, K)}
    else:
        arrays = {"attn/q_einsum/w": (H, D, K), "attn/kv_einsum/w": (2, G, D, K)}
    arrays |= {"attn/attn_vec_einsum/w": (H, K, D)}
    arrays |= {"attn/_query_norm/scale": (K,), "pre_attention_norm/scale": (D,)}
    arrays |= {"mlp/gating_einsum": (2, D, F), "mlp/linear": (F, D)}
    layer = {"gemma": "layer_{}", "scan": "llm/layers", "no scan": "llm/layers/{}"}[form]
    if form == "scan":
        shapes = {f"{layer}/{name}": (L, *shape) for name, shape in arrays.items()}
    else:
        shapes = per_layer(arrays, layer)

    def attend(params, i, x):
        block = at(params, layer.format(i))["attn"]
        if form == "scan":
            block = jax.tree.map(lambda leaf: leaf[i], block)
        x = x[None]
        if H == G:
            w = block["qkv_einsum"]["w"]
            query, key, value = jnp.einsum("BTD,SNDH->SBTNH", x, w)
        else:
            query = jnp.einsum("BTD,NDH->BTNH", x, block["q_einsum"]["w"])
            key, value = jnp.einsum("BSD,CKDH->CBSKH", x, block["kv_einsum"]["w"])
            # Queries are reshaped to groups (B, T, G, H/G, K): head h reads group h // (H/G).
            key, value = (jnp.repeat(array, H // G, axis=2) for array in (key, value))
        out = jnp.einsum("BTNH,NHD->BTD", value, block["attn_vec_einsum"]["w"])
        return query[0], key[0], out[0]

    return Case(
        rules=zoo.GEMMA,
        shapes={"embedder/input_embedding": (VOCAB, D), **shapes},
        attention="einsum/w$",
        blocks=tuple(
            ("llm/layers", i) if form == "scan" else (layer.format(i), None) for i in (0, 1)
        ),
        attend=attend,
        heads=(H, G, K),
    )


# MaxText: DenseGeneral, layers stacked along axis 1.


def maxtext(H=2, G=2, K=16, scan=True, module="self_attention", group="", bias=True, gpt3=False):
    heads = {"query": (D, H, K), "key": (D, G, K), "value": (D, G, K)}
    if gpt3:
        heads = {"qkv_proj": (D, 3, H, K)}
    names = with_bias(below([module], heads), bias)
    names |= with_bias({f"{module}/out": (H, K, D)}, bias, outputs=OF_HEADS)
    if gpt3:
        names |= with_bias({"mlp/wi": (D, F), "mlp/wo": (F, D)})
    else:
        names |= {f"{module}/query_norm/scale": (K,), "MoeBlock_0/wo": (3, F, D)}
        names |= with_bias({"mlp/wi_0": (D, F), "mlp/wi_1": (D, F), "mlp/wo": (F, D)}, False)
    names |= {"pre_self_attention_layer_norm/scale": (D,)}
    layer = f"params/decoder/layers{group}" if scan else "params/decoder/layers_{}"
    if scan:
        shapes = {f"{layer}/{n}": (shape[0], L, *shape[1:]) for n, shape in names.items()}
    else:
        shapes = per_layer(names, layer)

    def block(params, i):
        if scan:
            return jax.tree.map(lambda leaf: jnp.take(leaf, i, axis=1), at(params, layer))
        return at(params, layer.format(i))

    def attend(params, i, x):
        attention = block(params, i)[module]
        if gpt3:
            qkv = dense(attention["qkv_proj"], x)
            query, key, value = qkv[:, 0], qkv[:, 1], qkv[:, 2]
        else:
            query, key, value = (dense(attention[n], x) for n in ("query", "key", "value"))
        # Queries are reshaped to groups (b, t, G, H/G, K), as in Gemma.
        key, value = (jnp.repeat(array, H // G, axis=1) for array in (key, value))
        out = attention["out"]
        return query, key, jnp.tensordot(value, out["kernel"], 2) + out.get("bias", 0)

    return Case(
        rules=zoo.MAXTEXT_GPT3 if gpt3 else zoo.MAXTEXT,
        shapes={
            "params/token_embedder/embedding": (VOCAB, D),
            "params/decoder/decoder_norm/scale": (D,),
            "params/decoder/position_embedder/embedding": (N, D),
            **shapes,
        },
        attention=f"/{module}/(query|key|value|qkv_proj|out)/",
        blocks=tuple((f"{layer.format(i)}/{module}", i if scan else None) for i in range(L)),
        attend=attend,
        heads=(H, G, K),
        mlp=(
            lambda p, i, x, h: (
                dense(block(p, i)["mlp"]["wi"], x),
                dense(block(p, i)["mlp"]["wo"], h),
            )
        )
        if gpt3
        else None,
        position=lambda p: at(p, "params/decoder/position_embedder/embedding"),
    )


def hugging_face_text(rules, block, names, mlp, prefix="", position=None, no_bias=(), extra=None):
    """Models of `nn.Dense` whose attention and MLP have the given names."""
    H = 2
    q, k, v, o = names
    first, second = mlp
    kernels = dict.fromkeys(names, (D, D)) | {first: (D, F), second: (F, D)}
    shapes = {
        name: shape
        for name, shape in with_bias(kernels).items()
        if not any(name == f"{layer}/bias" for layer in no_bias)
    }
    layer = f"{prefix}{block}"

    def attend(params, i, x):
        attention = at(params, layer.format(i))
        query, key, value = (split(dense(at(attention, name), x), H) for name in (q, k, v))
        return query, key, dense(at(attention, o), value.reshape(len(x), -1))

    folder = q.rsplit("/", 1)[0]
    return Case(
        rules=rules,
        shapes={
            f"{prefix}{position}": (N, D),
            "lm_head/kernel": (D, VOCAB),
            **per_layer(shapes | {"layer_norm/scale": (D,)}, layer),
            **(extra or {}),
        },
        attention=f"^{prefix}.*/{folder}/",
        blocks=unstacked(layer),
        attend=attend,
        heads=(H, H, D // H),
        given={"num_heads": H},
        mlp=two_layers(layer, first, second),
        position=lambda p: at(p, f"{prefix}{position}"),
    )


OPT = ("self_attn/q_proj", "self_attn/k_proj", "self_attn/v_proj", "self_attn/out_proj")


def hugging_face_opt():
    return hugging_face_text(
        zoo.HUGGING_FACE_OPT,
        "layers/{}",
        OPT,
        ("fc1", "fc2"),
        prefix="model/decoder/",
        position="embed_positions/embedding",
        extra={"model/decoder/project_in/kernel": (F, D)},
    )


def hugging_face_whisper():
    cross = dict.fromkeys((name.replace("self", "encoder") for name in OPT), (D, D))
    return hugging_face_text(
        zoo.HUGGING_FACE_OPT,
        "layers/{}",
        OPT,
        ("fc1", "fc2"),
        prefix="model/decoder/",
        position="embed_positions/embedding",
        no_bias=("self_attn/k_proj",),
        extra=per_layer(with_bias(cross), "model/decoder/layers/{}")
        | {"model/encoder/embed_positions/embedding": (2 * N, D)},
    )


def hugging_face_gpt_neo():
    names = tuple(name.replace("self_attn", "attn/attention") for name in OPT)
    case = hugging_face_text(
        zoo.HUGGING_FACE_GPT_NEO,
        "h/{}",
        names,
        ("mlp/c_fc", "mlp/c_proj"),
        prefix="transformer/",
        position="wpe/embedding",
        no_bias=names[:3],
    )

    def attend(params, i, x):
        """Queries are multiplied by √K before logits are divided by it."""
        query, key, out = case.attend(params, i, x)
        return query * query.shape[-1] ** 0.5, key, out

    return dataclasses.replace(case, attend=attend)


def hugging_face_distilbert():
    return hugging_face_text(
        zoo.HUGGING_FACE_DISTILBERT,
        "transformer/layer/{}",
        ("attention/q_lin", "attention/k_lin", "attention/v_lin", "attention/out_lin"),
        ("ffn/lin1", "ffn/lin2"),
        prefix="distilbert/",
        position="embeddings/position_embeddings/embedding",
    )


def diffusers_unet():
    case = llama_like(
        zoo.DIFFUSERS_UNET,
        "down_blocks_{}/attentions_0/transformer_blocks_0",
        "attn1",
        ("to_q", "to_k", "to_v", "to_out_0"),
        ("ff/net_0/proj", "proj_in", "ff/net_2"),
        *(2, 2, 16),
    )
    text = {"to_q": (D, D), "to_k": (F, D), "to_v": (F, D), "to_out_0": (D, D)}
    layer = "down_blocks_{}/attentions_0/transformer_blocks_0"
    shapes = case.shapes | per_layer({"attn1/to_out_0/bias": (D,)}, layer)
    return dataclasses.replace(
        case,
        shapes=shapes | per_layer(with_bias(text, False), f"{layer}/attn2"),
        # Each attn1 is a block of its own.
        blocks=unstacked(f"{layer}/attn1"),
    )


def easydel_phi3(H=4, G=2, K=16):
    """`qkv_proj` is split after H K and after (H + G) K columns."""
    case = llama_like(
        zoo.EASYDEL_PHI3,
        "model/layers/{}",
        "self_attn",
        ("q", "k", "v", "o_proj"),
        ("mlp/gate_up_proj", "mlp/up", "mlp/down_proj"),
        *(H, G, K),
    )
    apart = "/self_attn/[qkv]/"
    shapes = {path: shape for path, shape in case.shapes.items() if not re.search(apart, path)}
    shapes |= per_layer({"self_attn/qkv_proj/kernel": (D, (H + 2 * G) * K)}, "model/layers/{}")

    def attend(params, i, x):
        attention = at(params, f"model/layers/{i}/self_attn")
        qkv = dense(attention["qkv_proj"], x)
        parts = qkv[:, : H * K], qkv[:, H * K : (H + G) * K], qkv[:, (H + G) * K :]
        query = split(parts[0], H)
        key, value = (jnp.repeat(split(part, G), H // G, axis=1) for part in parts[1:])
        return query, key, dense(attention["o_proj"], value.reshape(len(x), -1))

    return dataclasses.replace(case, shapes=shapes, attend=attend)


# bonsai: nnx.Einsum and nnx.Linear.


def bonsai_qwen3(H=4, G=2, K=16):
    layer = "layers/{}"
    kernels = {"q_proj": (D, H, K), "k_proj": (D, G, K), "v_proj": (D, G, K), "o_proj": (H, K, D)}
    kernels = below(["attn"], kernels) | {"mlp/gate_proj": (D, F), "mlp/up_proj": (D, F)}
    names = with_bias(kernels, False) | {"attn/q_norm/scale": (K,)}

    def attend(params, i, x):
        attention = at(params, f"{layer.format(i)}/attn")
        query = jnp.einsum("TD,DNH->TNH", x, attention["q_proj"]["kernel"])
        key, value = (
            jnp.einsum("SD,DKH->SKH", x, attention[name]["kernel"]) for name in ("k_proj", "v_proj")
        )
        # Queries are reshaped to (B, T, K, N // K, H): head n reads key n // (N // K).
        key, value = (jnp.repeat(array, H // G, axis=1) for array in (key, value))
        return query, key, jnp.einsum("TNH,NHD->TD", value, attention["o_proj"]["kernel"])

    return Case(
        rules=zoo.BONSAI_QWEN3,
        shapes={"embedder/embedding": (VOCAB, D), **per_layer(names, layer)},
        attention="_proj/kernel$(?<!mlp/gate_proj/kernel)(?<!mlp/up_proj/kernel)",
        blocks=unstacked(layer),
        attend=attend,
        heads=(H, G, K),
    )


def bonsai_dinov3():
    case = llama_like(
        zoo.BONSAI_DINOV3,
        "layer/{}",
        "attention",
        ("q_proj", "k_proj", "v_proj", "o_proj"),
        ("mlp/gate_proj", "mlp/up_proj", "mlp/down_proj"),
        *(2, 2, 16, True),
    )
    shapes = {path: s for path, s in case.shapes.items() if not path.endswith("k_proj/bias")}
    return dataclasses.replace(case, shapes=shapes)


def bonsai_gemma3(H=4, G=2, K=16):
    case = llama_like(
        zoo.BONSAI_GEMMA3,
        "language_model/layers/{}",
        "self_attn",
        ("q_proj", "k_proj", "v_proj", "o_proj"),
        ("mlp/gate_proj", "mlp/up_proj", "mlp/down_proj"),
        *(H, G, K),
    )
    tower = dict.fromkeys((f"self_attn/{name}_proj" for name in ("q", "k", "v", "out")), (F, F))
    tower |= {"mlp/fc1": (F, D), "mlp/fc2": (D, F)}
    shapes = per_layer(with_bias(tower), "vision_tower/encoder/layers/{}")
    return dataclasses.replace(
        case, shapes=case.shapes | shapes, attention="language_model/.*/self_attn/"
    )


# Equinox, Haiku and Keras: the module's own attention, in somebody's model.


def equinox():
    H, K = 2, 20  # `qk_size` and `vo_size` need not be D / H
    kernels = {"query_proj": (H * K, D), "key_proj": (H * K, D), "value_proj": (H * K, D)}
    kernels |= {"output_proj": (D, H * K)}
    shapes = with_bias(below(["attention"], kernels), names=("weight", "bias"), outputs=TRANSPOSED)
    shapes |= {"mlp/layers/0/weight": (F, D), "mlp/layers/1/weight": (D, F), "norm/weight": (D,)}

    def linear(leaf, x):
        return jax.vmap(lambda row: leaf["weight"] @ row + leaf["bias"])(x)

    def attend(params, i, x):
        attention = at(params, f"blocks/{i}/attention")
        query, key, value = (
            split(linear(attention[f"{name}_proj"], x), H) for name in ("query", "key", "value")
        )
        return query, key, linear(attention["output_proj"], value.reshape(len(x), -1))

    return Case(
        rules=zoo.EQUINOX,
        shapes={"embedding/weight": (VOCAB, D), **per_layer(shapes, "blocks/{}")},
        attention="/attention/",
        blocks=unstacked("blocks/{}/attention"),
        attend=attend,
        heads=(H, H, K),
        given={"num_heads": H},
    )


NUMBERED = ("multi_head_attention", "multi_head_attention_1")


def haiku():
    H, K = 2, 20
    kernels = {"query": (D, H * K), "key": (D, H * K), "value": (D, H * K), "linear": (H * K, D)}
    blocks = [f"transformer/~/{name}" for name in NUMBERED]

    def linear(leaf, x):
        return jnp.dot(x, leaf["w"]) + leaf["b"]

    def attend(params, i, x):
        attention = at(params, blocks[i])
        query, key, value = (
            split(linear(attention[name], x), H) for name in ("query", "key", "value")
        )
        return query, key, linear(attention["linear"], value.reshape(len(x), -1))

    return Case(
        rules=zoo.HAIKU,
        shapes={
            **below(blocks, with_bias(kernels, names=("w", "b"))),
            "transformer/~/linear/w": (D, F),
            "transformer/~/linear_1/w": (F, D),
        },
        attention="multi_head_attention",
        blocks=tuple((block, None) for block in blocks),
        attend=attend,
        heads=(H, H, K),
        given={"num_heads": H},
    )


def keras(H=4, G=4, K=12):
    shapes = with_bias({"query": (D, H, K), "key": (D, G, K), "value": (D, G, K)})
    shapes |= with_bias({"attention_output": (H, K, D)}, outputs=OF_HEADS)
    blocks = [f"functional/{name}" for name in NUMBERED]

    def attend(params, i, x):
        attention = at(params, blocks[i])
        query, key, value = (
            jnp.einsum("ab,bcd->acd", x, attention[name]["kernel"]) + attention[name]["bias"]
            for name in ("query", "key", "value")
        )
        key, value = (jnp.repeat(array, H // G, axis=1) for array in (key, value))
        out = attention["attention_output"]
        return query, key, jnp.einsum("abc,bcd->ad", value, out["kernel"]) + out["bias"]

    return Case(
        rules=zoo.KERAS,
        shapes={
            **below(blocks, shapes),
            "functional/dense/kernel": (D, F),
            "functional/dense_1/kernel": (F, D),
        },
        attention="multi_head_attention",
        blocks=tuple((block, None) for block in blocks),
        attend=attend,
        heads=(H, G, K),
    )


CASES = {
    "vit_jax": vit_jax(),
    "vit_jax_before_linen": vit_jax(2, "MultiHeadDotProductAttention_1", "MlpBlock_3"),
    "big_vision": big_vision(scan=False),
    "big_vision_scan": big_vision(),
    "big_vision_two_towers": big_vision(prefix="img/"),
    "hugging_face_vit": hugging_face_vit(),
    "hugging_face_bert": hugging_face_bert(),
    "hugging_face_gpt2": hugging_face_gpt2(),
    "hugging_face_llama": hugging_face_llama(),
    "hugging_face_mistral": hugging_face_llama(4, 2, 8, bias=False),
    "hugging_face_gemma": hugging_face_llama(4, 1, 32, bias=False),
    "hugging_face_opt": hugging_face_opt(),
    "hugging_face_whisper": hugging_face_whisper(),
    "hugging_face_gpt_neo": hugging_face_gpt_neo(),
    "hugging_face_distilbert": hugging_face_distilbert(),
    "diffusers_unet": diffusers_unet(),
    "easylm": easylm(),
    "easydel_phi3": easydel_phi3(),
    "bonsai_qwen3": bonsai_qwen3(),
    "bonsai_dinov3": bonsai_dinov3(),
    "bonsai_gemma3": bonsai_gemma3(),
    "equinox": equinox(),
    "haiku": haiku(),
    "keras": keras(),
    "keras_grouped": keras(4, 2, 16),
    "gemma": gemma(),
    "gemma_grouped": gemma(4, 2, 16),
    "big_vision_gemma": gemma(4, 2, 16, form="no scan"),
    "big_vision_gemma_scan": gemma(4, 1, 32, form="scan"),
    "maxtext": maxtext(),
    "maxtext_grouped": maxtext(4, 2, 16, bias=False),
    "maxtext_no_scan": maxtext(4, 2, 16, scan=False),
    "maxtext_gemma2": maxtext(module="self_attention_local"),
    "maxtext_gemma3": maxtext(group="/layers_1"),
    "maxtext_gpt3": maxtext(gpt3=True),
    "maxtext_gpt3_no_scan": maxtext(gpt3=True, scan=False),
}

every_zoo = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def products(case, params, layer):
    """W_Q W_Kᵀ of each head and the value → out map, by pushing the identity through."""
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params)
    query, key, out = case.attend(params, layer, jnp.eye(D))
    return np.einsum("ihk,jhk->hij", query, key), np.asarray(out)


def drawn(case, scheme, layer):
    """The same products of the scheme's own draw for that block's key."""
    H, G, K = case.heads
    wide, narrow = (D, H, K), (D, G, K)
    shapes = {"query": wide, "key": narrow, "value": narrow, "out": (H, K, D)}
    block = Block.of({role: jnp.zeros(shape) for role, shape in shapes.items()})
    new = scheme(block_key(KEY, *case.blocks[layer]), block, Context(layer, L))
    key, value = (np.repeat(new[role], H // G, axis=1) for role in ("key", "value"))
    return (
        np.einsum("dhk,ehk->hde", new["query"], key),
        np.einsum("dhk,hke->de", value, new["out"]),
    )


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@every_zoo
def test_the_model_computes_with_the_products_that_the_scheme_drew(case, dtype):
    params = case.rewrite(case.params(dtype), Mimetic())
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype(dtype)}
    _, G, K = case.heads
    found = [products(case, params, layer) for layer in range(L)]
    for layer, (query_key, value_out) in enumerate(found):
        assert (query_key.diagonal(axis1=1, axis2=2).mean(axis=1) > (0.2 if K >= 16 else 0.1)).all()
        if G * K >= D:
            assert value_out.diagonal().mean() == pytest.approx(-0.4, abs=0.1)
        else:
            assert value_out.diagonal().mean() < -0.15
        for ours, theirs in zip(found[layer], drawn(case, Mimetic(), layer), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5 if dtype == jnp.float32 else 0.03)
    assert np.abs(found[0][1] - found[1][1]).max() > 0.1


# Sizes that leave another reading of out's axes open.
AMBIGUOUS = {
    "vit_jax": (vit_jax(1), "h d k"),
    "big_vision": (big_vision(scan=False, H=1), "h d k"),
    "big_vision_scan": (big_vision(), "h l k d"),
    "hugging_face_vit": (hugging_face_vit(), "d (h k)"),
    "hugging_face_bert": (hugging_face_bert(), "d (h k)"),
    "hugging_face_gpt2": (hugging_face_gpt2(), "(h k) d"),
    "hugging_face_llama": (hugging_face_llama(), "d (h k)"),
    "hugging_face_opt": (hugging_face_opt(), "d (h k)"),
    "hugging_face_gpt_neo": (hugging_face_gpt_neo(), "d (h k)"),
    "hugging_face_distilbert": (hugging_face_distilbert(), "d (h k)"),
    "diffusers_unet": (diffusers_unet(), "d (h k)"),
    "easylm": (easylm(), "d (h k)"),
    "easydel_phi3": (easydel_phi3(2, 1, 16), "d (h k)"),
    "bonsai_qwen3": (bonsai_qwen3(1, 1, 32), "h d k"),
    "bonsai_dinov3": (bonsai_dinov3(), "d (h k)"),
    "bonsai_gemma3": (bonsai_gemma3(2, 1, 16), "d (h k)"),
    "keras": (keras(1, 1, 32), "h d k"),
    "gemma": (gemma(), "h d k"),
    "big_vision_gemma_scan": (gemma(2, 1, 32, form="scan"), "h l k d"),
    "maxtext": (maxtext(), "l h k d"),
    "maxtext_no_scan": (maxtext(1, 1, 32, scan=False), "h d k"),
    "maxtext_gpt3": (maxtext(gpt3=True), "l h k d"),
}


@pytest.mark.parametrize(("case", "layout"), AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
def test_another_orientation_would_be_seen(case, layout):
    """A transposition keeps diagonals, but not equality with the draw."""
    stacked = case.blocks[0][1] is not None
    assert any(rule.role == "out" and rule.stacked == stacked for rule in case.rules)
    wrong = tuple(
        dataclasses.replace(rule, layout=layout)
        if rule.role == "out" and rule.stacked == stacked
        else rule
        for rule in case.rules
    )
    expected = drawn(case, Mimetic(), 0)[1]
    for rules, off in ((case.rules, 0), (wrong, 0.1)):
        params = case.rewrite(case.params(), Mimetic(), rules)
        error = np.abs(products(case, params, 0)[1] - expected).max()
        assert error > off if off else error < 1e-5


@every_zoo
def test_all_of_attention_is_planned_and_nothing_else_changes(case):
    before = case.params()
    writes = mimetic_jax.plan(before, Mimetic(), rules=case.rules, **case.given)
    planned = {write.path for write in writes}
    assert planned == {path for path in case.shapes if re.search(case.attention, path)}
    after = leaves(case.rewrite(before, Mimetic()))
    for path, leaf in leaves(before).items():
        same = np.array_equal(leaf, after[path])
        assert same == (path not in planned), path


@every_zoo
def test_layers_know_their_depth(case):
    params = case.rewrite(case.params(), Mimetic(beta_vo=(-0.4, 0.4)))
    for layer, sign in enumerate((-1, 1)):
        assert sign * products(case, params, layer)[1].diagonal().mean() > 0.15


@dataclasses.dataclass(frozen=True)
class Numbered(Scheme):
    """Writes arrays whose every entry differs."""

    roles: frozenset[str]

    def writes(self, roles):
        return roles & self.roles

    def __call__(self, key, block, context):
        return {
            role: numbered(block.shapes[role]) + 0.5 * context.layer
            for role in self.writes(frozenset(block))
        }


def numbered(shape):
    return jnp.arange(np.prod(shape, dtype=int), dtype=jnp.float32).reshape(shape)


@every_zoo
def test_mlps_and_positions(case):
    params = case.params()
    mlp = Numbered(frozenset({"mlp_in", "mlp_in_bias", "mlp_out", "mlp_out_bias"}))
    if case.mlp is None:
        with pytest.raises(InputError, match="matches nothing"):
            case.rewrite(params, mlp)
    else:
        new = case.rewrite(params, mlp)
        for i in range(L):
            first, second = case.mlp(new, i, jnp.eye(D), jnp.eye(F))
            bias = numbered((F,)) + 0.5 * i, numbered((D,)) + 0.5 * i
            np.testing.assert_allclose(first, numbered((D, F)) + 0.5 * i + bias[0])
            np.testing.assert_allclose(second, numbered((F, D)) + 0.5 * i + bias[1])
    if case.position is None:
        with pytest.raises(InputError, match="matches nothing"):
            case.rewrite(params, SinCos())
    else:
        new = case.rewrite(params, Numbered(frozenset({"position"})))
        np.testing.assert_array_equal(case.position(new), numbered(case.position(new).shape))


def test_names_from_before_linen_draw_the_same():
    new, old = CASES["vit_jax"], CASES["vit_jax_before_linen"]
    for case in (new, old):
        assert case.blocks == new.blocks
    after = [case.rewrite(case.params(), Mimetic()) for case in (new, old)]
    for new_leaf, old_leaf in zip(
        jax.tree.leaves(at(after[0], "Transformer/encoderblock_0/MultiHeadDotProductAttention_0")),
        jax.tree.leaves(at(after[1], "Transformer/encoderblock_0/MultiHeadDotProductAttention_1")),
        strict=True,
    ):
        np.testing.assert_array_equal(new_leaf, old_leaf)


def test_two_position_tables_are_an_error_for_images():
    image, text = big_vision(prefix="img/"), big_vision(prefix="txt/")
    tree = image.params() | text.params()
    with pytest.raises(InputError, match="aren't a square grid"):
        mimetic_jax.rewrite(KEY, tree, SinCos(), rules=zoo.BIG_VISION)
    new = mimetic_jax.rewrite(KEY, tree["img"], SinCos(), rules=zoo.BIG_VISION)
    assert float(jnp.abs(new["pos_embedding"]).max()) == pytest.approx(1)


def test_paligemma_takes_two_tables():
    tower, language = big_vision(prefix="img/"), gemma(4, 2, 16, form="scan")
    tree = tower.params() | language.params()
    new = mimetic_jax.rewrite(KEY, tree, Mimetic(), rules=(*zoo.GEMMA, *zoo.BIG_VISION))
    for case in (tower, language):
        for ours, theirs in zip(products(case, new, 1), drawn(case, Mimetic(), 1), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_gpt2_with_cross_attention_is_an_error():
    case = hugging_face_gpt2()
    cross = {"c_attn": (2 * D, D), "q_attn": (D, D), "c_proj": (D, D)}
    shapes = per_layer(with_bias(cross), "transformer/h/{}/crossattention")
    case = dataclasses.replace(case, shapes=case.shapes | shapes)
    with pytest.raises(InputError, match=r"no rule describes .*crossattention/c_attn"):
        case.rewrite(case.params(), Mimetic())


def test_gemma2_has_two_attentions_a_layer():
    local, other = CASES["maxtext_gemma2"], maxtext(module="self_attention_global")
    both = dataclasses.replace(local, shapes=local.shapes | other.shapes)
    new = both.rewrite(both.params(), Mimetic())
    for case in (local, other):
        for ours, theirs in zip(products(case, new, 1), drawn(case, Mimetic(), 1), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_another_scan_axis_is_an_error():
    case = maxtext(bias=False)
    shapes = {
        path: (shape[1], shape[0], *shape[2:]) if "/layers/" in path else shape
        for path, shape in case.shapes.items()
    }
    case = dataclasses.replace(case, shapes=shapes)
    with pytest.raises(InputError, match="some of its leaves stack layers and some don't"):
        case.rewrite(case.params(), Mimetic())


def maxtext_fused(H, G, K, scan):
    case = maxtext(H, G, K, scan=scan, bias=False)
    shapes = {}
    for path, shape in case.shapes.items():
        if "/query/" in path:
            shapes[path.replace("query", "qkv_proj")] = (*shape[:-2], H + 2 * G, K)
        elif not re.search("/(key|value)/", path):
            shapes[path] = shape

    def attend(params, i, x):
        layers = at(params, "params/decoder" + ("/layers" if scan else ""))
        layer = (
            jax.tree.map(lambda leaf: jnp.take(leaf, i, axis=1), layers)
            if scan
            else layers[f"layers_{i}"]
        )
        qkv = dense(layer["self_attention"]["qkv_proj"], x)
        query, key, value = jnp.split(qkv, [H, H + G], axis=1)
        key, value = (jnp.repeat(array, H // G, axis=1) for array in (key, value))
        return query, key, jnp.tensordot(value, layer["self_attention"]["out"]["kernel"], 2)

    given = {"num_heads": H, "num_kv_heads": G}
    return dataclasses.replace(case, shapes=shapes, attend=attend, given=given)


@pytest.mark.parametrize(("scan", "layout"), [(True, "d l (h+2g) k"), (False, "d (h+2g) k")])
def test_a_rule_for_heads_fused_along_an_axis_that_is_not_sharded(scan, layout):
    case = maxtext_fused(4, 2, 16, scan)
    qkv = ("query", "key", "value")
    rules = (mimetic_jax.Rule("(?<=self_attention/)qkv_proj/kernel", qkv, layout), *case.rules)
    new = case.rewrite(case.params(), Mimetic(), rules)
    for ours, theirs in zip(products(case, new, 1), drawn(case, Mimetic(), 1), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("rules", [zoo.MAXTEXT, zoo.MAXTEXT_GPT3])
@pytest.mark.parametrize("scan", [True, False])
def test_heads_fused_along_one_axis_are_an_error(rules, scan):
    """`fused_qkv`: H + 2 G heads, in an order that depends on the mesh."""
    case = maxtext_fused(4, 1, 8, scan)
    with pytest.raises(InputError, match=r"no rule describes|matches nothing|doesn't fit layout"):
        case.rewrite(case.params(), Mimetic(), rules)


def test_logits_that_maxtext_does_not_divide():
    """The constants in the table's docstring compensate for that."""
    case, K = CASES["maxtext"], 16
    scaled = Mimetic(alpha_qk=0.7 / K**0.5, beta_qk=0.7 / K**0.5)
    logits, _ = products(case, case.rewrite(case.params(), scaled), 0)
    usual, _ = drawn(case, Mimetic(), 0)
    np.testing.assert_allclose(logits, usual / K**0.5, atol=1e-5)


@every_zoo
def test_detect_names_a_table_that_describes_the_same(case):
    """Of tables that describe the same leaves in the same way any will do."""
    params = case.params()
    found = zoo.TABLES[zoo.detect(params)]
    writes = [
        {
            (w.path, w.role, w.layout)
            for w in mimetic_jax.plan(params, Mimetic(), rules=rules, **case.given)
        }
        for rules in (found, case.rules)
    ]
    assert writes[0] == writes[1]


def test_whisper_leaves_its_cross_attention():
    case = CASES["hugging_face_whisper"]
    plan = mimetic_jax.plan(case.params(), Mimetic(), rules=case.rules, **case.given)
    assert "model/decoder/layers/0/encoder_attn/q_proj/kernel" in plan.untouched
