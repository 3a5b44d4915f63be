"""Trees of every table by the names in their libraries' code, and how these libraries multiply.

A case gives einsums of tokens with an array of a layer, as in the source, and the order of query,
key and value where they share one. A table that misreads an orientation gives other products than
the scheme drew.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax import block_key
from mimetic_jax.rules import paths
from mimetic_jax.schemes import Block, Context, Mimetic
from tests import products

KEY = jax.random.key(5)
D, F, N, L, V = 32, 48, 17, 2, 11
SCHEME = Mimetic(alpha_vo=0.1, beta_vo=(-0.4, 0.4))

# By the names of axes: t tokens, d width, h and g heads, u heads of a group, k their width, q and p
# the flattened heads of query and key, x those of both, w all flattened heads, m all heads,
# s three, c two, l layers, f hidden width, n positions.
FLAT = ("td,dq->tq", "td,dp->tp", "td,dp->tp", "tq,qd->td")
OUT_FIRST = ("td,qd->tq", "td,pd->tp", "td,pd->tp", "tq,dq->td")
HEADS = ("td,dhk->thk", "td,dgk->tgk", "td,dgk->tgk", "thk,hkd->td")
JOINED = ("td,dw->tw", "tq,qd->td")
JOINED_OUT_FIRST = ("td,wd->tw", "tq,dq->td")


@dataclasses.dataclass(frozen=True)
class Axis:
    name: str
    size: int


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True)
class Haliax:
    """A node with one child and its axes, as haliax.NamedArray."""

    array: jax.Array
    axes: tuple[Axis, ...]

    def tree_flatten(self):
        return (self.array,), self.axes

    @classmethod
    def tree_unflatten(cls, axes, children):
        return cls(*children, axes)

    @classmethod
    def of(cls, array, names):
        return cls(array, tuple(map(Axis, names, array.shape)))


@dataclasses.dataclass(frozen=True)
class Case:
    """The tree of a model. Other paths are those in a layer, or those in the tree after a "/".

    Attributes:
        table: the name of the family that must be found, or "COMMON"; None if axes have names.
        block: the path of attention in a layer, {} for the number of the layer.
        attention: leaves of attention and how they multiply, in the order query, key, value, out.
        layer: the path of the layer, unless it ends with its number.
        mlp: the first and the second layer's.
        norms: paths of gains and scales, with what each multiplies.
        adds: what the model adds to these.
        position: path and axes of the position table.
        others: paths and axes, or shapes, of leaves that must stay.
        bias: the name of biases of attention and MLP.
        axis: along which layers are stacked.
        undivided: whether the model doesn't divide logits by √K.
        heads_inside: whether query, key and value of one head stand beside each other.
        dots: whether names are flat, as PyTorch's.
        node, names: for arrays whose axes have names, what holds them, and the names by letters.
        end: what follows the path of such a node in that of its array.
    """

    table: str | None
    block: str
    attention: dict[str, str]
    _: dataclasses.KW_ONLY
    layer: str = ""
    H: int = 4
    G: int = 4
    K: int = 8
    mlp: dict[str, str] = dataclasses.field(default_factory=dict)
    norms: dict[str, str] = dataclasses.field(default_factory=dict)
    adds: int = 0
    position: tuple[str, str] | None = None
    others: dict[str, str | tuple[int, ...]] = dataclasses.field(default_factory=dict)
    bias: str = ""
    axis: int | None = None
    undivided: bool = False
    heads_inside: bool = False
    dots: bool = False
    node: Any = None
    names: dict[str, str] = dataclasses.field(default_factory=dict)
    end: str = ""

    @property
    def numbers(self) -> dict[str, int]:
        flattened = any(set("qpwxm") & set(form) for form in self.attention.values())
        return {"num_heads": self.H, "num_kv_heads": self.G} if flattened else {}

    def at(self, name: str) -> str:
        layer = self.layer or self.block.partition("}")[0] + "}"
        if name.startswith("/"):
            return name[1:]
        assert name.split("/")[0] not in layer.split("/"), f"/{name} is a path in the tree"
        return f"{layer}/{name}"

    def stacked(self, axes: Iterable[Any]) -> list[Any]:
        """The axes of a leaf with that of layers, if they are stacked."""
        axes = list(axes)
        return axes if self.axis is None else [*axes[: self.axis], "l", *axes[self.axis :]]

    def shape(self, axes: Iterable[str] | tuple[int, ...]) -> tuple[int, ...]:
        H, G, K = self.H, self.G, self.K
        joint = {"q": H * K, "p": G * K, "w": (H + 2 * G) * K, "x": 2 * H * K}
        joint |= {"m": H + 2 * G, "u": H // G}
        sizes = {"1": 1, "d": D, "h": H, "g": G, "k": K, "l": L, "s": 3, "c": 2, "f": F, "n": N}
        return tuple((sizes | joint).get(axis, axis) for axis in axes)

    def attention_kernels(self) -> dict[str, str]:
        """Paths of all layers' kernels, {} for the number, and how they multiply."""
        return {f"{self.block}/{name}": form for name, form in self.attention.items()}

    def mlp_kernels(self) -> dict[str, str]:
        return {self.at(name): form for name, form in self.mlp.items()}

    def kernel_axes(self, form: str) -> list[str]:
        return self.stacked(form.split("->")[0].split(",")[1])

    def bias_of(self, path: str, form: str) -> tuple[str, list[str]]:
        """The path and axes of a layer's bias."""
        axes = self.stacked(form.split("->")[1].replace("t", ""))
        return f"{path.rsplit('/', 1)[0]}/{self.bias}", axes

    def axes(self) -> dict[str, list[Any]]:
        """Those of all but the norms, by paths with slashes."""
        found: dict[str, Any] = {"readout/kernel": [D, V]}
        for path, form in (self.attention_kernels() | self.mlp_kernels()).items():
            found |= dict([self.bias_of(path, form)] if self.bias else [])
            found[path] = self.kernel_axes(form)
        for name, axes in self.others.items():
            found[self.at(name)] = list(axes) if name.startswith("/") else self.stacked(axes)
        found |= dict([self.position] if self.position else [])
        return {path.format(i): axes for path, axes in found.items() for i in range(L)}

    def gains(self, factors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The norms that multiply by factors[place] [L, D], else by 1."""
        found = {}
        for name, place in self.norms.items():
            stored = factors.get(place, np.ones((L, D))) - self.adds
            if name.startswith("/"):
                found[self.at(name)] = stored[0]
            elif self.axis is not None:
                found[self.at(name)] = np.moveaxis(stored, 0, self.axis)
            else:
                found |= {self.at(name).format(i): stored[i] for i in range(L)}
        return found

    def params(self):
        rng = np.random.default_rng(0)
        leaves = {
            path: rng.normal(size=self.shape(axes)).astype(np.float32)
            for path, axes in self.axes().items()
        }
        return self.tree(leaves | self.gains({}))

    def tree(self, leaves: Mapping[str, Any]) -> dict[str, Any]:
        """The model's, of leaves by paths with slashes."""
        if self.dots:
            return {self.path(name): leaf for name, leaf in leaves.items()}
        if self.node:
            axes = self.axes() | {name: self.stacked("d") for name in self.gains({})}
            leaves = {
                f"{name}{self.end.rpartition('/')[0]}": self.node.of(
                    leaf, [self.names.get(axis, f"other_{axis}") for axis in axes[name]]
                )
                for name, leaf in leaves.items()
            }
        return nested(leaves)

    def leaves(self, tree) -> dict[str, np.ndarray]:
        """Those of the tree by paths with slashes."""
        found = leaves_of(tree)
        names = [*self.axes(), *self.gains({})]
        return {name: np.asarray(found[self.path(name)]) for name in names}

    def path(self, name: str) -> str:
        return (name.replace("/", ".") if self.dots else name) + self.end

    def apply(self, leaves, path, form, layer, x):
        """What a layer gives for x."""
        operands, result = form.split("->")
        kernel = leaves[self.path(path.format(layer))]
        bias, _ = self.bias_of(path, form)
        added = leaves[self.path(bias.format(layer))] if self.bias else np.zeros((L, L))
        if self.axis is not None:
            kernel = np.take(kernel, layer, self.axis)
            added = np.take(added, layer, min(self.axis, added.ndim - 1))
        y = np.einsum(f"{operands}->{result}", x, kernel)
        if not self.bias:
            return y
        return y + (added[:, None] if result[0] == "s" else added)  # [3, T, H, K]

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
        if result == "tx":
            return np.split(y.reshape(len(y), -1, K), 2, axis=1)
        return [y.reshape(len(y), -1, K)]

    def products(self, leaves, layer):
        """W_Q W_Kᵀ of each head as logits see it, and the value → out map."""
        parts = []
        for path, form in self.attention_kernels().items():
            if form.endswith("->td"):
                out = path, form
            else:
                y = self.apply(leaves, path, form, layer, np.eye(D))
                parts += self.heads_of(y, form.split("->")[1])
        query, key, value = parts
        key, value = (array.repeat(self.H // self.G, 1) for array in (key, value))
        query = query * self.K**0.5 if self.undivided else query
        value = value.reshape(D, *self.shape(out[1].partition(",")[0][1:]))
        return np.einsum("ihk,jhk->hij", query, key), self.apply(leaves, *out, layer, value)

    def drawn(self, layer):
        """The same products of the scheme's own draw for that block's key."""
        H, G, K = self.H, self.G, self.K
        shapes = {"query": (D, H, K), "key": (D, G, K), "value": (D, G, K), "out": (H, K, D)}
        block = Block.of({role: jnp.zeros(shape) for role, shape in shapes.items()})
        place = self.path(self.block.format(layer)).removesuffix(self.end)
        key = block_key(KEY, place, None if self.axis is None else layer)
        new = SCHEME(key, block, Context(layer, L))
        value_out = products.value_out(new["value"], new["out"]).sum(axis=0)
        return products.query_key(new["query"], new["key"]), value_out

    def assert_drawn(self, leaves, layer, atol=2e-5):
        for ours, theirs in zip(self.products(leaves, layer), self.drawn(layer), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=atol)


def leaves_of(params) -> dict[str, np.ndarray]:
    return dict(paths.flatten(params)[0])


def ones(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    return {path: np.ones(shape, np.float32) for path, shape in shapes.items()}


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


STOCK = ("query", "key", "value", "out")
QKV_OUT = ("q", "k", "v", "out")
GROUPED = {"G": 2}
WIDE = {"G": 2, "K": 16}
BEFORE, AFTER = ("before attention", "before mlp"), ("after attention", "after mlp")
BOTH = ("before both",)


def layers(pattern: str, names: Iterable[str], forms: Iterable[str], leaf="kernel"):
    """How the leaves of layers multiply; a name stands for the * in the pattern."""
    leaf = leaf and f"/{leaf}"
    return {f"{pattern.replace('*', n)}{leaf}": form for n, form in zip(names, forms, strict=True)}


def torch_layers(pattern: str, names: Iterable[str] = "qkvo") -> dict[str, str]:
    return layers(pattern, names, OUT_FIRST, "weight")


def joined(fused: str, out: str, forms=JOINED_OUT_FIRST, leaf="weight") -> dict[str, str]:
    """One layer of query, key and value."""
    return layers("*", (fused, out), forms, leaf)


def in_out(first: str, second: str, leaf="kernel") -> dict[str, str]:
    return layers("*", (first, second), ("td,df->tf", "tf,fd->td"), leaf)


def out_in(first: str, second: str, leaf="weight") -> dict[str, str]:
    return layers("*", (first, second), ("td,fd->tf", "tf,df->td"), leaf)


def norms(names: str, where=BEFORE, leaf="scale", marks=()) -> dict[str, str]:
    """The norms of these names; `marks` are others, which tell where these stand."""
    found = {f"{n}/{leaf}": place for n, place in zip(names.split(), where, strict=True)}
    return found | dict.fromkeys((f"/{mark}/{leaf}" for mark in marks), "")


def gains(names: str, where=BEFORE, marks=()) -> dict[str, str]:
    """The norms of PyTorch."""
    return norms(names, where, "weight", marks)


def without(names: str, prefix="", shape=(D, D)) -> dict[str, tuple[int, ...]]:
    """Leaves that must stay."""
    return {f"{prefix}{name}": shape for name in names.split()}


def scanned(case: Case, layer: str, module="", **changes) -> Case:
    block = f"{layer}/{module}".rstrip("/")
    return dataclasses.replace(case, block=block, layer=layer, axis=0, **changes)


def pytorch(table, block, attention, **options) -> Case:
    return Case(table, block, attention, **{"dots": True} | options)


FLAX = "MultiHeadDotProductAttention"


def vit_jax(attention=f"{FLAX}_0", mlp="MlpBlock_0", second=1) -> Case:
    return Case(
        "BIG_VISION",
        "Transformer/encoderblock_{}",
        layers(f"{attention}/*", STOCK, HEADS),
        mlp=in_out(f"{mlp}/Dense_0", f"{mlp}/Dense_1"),
        norms=norms(f"LayerNorm_0 LayerNorm_{second}"),
        position=("Transformer/posembed_input/pos_embedding", "1nd"),
        bias="bias",
    )


def big_vision(prefix="") -> Case:
    """With scan, and attention pooling."""
    pool = f"/{prefix}MAPHead_0/{FLAX}_0/"
    return scanned(
        vit_jax(),
        f"{prefix}Transformer/encoderblock",
        position=(f"{prefix}pos_embedding", "1nd"),
        others=without("query/kernel key/kernel value/kernel", pool, (D, 4, 8)),
    )


def gemma(layer, **sizes) -> Case:
    """gemma's own, and big_vision's."""
    fused = {"attn/qkv_einsum/w": "td,shdk->sthk"}
    grouped = {"attn/q_einsum/w": "td,hdk->thk", "attn/kv_einsum/w": "td,cgdk->ctgk"}
    names = "pre_attention_norm pre_ffw_norm post_attention_norm post_ffw_norm"
    return Case(
        "GEMMA",
        layer,
        (grouped if sizes else fused) | {"attn/attn_vec_einsum/w": "thk,hkd->td"},
        norms=norms(names, BEFORE + AFTER),
        adds=1,
        others={"mlp/gating_einsum": (2, D, F)},
        **sizes,
    )


def maxtext(layer="layers", table="MAXTEXT_LLAMA", module="self_attention", **options) -> Case:
    """MaxText's Llama, or another model by its marks; scanned, if no number is in `layer`."""
    mlp = {"mlp/wi_0/kernel": (D, F), "mlp/wi_1/kernel": (D, F), "mlp/wo/kernel": (F, D)}
    divided = {} if table == "MAXTEXT_LLAMA" else {f"{module}/query_norm/scale": (8,)}
    stack = {} if "{}" in layer else {"axis": 1}
    given = {
        "block": f"params/decoder/{layer}/{module}",
        "layer": f"params/decoder/{layer}",
        "norms": norms("pre_self_attention_layer_norm post_self_attention_layer_norm"),
        "position": ("params/decoder/position_embedder/embedding", "nd"),
        "undivided": table == "MAXTEXT_LLAMA",
        **stack,
        **options,
        "others": options.get("others", divided) | mlp,
    }
    return Case(table, attention=layers("*", STOCK, HEADS), **given)


LLAMA = "input_layernorm post_attention_layernorm"
WHISPER = "self_attn_layer_norm final_layer_norm"
VIT = "layernorm_before layernorm_after"
GATE = {"mlp/gate_proj/kernel": (D, F)}
T5 = "layer/0/SelfAttention/*"
TIMM = {
    "attention": joined("attn/qkv", "attn/proj"),
    "mlp": out_in("mlp/fc1", "mlp/fc2"),
    "norms": gains("norm1 norm2"),
    "bias": "bias",
}
BERT = (*(f"attention/self/{role}" for role in STOCK[:3]), "attention/output/dense")


def gpt2(table: str, block: str, forms, scale="weight", bias="bias") -> Case:
    leaf, rows = ("kernel", "embedding") if scale == "scale" else ("weight", "weight")
    prefix = block.removesuffix("h/{}").removesuffix("{}")
    return Case(
        table,
        block,
        joined("attn/c_attn", "attn/c_proj", forms, leaf),
        mlp=(in_out if forms is JOINED else out_in)("mlp/c_fc", "mlp/c_proj", leaf),
        norms=norms("ln_1 ln_2", leaf=scale),
        position=(f"{prefix}wpe/{rows}", "nd"),
        others=without(f"crossattention/c_attn/{leaf}"),
        bias=bias,
        dots=scale == "weight",
    )


EQUINOX = Case(
    "COMMON",
    "blocks/{}/attention",
    torch_layers("*_proj", ("query", "key", "value", "output")),
    others={"mlp/layers/0/weight": (F, D)},
    bias="bias",
    K=20,
)

HALIAX = {
    "node": Haliax,
    "end": "/0",
    "names": {"d": "embed", "h": "heads", "g": "kv_head", "u": "q_heads_per_group", "s": "qkv"}
    | {"k": "head_size", "f": "mlp", "l": "layers", "n": "position"},
}
LEVANTER = Case(
    None,
    "transformer/layers/{}/self_attn",
    torch_layers("*_proj")
    | {"q_proj/weight": "td,gukd->tguk", "o_proj/weight": "thk,dhk->td"}
    | dict.fromkeys(("k_proj/weight", "v_proj/weight"), "td,gkd->tgk"),
    norms=gains(LLAMA),
    others=without("mlp/gate_proj/weight mlp/up_proj/weight", shape="fd")
    | {"mlp/down_proj/weight": "df"},
    bias="bias",
    **GROUPED,
    **HALIAX,
)


CASES = {
    "levanter_llama": LEVANTER,
    "levanter_llama_stacked": scanned(LEVANTER, "transformer/layers/stacked", "self_attn"),
    "levanter_gpt2": scanned(
        Case(
            None,
            "",
            layers("*", ("c_attn", "c_proj"), ("td,dshk->tshk", HEADS[-1]), "weight"),
            mlp=in_out("mlp/c_fc", "mlp/c_proj", "weight"),
            norms=gains("ln_1 ln_2"),
            position=("embeddings/position_embeddings/weight", "nd"),
            bias="bias",
            **HALIAX,
        ),
        "transformer/blocks/stacked",
        "attn",
    ),
    "flax_stacked": Case(
        "COMMON",
        "layers/attention",
        layers("*", STOCK, HEADS),
        layer="layers",
        mlp=in_out("mlp/fc1", "mlp/fc2"),
        bias="bias",
        axis=0,
    ),
    "vit_jax": vit_jax(),
    "vit_jax_before_linen": vit_jax(f"{FLAX}_1", "MlpBlock_3", 2),
    "big_vision": big_vision(),
    "flax_vit": Case(
        "VIT",
        "vit/encoder/layer/{}",
        layers("*", (name.replace("self", "attention") for name in BERT), FLAT),
        mlp=in_out("intermediate/dense", "output/dense"),
        norms=norms(VIT),
        position=("vit/embeddings/position_embeddings", "1nd"),
        others={"/vit/pooler/dense/kernel": (D, D)},
        bias="bias",
    ),
    "flax_gpt2": gpt2("GPT2", "transformer/h/{}", JOINED_OUT_FIRST, "scale"),
    "flax_nanogpt": gpt2("NANOGPT", "{}", JOINED, "scale"),
    "gpt2": gpt2("GPT2", "h/{}", JOINED),
    "nanogpt": gpt2("NANOGPT", "transformer/h/{}", JOINED_OUT_FIRST, bias=""),
    "bonsai_gemma3": Case(
        "GEMMA_2",
        "language_model/layers/{}/self_attn",
        layers("*_proj", "qkvo", FLAT),
        norms=norms(LLAMA, (BEFORE[0], AFTER[0]))
        | norms("pre_feedforward_layernorm post_feedforward_layernorm", (BEFORE[1], AFTER[1])),
        adds=1,
        others=without("q_proj/kernel", "/vision_tower/encoder/layers/{}/self_attn/", (F, F)),
        **WIDE,
    ),
    "bonsai_qwen3_vl": Case(
        "LLAMA",
        "model/language_model/layers/{}/self_attn",
        layers("*_proj", "qkvo", FLAT),
        norms=gains(LLAMA),
        others={"/model/visual/blocks/{}/attn/qkv/kernel": (F, 3 * F)},
        **WIDE,
    ),
    "easydel_phi": Case(
        "PHI",
        "model/layers/{}/self_attn",
        layers("*", ("q_proj", "k_proj", "v_proj", "dense"), FLAT),
        mlp=in_out("mlp/fc1", "mlp/fc2"),
        norms=norms("input_layernorm", BOTH),
        bias="bias",
        **GROUPED,
    ),
    "tunix_llama": Case(
        "LLAMA",
        "layers/{}",
        layers("attn/*_proj", "qkvo", HEADS, "w"),
        norms=norms(LLAMA, leaf="w"),
        others=GATE,
        **WIDE,
    ),
    "equinox": EQUINOX,
    "equinox_stacked": scanned(EQUINOX, "blocks/attention", others={}),
    "gemma": gemma("layer_{}"),
    "big_vision_gemma": gemma("llm/layers/{}", **WIDE),
    "big_vision_gemma_scan": scanned(gemma("llm/layers", G=1, K=16), "llm/layers"),
    "maxtext_llama": maxtext(**WIDE),
    "maxtext_llama_no_scan": maxtext("layers_{}", **WIDE),
    "maxtext_qwen2": dataclasses.replace(
        maxtext(**WIDE), table="MAXTEXT", undivided=False, bias="bias"
    ),
    "maxtext_qwen3_no_scan": maxtext("layers_{}", "MAXTEXT", **GROUPED),
    "maxtext_gemma3": maxtext(
        "layers/layers_1",
        "MAXTEXT",
        norms=norms("pre_self_attention_norm pre_ffw_norm")
        | norms("post_self_attention_norm post_ffw_norm", AFTER),
    ),
    "maxtext_gpt_oss": maxtext(
        "layers/layers_1",
        "MAXTEXT",
        "GptOssAttention",
        others={"GptOssAttention/sinks": (8,)},
        bias="bias",
        **WIDE,
    ),
    "maxtext_olmo3": maxtext(
        "layers/layers_1",
        "MAXTEXT",
        "attention",
        norms=norms("post_self_attention_layer_norm post_mlp_layer_norm", AFTER),
        others=without("attention/query_norm/scale attention/key_norm/scale", shape=(8,)),
        **WIDE,
    ),
    "timm": pytorch("TIMM", "blocks/{}", position=("pos_embed", "1nd"), **TIMM),
    "equimo": pytorch(
        "TIMM",
        "blocks/0/blocks/{}",
        position=("global_pos_embed/weight", "nd"),
        others={"attn/attn_drop/p": (), "attn/proj_drop/p": ()},
        **TIMM | {"dots": False, "norms": gains("prenorm norm")},
    ),
    "dinov3": pytorch(
        "TIMM",
        "blocks/{}",
        others={"attn/qkv/bias_mask": (3 * D,)},
        **TIMM | {"norms": TIMM["norms"] | norms("ls1 ls2", AFTER, "gamma")},
    ),
    "dinov3_equinox": pytorch(
        "COMMON",
        "layer/{}/attention",
        torch_layers("*_proj"),
        mlp=out_in("mlp/up_proj", "mlp/down_proj"),
        norms=TIMM["norms"] | norms("layer_scale1 layer_scale2", AFTER, "lambda1"),
        bias="bias",
        dots=False,
    ),
    "torch_decoder": pytorch(
        "COMMON",
        "layers/{}/self_attn",
        {"in_proj_weight": "td,wd->tw", "out_proj/weight": "tq,dq->td"},
        mlp=out_in("linear1", "linear2"),
        others={"multihead_attn/in_proj_weight": (3 * D, D)},
    ),
    "torchvision": pytorch(
        "TORCHVISION",
        "encoder/layers/encoder_layer_{}/self_attention",
        {"in_proj_weight": "td,wd->tw", "out_proj/weight": "tq,dq->td"},
        norms=gains("ln_1 ln_2"),
        position=("encoder/pos_embedding", "1nd"),
    ),
    "dinov2": pytorch(
        "DINOV2",
        "encoder/layer/{}",
        torch_layers("*", (name.replace("self", "attention") for name in BERT)),
        mlp=out_in("mlp/fc1", "mlp/fc2"),
        norms=TIMM["norms"] | norms("layer_scale1 layer_scale2", AFTER, "lambda1"),
        position=("embeddings/position_embeddings", "1nd"),
        bias="bias",
    ),
    "bart": pytorch(
        "BART",
        "encoder/layers/{}/self_attn",
        torch_layers("*_proj", QKV_OUT),
        mlp=out_in("fc1", "fc2"),
        norms=gains(WHISPER, ("", ""), marks=["encoder/layernorm_embedding"]),
        bias="bias",
    ),
    "llama": pytorch(
        "LLAMA", "model/layers/{}/self_attn", torch_layers("*_proj"), norms=gains(LLAMA), **WIDE
    ),
    "phi3": pytorch(
        "PHI_3",
        "model/layers/{}/self_attn",
        joined("qkv_proj", "o_proj"),
        norms=gains(LLAMA),
        **WIDE,
    ),
    "vit_of_transformers_5": pytorch(
        "VIT", "vit/layers/{}/attention", torch_layers("*_proj"), norms=gains(VIT), bias="bias"
    ),
    "whisper": pytorch(
        "WHISPER",
        "decoder/layers/{}/self_attn",
        torch_layers("*_proj", QKV_OUT),
        mlp=out_in("fc1", "fc2"),
        norms=gains(WHISPER, marks=["decoder/layer_norm"]),
        position=("decoder/embed_positions/weight", "nd"),
        others=without("encoder_attn/q_proj/weight encoder_attn/k_proj/weight"),
    ),
    "clip": pytorch(
        "COMMON",
        "text_model/encoder/layers/{}/self_attn",
        torch_layers("*_proj", QKV_OUT),
        norms=gains("layer_norm1 layer_norm2"),
        mlp=out_in("mlp/fc1", "mlp/fc2"),
        others=without(
            "self_attn/q_proj/weight mlp/fc1/weight mlp/fc2/weight",
            "/vision_model/encoder/layers/{}/",
        ),
        position=("text_model/embeddings/position_embedding/weight", "nd"),
    ),
    "bert": pytorch(
        "BERT",
        "encoder/layer/{}",
        torch_layers("*", BERT),
        mlp=out_in("intermediate/dense", "output/dense"),
        position=("embeddings/position_embeddings/weight", "nd"),
        others=without("self/query/weight output/dense/weight", "crossattention/"),
        bias="bias",
    ),
    "gpt_neox": pytorch(
        "GPT_NEOX",
        "layers/{}",
        joined("attention/query_key_value", "attention/dense"),
        norms=gains(LLAMA),
        others={"/embed_in/weight": (V, D)},
        heads_inside=True,
        bias="bias",
    ),
    "t5": pytorch(
        "T5",
        "encoder/block/{}",
        torch_layers(T5),
        mlp=out_in("layer/1/DenseReluDense/wi", "layer/1/DenseReluDense/wo"),
        norms=gains("layer/0/layer_norm layer/1/layer_norm"),
        others=without("q/weight o/weight", "/decoder/block/{}/layer/1/EncDecAttention/"),
        undivided=True,
        K=16,
    ),
    "jamba": pytorch(
        "COMMON",
        "layers/{}/self_attn",
        torch_layers("*_proj"),
        norms=gains("input_layernorm pre_ff_layernorm"),
        others={"/layers/9/mamba/in_proj/weight": (F, D), "/layers/9/mamba/A_log": (F,)},
        **WIDE,
    ),
}
