"""Every table's trees: found by their names, rewritten, then used as the models use them.

A case says how its library multiplies: `einsum` of tokens with a stored array, as in the library's
source, and the order of query, key and value where they share an array. A table that misreads an
orientation gives other products than the scheme drew.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mimetic_jax
from mimetic_jax import InputError, Rule, block_key, zoo
from mimetic_jax.schemes import Block, Context, Mimetic, Scheme, SinCos
from tests import products

KEY = jax.random.key(5)
D, F, N, L, V = 32, 48, 17, 2, 11
SCHEME = Mimetic(alpha_vo=0.1, beta_vo=(-0.4, 0.4))

# By the names of axes: t tokens, d width, h and g heads, k their width, q and p the flattened heads
# of query and key, w all flattened heads, m all heads, s three, c two, l layers, f hidden width.
FLAT = ("td,dq->tq", "td,dp->tp", "td,dp->tp", "tq,qd->td")
OUT_FIRST = ("td,qd->tq", "td,pd->tp", "td,pd->tp", "tq,dq->td")
HEADS = ("td,dhk->thk", "td,dgk->tgk", "td,dgk->tgk", "thk,hkd->td")
STACKED = ("td,ldhk->thk", "td,ldgk->tgk", "td,ldgk->tgk", "thk,lhkd->td")
SCANNED = ("td,dlhk->thk", "td,dlgk->tgk", "td,dlgk->tgk", "thk,hlkd->td")


def layers(names: str, forms: tuple[str, ...], leaf: str = "kernel") -> dict[str, str]:
    """How the leaves of layers multiply."""
    return {f"{name}/{leaf}": form for name, form in zip(names.split(), forms, strict=True)}


@dataclasses.dataclass(frozen=True)
class Case:
    """The tree of a model.

    Attributes:
        table: the name of the table that must be found.
        block: the path of an attention layer, {} for the number of the layer.
        attention: its leaves and how they multiply, in the order query, key, value, out.
        mlp: the first and the second layer's, by their whole path.
        position: path and axes of the position table.
        others: paths and shapes of leaves that must stay.
        bias: the name of biases of attention and MLP.
        undivided: whether the model doesn't divide logits by √K.
        dots: whether names are flat, as PyTorch's.
    """

    table: str
    block: str
    attention: dict[str, str]
    _: dataclasses.KW_ONLY
    H: int = 4
    G: int = 4
    K: int = 8
    mlp: dict[str, str] = dataclasses.field(default_factory=dict)
    position: tuple[str, str] | None = None
    others: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    bias: str = ""
    undivided: bool = False
    heads_inside: bool = False
    dots: bool = False

    @property
    def sizes(self) -> dict[str, int]:
        H, G, K = self.H, self.G, self.K
        joint = {"q": H * K, "p": G * K, "w": (H + 2 * G) * K, "m": H + 2 * G}
        return {"d": D, "h": H, "g": G, "k": K, "l": L, "s": 3, "c": 2, "f": F, "n": N} | joint

    def shape(self, axes: str) -> tuple[int, ...]:
        return tuple(1 if axis == "1" else self.sizes[axis] for axis in axes)

    @property
    def stacked(self) -> bool:
        return any("l" in form for form in self.attention.values())

    @property
    def numbers(self) -> dict[str, int]:
        flattened = any(set("qpwm") & set(form) for form in self.attention.values())
        return {"num_heads": self.H, "num_kv_heads": self.G} if flattened else {}

    def kernels(self) -> dict[str, str]:
        """Paths of all layers' kernels, {} for the number, and how they multiply."""
        return {f"{self.block}/{name}": form for name, form in self.attention.items()} | self.mlp

    def bias_of(self, path: str, form: str) -> tuple[str, str]:
        """The path and axes of a layer's bias."""
        (_, stored), result = form.split("->")[0].split(","), form.split("->")[1]
        axes = list(result.replace("t", ""))
        if "l" in stored:
            axes.insert(stored.index("l"), "l")
        return f"{path.rsplit('/', 1)[0]}/{self.bias}", "".join(axes)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        found = {}
        for path, form in self.kernels().items():
            leaves = {path: form.split("->")[0].split(",")[1]}
            leaves |= dict([self.bias_of(path, form)]) if self.bias else {}
            for name, axes in leaves.items():
                for layer in range(L):
                    found[name.format(layer)] = self.shape(axes)
        if self.position:
            found[self.position[0]] = self.shape(self.position[1])
        return found | {p.format(i): shape for p, shape in self.others.items() for i in range(L)}

    def params(self):
        rng = np.random.default_rng(0)
        leaves = {path: rng.normal(size=s).astype(np.float32) for path, s in self.shapes().items()}
        return flat_names(leaves) if self.dots else nested(leaves)

    def path(self, name: str) -> str:
        return name.replace("/", ".") if self.dots else name

    def apply(self, leaves, path, form, layer, x):
        """What a layer gives for x."""
        operands, result = form.split("->")
        given, stored = operands.split(",")
        kernel = leaves[self.path(path.format(layer))]
        bias, axes = self.bias_of(path, form)
        added = leaves[self.path(bias.format(layer))] if self.bias else 0
        if "l" in stored:
            kernel = np.take(kernel, layer, stored.index("l"))
            added = np.take(added, layer, axes.index("l")) if self.bias else 0
            stored = stored.replace("l", "")
        y = np.einsum(f"{given},{stored}->{result}", x, kernel)
        if self.bias and result[0] == "s":  # [3, T, H, K]
            added = added[:, None]
        return y + added

    def heads_of(self, y, result) -> list[np.ndarray]:
        """The parts of what a layer gives, [T, heads, K] each."""
        H, G, K = self.H, self.G, self.K
        if result[0] in "sc":
            return list(y)
        if "s" in result:
            return list(np.moveaxis(y, result.index("s"), 0))
        if result == "tw" and self.heads_inside:
            return list(np.moveaxis(y.reshape(len(y), H, 3, K), 2, 0))
        if result in ("tw", "tm", "tmk"):
            return np.split(y.reshape(len(y), -1, K), [H, H + G], axis=1)
        return [y.reshape(len(y), -1, K)]

    def products(self, leaves, layer):
        """W_Q W_Kᵀ of each head as logits see it, and the value → out map."""
        parts = []
        for name, form in self.attention.items():
            path = f"{self.block}/{name}"
            if form.endswith("->td"):
                out = path, form
            else:
                y = self.apply(leaves, path, form, layer, np.eye(D))
                parts += self.heads_of(y, form.split("->")[1])
        query, key, value = parts
        key, value = (array.repeat(self.H // self.G, 1) for array in (key, value))
        query = query * self.K**0.5 if self.undivided else query
        value = value.reshape(D, -1) if out[1].startswith("tq") else value
        return np.einsum("ihk,jhk->hij", query, key), self.apply(leaves, *out, layer, value)

    def drawn(self, layer):
        """The same products of the scheme's own draw for that block's key."""
        H, G, K = self.H, self.G, self.K
        shapes = {"query": (D, H, K), "key": (D, G, K), "value": (D, G, K), "out": (H, K, D)}
        block = Block.of({role: jnp.zeros(shape) for role, shape in shapes.items()})
        key = block_key(KEY, self.path(self.block.format(layer)), layer if self.stacked else None)
        new = SCHEME(key, block, Context(layer, L))
        value_out = products.value_out(new["value"], new["out"]).sum(axis=0)
        return products.query_key(new["query"], new["key"]), value_out

    def assert_drawn(self, leaves, layer, atol=2e-5):
        for ours, theirs in zip(self.products(leaves, layer), self.drawn(layer), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=atol)


def leaves_of(params) -> dict[str, np.ndarray]:
    return dict(mimetic_jax.tree.paths.flatten(params)[0])


def without(shapes: str, prefix: str = "", square: tuple[int, ...] = (D, D)):
    """Leaves that must stay."""
    return {f"{prefix}{name}": square for name in shapes.split()}


QKVO = "q_proj k_proj v_proj o_proj"
STOCK = "query key value out"
TEXT = {"lm_head/kernel": (D, V)}
GATED = without("mlp/gate_proj/kernel mlp/up_proj/kernel", "model/layers/{}/", (D, F))


def in_out(first: str, second: str, leaf: str = "kernel", stack: str = "") -> dict[str, str]:
    return {f"{first}/{leaf}": f"td,{stack}df->tf", f"{second}/{leaf}": f"tf,{stack}fd->td"}


def out_in(first: str, second: str, leaf: str = "weight") -> dict[str, str]:
    return {f"{first}/{leaf}": "td,fd->tf", f"{second}/{leaf}": "tf,df->td"}


def vit_jax(attention="MultiHeadDotProductAttention_0", mlp="MlpBlock_0") -> Case:
    layer = "Transformer/encoderblock_{}"
    return Case(
        "BIG_VISION",
        layer,
        layers(" ".join(f"{attention}/{name}" for name in STOCK.split()), HEADS),
        mlp=in_out(f"{layer}/{mlp}/Dense_0", f"{layer}/{mlp}/Dense_1"),
        position=("Transformer/posembed_input/pos_embedding", "1nd"),
        others={"head/kernel": (D, V)},
        bias="bias",
    )


def big_vision(prefix="") -> Case:
    layer, attention = f"{prefix}Transformer/encoderblock", "MultiHeadDotProductAttention_0"
    pool = f"{prefix}MAPHead_0/{attention}/"
    return Case(
        "BIG_VISION",
        layer,
        layers(" ".join(f"{attention}/{name}" for name in STOCK.split()), STACKED),
        mlp=in_out(f"{layer}/MlpBlock_0/Dense_0", f"{layer}/MlpBlock_0/Dense_1", stack="l"),
        position=(f"{prefix}pos_embedding", "1nd"),
        others=without("query/kernel key/kernel value/kernel", pool, (D, 4, 8)),
        bias="bias",
    )


def gemma(form="", **sizes) -> Case:
    """gemma's own, and big_vision's without scan ("/") and with ("l")."""
    layer = {"": "layer_{}", "/": "llm/layers/{}", "l": "llm/layers"}[form]
    stack = form.strip("/")
    grouped = {
        "attn/q_einsum/w": f"td,{stack}hdk->thk",
        "attn/kv_einsum/w": f"td,{stack}cgdk->ctgk",
    }
    fused = {"attn/qkv_einsum/w": f"td,{stack}shdk->sthk"}
    attention = grouped if "G" in sizes else fused
    attention |= {"attn/attn_vec_einsum/w": f"thk,{stack}hkd->td"}
    return Case(
        "GEMMA",
        layer,
        attention,
        others={"embedder/input_embedding": (V, D), f"{layer}/mlp/gating_einsum": (2, D, F)},
        **sizes,
    )


def maxtext(table="MAXTEXT_LLAMA", stack="layers", module="self_attention", **options) -> Case:
    """MaxText's Llama, or another model by its marks; scanned, if no number is in `stack`."""
    layer = f"params/decoder/{stack}"
    scanned = "{}" not in stack
    marks = {
        "MAXTEXT_LLAMA": {f"{layer}/mlp/wi_0/kernel": (D, L, F)},
        "MAXTEXT": {f"{layer}/{module}/query_norm/scale": (8, L)},
    }
    return Case(
        table,
        f"{layer}/{module}",
        layers(STOCK, SCANNED if scanned else HEADS),
        position=("params/decoder/position_embedder/embedding", "nd"),
        others=marks[table] | {f"{layer}/mlp/wo/kernel": (F, L, D)},
        undivided=table == "MAXTEXT_LLAMA",
        **options,
    )


def gpt3(stack="layers") -> Case:
    layer = f"params/decoder/{stack}"
    axis = "" if "{}" in stack else "l"
    return Case(
        "MAXTEXT_GPT3",
        f"{layer}/self_attention",
        {"qkv_proj/kernel": f"td,d{axis}shk->tshk", "out/kernel": f"thk,h{axis}kd->td"},
        mlp={
            f"{layer}/mlp/wi/kernel": f"td,d{axis}f->tf",
            f"{layer}/mlp/wo/kernel": f"tf,f{axis}d->td",
        },
        position=("params/decoder/position_embedder/embedding", "nd"),
        bias="bias",
    )


def axlearn(layer="layer{}", fused="", **options) -> Case:
    """axlearn's transformers, with layers of their own or repeated."""
    layer = f"decoder/transformer/{layer}"
    axis = "" if "{}" in layer else "l"
    separate = (f"td,{axis}dhk->thk", f"td,{axis}dgk->tgk", f"td,{axis}dgk->tgk")
    attention = (
        {"i_proj/qkv_proj/weight": fused.replace("l", axis)}
        if fused
        else layers(
            "i_proj/i_proj/q_proj i_proj/i_proj/k_proj i_proj/i_proj/v_proj", separate, "weight"
        )
    )
    return Case(
        "AXLEARN_GROUPED" if "m" in fused else "AXLEARN",
        f"{layer}/self_attention/attention",
        attention | {"o_proj/weight": f"thk,{axis}dhk->td"},
        mlp=in_out(
            f"{layer}/feed_forward/linear1", f"{layer}/feed_forward/linear2", "weight", axis
        ),
        others={f"{layer}/cross_attention/attention/o_proj/weight": (D, 4, 8)},
        bias="bias",
        **options,
    )


def hugging_face(block, names, forms=FLAT, **options) -> Case:
    return Case("HUGGING_FACE", block, layers(names, forms), **options)


def pytorch(block, attention, table="PYTORCH", **options) -> Case:
    return Case(table, block, attention, **{"dots": True} | options)


def torch_layers(names) -> dict[str, str]:
    return layers(names, OUT_FIRST, "weight")


def fused(layer, out, leaf="weight") -> dict[str, str]:
    return {f"{layer}/{leaf}" if leaf else layer: "td,wd->tw", f"{out}/weight": "tq,dq->td"}


T5 = " ".join(f"layer/0/SelfAttention/{letter}" for letter in "qkvo")
BERT = "attention/self/query attention/self/key attention/self/value attention/output/dense"
QKV_OUT = "q_proj k_proj v_proj out_proj"
BERT_LAYER, OPT_LAYER = "bert/encoder/layer/{}", "model/decoder/layers/{}"
GROUPED = {"G": 2}
WIDE = {"G": 2, "K": 16}

CASES = {
    "vit_jax": vit_jax(),
    "vit_jax_before_linen": vit_jax("MultiHeadDotProductAttention_1", "MlpBlock_3"),
    "big_vision": big_vision(),
    "big_vision_two_towers": big_vision("img/"),
    "flax_vit": hugging_face(
        "vit/encoder/layer/{}",
        BERT.replace("self", "attention"),
        mlp=in_out("vit/encoder/layer/{}/intermediate/dense", "vit/encoder/layer/{}/output/dense"),
        position=("vit/embeddings/position_embeddings", "1nd"),
        others={"vit/pooler/dense/kernel": (D, D)},
        bias="bias",
    ),
    "flax_bert": hugging_face(
        BERT_LAYER,
        BERT,
        mlp=in_out(f"{BERT_LAYER}/intermediate/dense", f"{BERT_LAYER}/output/dense"),
        position=("bert/embeddings/position_embeddings/embedding", "nd"),
        others=without("self/query/kernel output/dense/kernel", f"{BERT_LAYER}/crossattention/"),
        bias="bias",
    ),
    "bonsai_umt5": hugging_face(
        "encoder/block/{}",
        T5,
        others=without("q/kernel k/kernel", "decoder/block/{}/layer/1/EncDecAttention/"),
        undivided=True,
        K=16,
    ),
    "bonsai_dinov3": hugging_face("layer/{}/attention", QKVO, bias="bias"),
    "bonsai_gemma3": hugging_face(
        "language_model/layers/{}/self_attn",
        QKVO,
        others=without("q_proj/kernel", "vision_tower/encoder/layers/{}/self_attn/", (F, F)),
        **WIDE,
    ),
    "bonsai_qwen3_vl": hugging_face(
        "model/language_model/layers/{}/self_attn",
        QKVO,
        others={"model/visual/blocks/{}/attn/qkv/kernel": (F, 3 * F)},
        **WIDE,
    ),
    "bonsai_llada": hugging_face(
        "blocks/{}",
        "q_proj k_proj v_proj attn_out",
        others={"blocks/{}/ff_proj/kernel": (D, F)},
        **GROUPED,
    ),
    "bonsai_vjepa2": hugging_face(
        "vjepa2/encoder/layer/{}",
        "attention/query attention/key attention/value attention/proj",
        mlp=in_out("vjepa2/encoder/layer/{}/mlp/fc1", "vjepa2/encoder/layer/{}/mlp/fc2"),
        others=without("query/kernel proj/kernel", "vjepa2/predictor/layer/{}/attention/", (F, F))
        | without("q_proj/kernel", "pooler/self_attention_layers/{}/self_attn/"),
        bias="bias",
    ),
    "easydel_phi3": Case(
        "HUGGING_FACE",
        "model/layers/{}/self_attn",
        layers("qkv_proj o_proj", ("td,dw->tw", "tq,qd->td")),
        others={"model/layers/{}/mlp/gate_up_proj/kernel": (D, F)},
        **WIDE,
    ),
    "easydel_gpt_neox": hugging_face(
        "gpt_neox/layers/{}",
        "attention/query_key_value attention/dense",
        ("td,dw->tw", "tq,qd->td"),
        mlp=in_out("gpt_neox/layers/{}/mlp/dense_h_to_4h", "gpt_neox/layers/{}/mlp/dense_4h_to_h"),
        bias="bias",
    ),
    "easydel_phi": hugging_face(
        "model/layers/{}/self_attn",
        "q_proj k_proj v_proj dense",
        mlp=in_out("model/layers/{}/mlp/fc1", "model/layers/{}/mlp/fc2"),
        bias="bias",
        **GROUPED,
    ),
    "flax_gpt2": Case(
        "HUGGING_FACE_GPT2",
        "transformer/h/{}",
        layers("attn/c_attn attn/c_proj", ("td,wd->tw", "tq,dq->td")),
        mlp=out_in("transformer/h/{}/mlp/c_fc", "transformer/h/{}/mlp/c_proj", "kernel"),
        position=("transformer/wpe/embedding", "nd"),
        bias="bias",
    ),
    "flax_nanogpt": Case(
        "NANOGPT",
        "{}",
        layers("attn/c_attn attn/c_proj", ("td,dw->tw", "tq,qd->td")),
        mlp=in_out("{}/mlp/c_fc", "{}/mlp/c_proj"),
        position=("wpe/embedding", "nd"),
        bias="bias",
    ),
    "easylm": Case(
        "EASYLM_LLAMA",
        "transformer/h/{}",
        layers("attention/wq attention/wk attention/wv attention/wo", FLAT),
        others=TEXT,
    ),
    "diffusers_unet": Case(
        "DIFFUSERS_UNET",
        "down_blocks_{}/attentions_0/transformer_blocks_0/attn1",
        layers("to_q to_k to_v to_out_0", FLAT),
        others=without(
            "to_q/kernel to_k/kernel", "down_blocks_{}/attentions_0/transformer_blocks_0/attn2/"
        ),
    ),
    "bonsai_qwen3": Case(
        "BONSAI",
        "layers/{}",
        layers(" ".join(f"attn/{name}" for name in QKVO.split()), HEADS),
        others={"layers/{}/mlp/gate_proj/kernel": (D, F)},
        **WIDE,
    ),
    "bonsai_vit": Case(
        "BONSAI",
        "layers/{}/attention",
        layers(STOCK, HEADS),
        mlp=in_out("layers/{}/linear1", "layers/{}/linear2"),
        position=("pos_embeddings/pos_embeddings", "1nd"),
        others={"classifier/kernel": (D, V)},
        bias="bias",
    ),
    "bonsai_whisper": Case(
        "BONSAI",
        "decoder/layers/{}/self_attn",
        layers(STOCK, HEADS),
        mlp=in_out("decoder/layers/{}/fc1", "decoder/layers/{}/fc2"),
        position=("decoder/embed_positions/embedding", "nd"),
        others=without("query/kernel", "decoder/layers/{}/encoder_attn/", (D, 4, 8)),
        bias="bias",
    ),
    "tunix_llama": Case(
        "TUNIX",
        "layers/{}",
        layers(" ".join(f"attn/{name}" for name in QKVO.split()), HEADS, "w"),
        others={"layers/{}/mlp/gate_proj/kernel": (D, F), "lm_head/w": (D, V)},
        **WIDE,
    ),
    "equinox": Case(
        "EQUINOX",
        "blocks/{}/attention",
        layers("query_proj key_proj value_proj output_proj", OUT_FIRST, "weight"),
        others={"blocks/{}/mlp/layers/0/weight": (F, D)},
        bias="bias",
        K=20,
    ),
    "haiku": Case(
        "HAIKU",
        "transformer/~/multi_head_attention_{}",
        layers("query key value linear", FLAT, "w"),
        others={"transformer/~/linear_1/w": (D, F)},
        bias="b",
        K=20,
    ),
    "keras": Case(
        "KERAS",
        "functional/multi_head_attention_{}",
        layers("query key value attention_output", HEADS),
        others={"functional/dense/kernel": (D, F)},
        bias="bias",
        **WIDE,
    ),
    "gemma": gemma(),
    "gemma_grouped": gemma(**WIDE),
    "big_vision_gemma": gemma("/", **WIDE),
    "big_vision_gemma_scan": gemma("l", G=1, K=16),
    "maxtext_llama": maxtext(),
    "maxtext_llama_grouped": maxtext(**WIDE),
    "maxtext_llama_no_scan": maxtext(stack="layers_{}", **WIDE),
    "maxtext_gemma2": maxtext(module="self_attention_local"),
    "maxtext_qwen2": dataclasses.replace(
        maxtext(**WIDE), table="MAXTEXT", undivided=False, bias="bias"
    ),
    "maxtext_qwen3": maxtext("MAXTEXT", **WIDE),
    "maxtext_qwen3_no_scan": maxtext("MAXTEXT", stack="layers_{}"),
    "maxtext_gemma3": maxtext("MAXTEXT", stack="layers/layers_1"),
    "maxtext_gpt3": gpt3(),
    "maxtext_gpt3_no_scan": gpt3("layers_{}"),
    "axlearn": axlearn(),
    "axlearn_grouped": axlearn(**WIDE),
    "axlearn_repeat": axlearn("repeat/layer"),
    "axlearn_fused": axlearn(fused="td,sdhk->sthk"),
    "axlearn_repeat_fused": axlearn("repeat/layer", fused="td,lsdhk->sthk"),
    "axlearn_repeat_fused_grouped": axlearn("repeat/layer", fused="td,ldmk->tmk", **WIDE),
    "timm": pytorch(
        "blocks/{}",
        fused("attn/qkv", "attn/proj"),
        mlp=out_in("blocks/{}/mlp/fc1", "blocks/{}/mlp/fc2"),
        position=("pos_embed", "1nd"),
        bias="bias",
    ),
    "equimo": pytorch(
        "blocks/0/blocks/{}",
        fused("attn/qkv", "attn/proj"),
        mlp=out_in("blocks/0/blocks/{}/mlp/fc1", "blocks/0/blocks/{}/mlp/fc2"),
        position=("global_pos_embed/weight", "nd"),
        bias="bias",
        dots=False,
    ),
    "torch_decoder": pytorch(
        "layers/{}/self_attn",
        fused("in_proj_weight", "out_proj", ""),
        mlp=out_in("layers/{}/linear1", "layers/{}/linear2"),
        others={"layers/{}/multihead_attn/in_proj_weight": (3 * D, D)},
    ),
    "torchvision": pytorch(
        "encoder/layers/encoder_layer_{}/self_attention",
        fused("in_proj_weight", "out_proj", ""),
        position=("encoder/pos_embedding", "1nd"),
    ),
    "llama": pytorch("model/layers/{}/self_attn", torch_layers(QKVO), **WIDE),
    "phi3": pytorch("model/layers/{}/self_attn", fused("qkv_proj", "o_proj"), **WIDE),
    "modernbert": pytorch("layers/{}/attn", fused("Wqkv", "Wo")),
    "vit_of_transformers_5": pytorch("vit/layers/{}/attention", torch_layers(QKVO), bias="bias"),
    "whisper": pytorch(
        "decoder/layers/{}/self_attn",
        torch_layers(QKV_OUT),
        mlp=out_in("decoder/layers/{}/fc1", "decoder/layers/{}/fc2"),
        position=("decoder/embed_positions/weight", "nd"),
        others=without("q_proj/weight k_proj/weight", "decoder/layers/{}/encoder_attn/"),
    ),
    "clip": pytorch(
        "text_model/encoder/layers/{}/self_attn",
        torch_layers(QKV_OUT),
        others=without("q_proj/weight", "vision_model/encoder/layers/{}/self_attn/"),
        position=("text_model/embeddings/position_embedding/weight", "nd"),
    ),
    "bert": pytorch(
        "encoder/layer/{}",
        torch_layers(BERT),
        mlp=out_in("encoder/layer/{}/intermediate/dense", "encoder/layer/{}/output/dense"),
        others=without("self/query/weight output/dense/weight", "encoder/layer/{}/crossattention/"),
        bias="bias",
    ),
    "distilbert": pytorch(
        "layer/{}",
        torch_layers("attention/q_lin attention/k_lin attention/v_lin attention/out_lin"),
    ),
    "gpt_neo": pytorch(
        "h/{}",
        torch_layers(" ".join(f"attn/attention/{name}" for name in QKV_OUT.split())),
        undivided=True,
    ),
    "gpt_neox": pytorch(
        "layers/{}",
        fused("attention/query_key_value", "attention/dense"),
        heads_inside=True,
        bias="bias",
    ),
    "t5": pytorch(
        "encoder/block/{}",
        torch_layers(T5),
        mlp=out_in(
            "encoder/block/{}/layer/1/DenseReluDense/wi",
            "encoder/block/{}/layer/1/DenseReluDense/wo",
        ),
        others=without("q/weight o/weight", "decoder/block/{}/layer/1/EncDecAttention/"),
        undivided=True,
        K=16,
    ),
    "jamba": pytorch(
        "layers/{}/self_attn",
        torch_layers(QKVO),
        others={"layers/9/mamba/in_proj/weight": (F, D)},
        **WIDE,
    ),
    "gpt2": pytorch(
        "h/{}",
        layers("attn/c_attn attn/c_proj", ("td,dw->tw", "tq,qd->td"), "weight"),
        "PYTORCH_GPT2",
        mlp=in_out("h/{}/mlp/c_fc", "h/{}/mlp/c_proj", "weight"),
        position=("wpe/weight", "nd"),
        others=without("c_attn/weight", "h/{}/crossattention/"),
        bias="bias",
    ),
    "nanogpt": pytorch(
        "transformer/h/{}",
        fused("attn/c_attn", "attn/c_proj"),
        "PYTORCH_NANOGPT",
        mlp=out_in("transformer/h/{}/mlp/c_fc", "transformer/h/{}/mlp/c_proj"),
        position=("transformer/wpe/weight", "nd"),
    ),
}

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


@every_case
def test_the_model_computes_with_what_the_scheme_drew_and_the_rest_stays(case):
    before = case.params()
    plan = mimetic_jax.plan(before, SCHEME, **case.numbers)
    assert plan.table == case.table
    attention = {f"{case.block}/{name}": form for name, form in case.attention.items()}
    expected = set(attention)
    if case.bias:
        expected |= {case.bias_of(path, form)[0] for path, form in attention.items()}
    planned = {write.path for write in plan}
    assert planned == {case.path(path.format(i)) for path in expected for i in range(L)}
    new = mimetic_jax.rewrite(KEY, before, SCHEME, **case.numbers)
    assert [np.sign(layer.value_out) for layer in mimetic_jax.check(new, **case.numbers)] == [-1, 1]
    after = leaves_of(new)
    for path, leaf in leaves_of(before).items():
        assert np.array_equal(leaf, after[path]) == (path not in planned), path
    for layer in range(L):
        case.assert_drawn(after, layer)


@dataclasses.dataclass(frozen=True)
class Numbered(Scheme):
    """Writes arrays whose every entry differs."""

    by_depth = True
    roles: frozenset[str]

    def writes(self, roles):
        return roles & self.roles

    def draw(self, key, block, context):
        return {
            role: numbered(block.shapes[role]) + 0.5 * context.layer
            for role in self.writes(frozenset(block))
        }


def numbered(shape):
    return jnp.arange(math.prod(shape), dtype=jnp.float32).reshape(shape)


@every_case
def test_mlps_and_positions(case):
    params = case.params()
    mlp = Numbered(frozenset({"mlp_in", "mlp_in_bias", "mlp_out", "mlp_out_bias"}))
    if case.mlp:
        new = leaves_of(mimetic_jax.rewrite(KEY, params, mlp, **case.numbers))
        for i in range(L):
            for (path, form), width, outputs in zip(case.mlp.items(), (D, F), (F, D), strict=True):
                y = case.apply(new, path, form, i, np.eye(width))
                bias = numbered((outputs,)) + 0.5 * i if case.bias else 0
                np.testing.assert_allclose(y, numbered((width, outputs)) + 0.5 * i + bias)
    else:
        with pytest.raises(InputError, match=r"matches nothing|no leaf beside it"):
            mimetic_jax.rewrite(KEY, params, mlp, **case.numbers)
    if case.position:
        new = mimetic_jax.rewrite(KEY, params, Numbered(frozenset({"position"})), **case.numbers)
        table = leaves_of(new)[case.path(case.position[0])]
        np.testing.assert_array_equal(table.reshape(N, D), numbered((N, D)))
    else:
        with pytest.raises(InputError, match="matches nothing"):
            mimetic_jax.rewrite(KEY, params, SinCos(), **case.numbers)


def test_a_dtype_of_fewer_digits_keeps_the_products():
    case = CASES["gpt_neo"]
    params = {name: jnp.asarray(leaf, jnp.bfloat16) for name, leaf in case.params().items()}
    new = mimetic_jax.rewrite(KEY, params, SCHEME, **case.numbers)
    assert {leaf.dtype for leaf in new.values()} == {jnp.dtype(jnp.bfloat16)}
    case.assert_drawn({name: np.asarray(leaf, float) for name, leaf in new.items()}, 1, 0.03)


def test_two_position_tables_are_an_error_for_images():
    tree = big_vision("img/").params() | big_vision("txt/").params()
    with pytest.raises(InputError, match="aren't a square grid"):
        mimetic_jax.rewrite(KEY, tree, SinCos())
    image = tree["img"] | {"embedding": {"kernel": jnp.ones((4, 4, 3, D))}}
    new = mimetic_jax.rewrite(KEY, image, SinCos())
    assert float(jnp.abs(new["pos_embedding"]).max()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("cases", "rules"),
    [
        # PaliGemma, and Gemma 2 with two attentions a layer.
        ((big_vision("img/"), gemma("l", **WIDE)), (*zoo.GEMMA, *zoo.BIG_VISION)),
        ([maxtext(module=f"self_attention_{kind}") for kind in ("local", "global")], None),
    ],
)
def test_two_kinds_of_attention(cases, rules):
    tree = {}
    for case in cases:
        tree |= leaves_of(case.params())
    new = leaves_of(mimetic_jax.rewrite(KEY, nested(tree), SCHEME, rules=rules))
    for case in cases:
        case.assert_drawn(new, 1)


def test_another_scan_axis_of_maxtext_is_an_error():
    leaves = leaves_of(maxtext().params())
    moved = {path: np.moveaxis(x, 1, 0) if x.ndim == 4 else x for path, x in leaves.items()}
    with pytest.raises(InputError, match="different heads by their layouts"):
        mimetic_jax.rewrite(KEY, nested(moved), SCHEME)


@pytest.mark.parametrize("stack", ["layers", "layers_{}"])
def test_maxtext_with_heads_fused_along_one_axis_needs_a_rule(stack):
    """`fused_qkv` of models other than GPT-3: the order depends on the mesh."""
    axis = "" if "{}" in stack else "l"
    attention = {"qkv_proj/kernel": f"td,d{axis}mk->tmk", "out/kernel": f"thk,h{axis}kd->td"}
    case = dataclasses.replace(maxtext(stack=stack, **WIDE), attention=attention)
    params = case.params()
    with pytest.raises(InputError, match=r"no rule describes"):
        mimetic_jax.rewrite(KEY, params, SCHEME)
    layout = " ".join(f"d {axis} (h+2g) k".split())
    qkv = ("query", "key", "value")
    path = "(?<=self_attention/)qkv_proj/kernel"
    rules = (Rule(path, qkv, layout, undivided=True), *zoo.MAXTEXT_LLAMA)
    numbers = {"num_heads": case.H, "num_kv_heads": case.G}
    new = leaves_of(mimetic_jax.rewrite(KEY, params, SCHEME, rules=rules, **numbers))
    case.assert_drawn(new, 1)


@pytest.mark.parametrize("stack", ["layers", "layers/layers_0"])
def test_maxtexts_attention_without_its_mlp_is_asked_for(stack):
    """Whether logits are divided by √K is read off the leaves beside it."""
    params = dataclasses.replace(maxtext(stack=stack), others={}).params()
    with pytest.raises(InputError, match=r"zoo\.MAXTEXT_?\w* and zoo\.MAXTEXT") as asked:
        mimetic_jax.plan(params, SCHEME)
    assert "give rules=zoo.MAXTEXT" in str(asked.value)
    assert "\n" not in str(asked.value)


def test_the_plan_shows_the_factor_of_models_that_do_not_divide_logits():
    for name, shown in (("maxtext_llama", True), ("maxtext_qwen3", False), ("gpt_neo", True)):
        case = CASES[name]
        plan = mimetic_jax.plan(case.params(), SCHEME, **case.numbers)
        layouts = {write.role: write.layout for write in plan}
        assert layouts["query"].endswith(" / √K") == shown
        assert not layouts["key"].endswith("√K")
        assert zoo.NOTES.get(case.table, "") in " ".join(str(plan).split())


def test_windows_show_their_heads():
    """The stages of a Swin have other numbers of heads, which its tables of biases have."""
    tree = {}
    for stage, heads in enumerate((2, 4)):
        width, layer = 8 * heads, f"layers.{stage}.blocks.0.attn."
        tree[f"{layer}relative_position_bias_table"] = np.ones((169, heads), np.float32)
        tree[f"{layer}qkv.weight"] = np.ones((3 * width, width), np.float32)
        tree[f"{layer}proj.weight"] = np.ones((width, width), np.float32)
    new = mimetic_jax.rewrite(KEY, tree, Mimetic())
    for stage, heads in enumerate((2, 4)):
        query, key, _ = np.split(new[f"layers.{stage}.blocks.0.attn.qkv.weight"], 3)
        for q, k in zip(np.split(query, heads), np.split(key, heads), strict=True):
            assert np.einsum("kd,kd->", q, k) / 8 > 0.9


def test_nemotrons_mixers_are_attention_or_state_spaces():
    shapes = {"q_proj": (D, D), "k_proj": (16, D), "v_proj": (16, D), "o_proj": (D, D)}
    attention = {f"backbone.layers.1.mixer.{name}.weight": shapes[name] for name in shapes}
    others = {"in_proj.weight": (2 * F + 12, D), "out_proj.weight": (D, F), "A_log": (4,)}
    tree = attention | {f"backbone.layers.0.mixer.{name}": shape for name, shape in others.items()}
    tree = {path: np.ones(shape, np.float32) for path, shape in tree.items()}
    planned = mimetic_jax.plan(tree, Mimetic(), num_heads=4, num_kv_heads=2)
    assert {write.path for write in planned} == attention.keys()
    assert planned.table == "PYTORCH"


def test_zambas_shared_attention_reads_two_streams():
    """Its value reads [x, x₀] and its output writes x alone: no product with the identity."""
    block = "model.layers.1.shared_transf.self_attn."
    tree = {f"{block}{name}_proj.weight": np.ones((2 * D, 2 * D), np.float32) for name in "qkv"}
    tree[f"{block}o_proj.weight"] = np.ones((D, 2 * D), np.float32)
    with pytest.raises(InputError, match=r"shared_transf.* have no square product"):
        mimetic_jax.rewrite(KEY, tree, Mimetic(), num_heads=4)


def nested(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dictionaries from paths such as "a/b/c"."""
    tree: dict[str, Any] = {}
    for path, leaf in leaves.items():
        *parents, name = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = leaf
    return tree


def flat_names(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Names as in PyTorch's state dicts."""
    return {path.replace("/", "."): leaf for path, leaf in leaves.items()}


def at(tree: Any, path: str) -> Any:
    """The subtree at a path."""
    for name in path.split("/"):
        tree = tree[name]
    return tree
