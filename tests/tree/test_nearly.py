"""Trees that differ from a family's in one leaf, one name or one shape are refused by name."""

import re

import pytest

from mimetic_jax import InputError, attention_rules, rewrite
from mimetic_jax.schemes import MeanShift, Mimetic
from tests.tree.stored import KEY, ROLES, Stored

D, H, K = 24, 4, 8
GROUPED = (D, H, 2, K)
TORCH = {"transposed": True, "leaf": "weight"}


def names(pattern, every):
    return tuple(pattern.format(name) for name in every.split())


def llama():
    tree = Stored().add({"model/embed_tokens/weight": (11, D), "model/norm/weight": (D,)})
    for i in range(2):
        layer = f"model/layers/{i}"
        tree.attention(f"{layer}/self_attn", names("{}_proj", "q k v o"), sizes=GROUPED, **TORCH)
        tree.mlp(layer, "mlp/up_proj", "mlp/down_proj", "mlp/gate_proj", **TORCH)
        tree.add({f"{layer}/{x}_layernorm/weight": (D,) for x in ("input", "post_attention")})
    return tree.dotted()


def gpt2(transposed=False):
    tree = Stored().add({"wte/weight": (11, D), "wpe/weight": (9, D)})
    for i in range(2):
        storage = {"transposed": transposed, "leaf": "weight"}
        tree.attention(f"h/{i}", ("attn/c_attn", "attn/c_proj"), **storage)
        tree.mlp(f"h/{i}", "mlp/c_fc", "mlp/c_proj", **storage)
        tree.add({f"h/{i}/{name}": (D,) for name in ("ln_1/weight", "ln_2/weight", "ln_1/bias")})
    return tree.dotted()


def timm():
    tree = Stored().add({"pos_embed": (1, 16, D), "patch_embed/proj/weight": (D, 3, 4, 4)})
    for i in range(2):
        tree.attention(f"blocks/{i}", ("attn/qkv", "attn/proj"), **TORCH)
        tree.mlp(f"blocks/{i}", "mlp/fc1", "mlp/fc2", **TORCH)
        tree.add({f"blocks/{i}/norm{x}/weight": (D,) for x in (1, 2)})
    return tree.dotted()


def bert():
    tree = Stored().add({"embeddings/word_embeddings/weight": (11, D)})
    for i in range(2):
        layer = f"encoder/layer/{i}"
        kernels = (*names("attention/self/{}", "query key value"), "attention/output/dense")
        tree.attention(layer, kernels, **TORCH)
        tree.mlp(layer, "intermediate/dense", "output/dense", **TORCH)
        tree.add({f"{layer}/attention/output/LayerNorm/weight": (D,)})
    return tree.dotted()


def t5():
    tree = Stored().add({"shared/weight": (11, D)})
    for i in range(2):
        layer = f"encoder/block/{i}"
        kernels = names("layer/0/SelfAttention/{}", "q k v o")
        tree.attention(layer, kernels, undivided=True, **TORCH)
        tree.mlp(layer, "layer/1/DenseReluDense/wi", "layer/1/DenseReluDense/wo", **TORCH)
        tree.add({f"{layer}/layer/0/layer_norm/weight": (D,)})
    tree.add({"encoder/block/0/layer/0/SelfAttention/relative_attention_bias/weight": (32, H)})
    return tree.dotted()


def neox():
    tree = Stored().add({"embed_in/weight": (11, D)})
    for i in range(2):
        kernels = names("attention/{}", "query_key_value dense")
        tree.attention(f"layers/{i}", kernels, by_head=True, **TORCH)
        tree.mlp(f"layers/{i}", "mlp/dense_h_to_4h", "mlp/dense_4h_to_h", **TORCH)
    return tree.dotted()


def big_vision():
    tree = Stored().add({"Transformer/posembed_input/pos_embedding": (1, 16, D)})
    for i in range(2):
        layer = f"Transformer/encoderblock_{i}"
        attention = names("MultiHeadDotProductAttention_0/{}", "query key value out")
        tree.attention(layer, attention, flat=False)
        tree.mlp(layer, "MlpBlock_0/Dense_0", "MlpBlock_0/Dense_1")
        tree.add({f"{layer}/LayerNorm_{x}/scale": (D,) for x in (0, 2)})
    return tree


def own():
    tree = Stored().add({"pos_embed": (1, 16, D), "patch_embed/kernel": (48, D)})
    for i in range(2):
        tree.attention(f"Block_{i}/attention", flat=False).mlp(f"Block_{i}/mlp", "fc1", "fc2")
        tree.add({f"Block_{i}/LayerNorm_{x}/scale": (D,) for x in (0, 1)})
    return tree


FAMILIES = {
    "llama": llama,
    "gpt2": gpt2,
    "nanogpt": lambda: gpt2(transposed=True),
    **{function.__name__: function for function in (timm, bert, t5, neox, big_vision, own)},
}


def written(tree, scheme):
    kv = {"num_kv_heads": 2} if any("self_attn.k_proj" in path for path in tree.places) else {}
    flat = not any("MultiHead" in path or path.startswith("Block") for path in tree.places)
    return rewrite(KEY, tree.params(), scheme, **({"num_heads": H} | kv if flat else {}))


@pytest.mark.parametrize("scheme", [Mimetic(), MeanShift()])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_trees_themselves_are_written(name, scheme):
    tree = FAMILIES[name]()
    if scheme == MeanShift() and name == "llama":
        with pytest.raises(InputError, match="MLPs with a gate stay as they are"):
            written(tree, scheme)
    else:
        assert tree.wrong(written(tree, scheme), scheme) == ([], [])


ATTENTION = {f"{x}_proj.weight": (H * K if x == "q" else 2 * K, D) for x in "qkv"}
ATTENTION |= {"o_proj.weight": (D, H * K)}
FIRST, SECOND = "model.layers.0.", "model.layers.1."
LEAVES = [
    ("llama", {f"{SECOND}self_attn.temperature": (H,)}),
    ("llama", {f"{SECOND}self_attn.q_scale": (H * K,)}),
    ("llama", {f"{SECOND}self_attn.q_proj.weight_scale": (H * K, 1)}),
    ("llama", {f"{SECOND}self_attn.o_proj.lora_magnitude_vector.default.weight": (D,)}),
    ("llama", {f"{FIRST}self_attn.gate.weight": (H * K, D)}),
    ("llama", {f"{FIRST}memory.{name}": shape for name, shape in ATTENTION.items()}),
    ("llama", {f"{FIRST}self_attn.embed_positions.logit_scale": ()}),
    ("gpt2", {"h.1.attn.c_attn.scales": (3 * H * K,)}),
    ("gpt2", {"h.1.attn.q_attn.weight": (D, H * K)}),
    ("gpt2", {"tokens_embed.weight": (11, D)}),
    ("nanogpt", {f"h.{i}.attn.c_attn.bias": (3 * H * K,) for i in range(2)}),
    ("nanogpt", {"h.1.attn.c_attn.g": (3 * H * K, 1)}),
    ("timm", {"blocks.0.attn.gate.weight": (H, D)}),
    ("timm", {"blocks.0.attn.temperature": (H, 1, 1)}),
    (
        "timm",
        {"blocks.1.attn2.qkv.weight": (3 * H * K, D), "blocks.1.attn2.proj.weight": (D, H * K)},
    ),
    ("bert", {"encoder.layer.1.attention.self.logit_gain": (H,)}),
    ("bert", {"encoder.layer.1.attention.self.query_global.weight": (H * K, D)}),
    ("t5", {"encoder.block.1.layer.0.SelfAttention.q_lengths": (H * K,)}),
    ("neox", {"layers.1.attention.query_key_value.qzeros": (4,)}),
    ("big_vision", {"Transformer/encoderblock_1/MultiHeadDotProductAttention_0/tau": (H,)}),
    ("own", {"Block_1/attention/temperature": (H,)}),
    ("own", {"Block_1/attention/key/kernel_scale": (H, K)}),
]
NAMES = [
    ("llama", "1.self_attn.v_proj", "1.self_attn.val"),
    ("llama", "o_proj", "dense"),
    ("llama", "self_attn.k_proj", "self_attn.kv_proj"),
    ("gpt2", "c_attn", "qkv"),
    ("nanogpt", "h.1.attn.c_attn", "h.1.attn.to_all"),
    ("timm", "attn.qkv", "attn.wqkv"),
    ("timm", "blocks", "stages"),
    ("bert", "1.attention.self.query", "1.attention.self.q"),
    ("t5", "SelfAttention", "Attention"),
    ("neox", "embed_in", "query_key_value"),
    ("big_vision", "1/MultiHeadDotProductAttention_0/query", "1/MultiHeadDotProductAttention_0/q"),
    ("own", "Block_1/attention/value", "Block_1/attention/v"),
    ("own", "out/kernel", "last/kernel"),
]
SHAPES = [
    ("llama", f"{SECOND}self_attn.q_proj.weight", (2 * H * K, D)),
    ("llama", f"{SECOND}self_attn.k_proj.weight", (K, D)),
    ("gpt2", "h.1.attn.c_attn.weight", (3 * H * K, D)),
    ("nanogpt", "h.1.attn.c_attn.weight", (H * K + 2 * K, D)),
    ("timm", "blocks.1.attn.proj.weight", (H * K, D)),
    ("bert", "encoder.layer.1.attention.self.key.weight", (D, H * K)),
    (
        "big_vision",
        "Transformer/encoderblock_1/MultiHeadDotProductAttention_0/key/kernel",
        (D, H * K),
    ),
    ("own", "Block_1/attention/query/kernel", (H, D, K)),
]


@pytest.mark.parametrize(
    ("name", "leaves"), LEAVES, ids=lambda x: x if isinstance(x, str) else min(x)
)
def test_one_leaf_more(name, leaves):
    tree = FAMILIES[name]().add(leaves)
    module = re.split("[/.]", min(leaves))[-3] if len(leaves) > 1 else min(leaves)
    with pytest.raises(InputError, match=re.escape(module)):
        written(tree, Mimetic())


@pytest.mark.parametrize(("name", "old", "new"), NAMES)
def test_another_name(name, old, new):
    tree = FAMILIES[name]().renamed(**{old: new})
    with pytest.raises(InputError, match=re.escape(re.split("[/.]", new)[-1])):
        written(tree, Mimetic())


@pytest.mark.parametrize(("name", "path", "shape"), SHAPES)
def test_another_shape(name, path, shape):
    tree = FAMILIES[name]()
    tree.places[path] = tree.numbers(*shape)
    with pytest.raises(InputError, match=re.escape(re.split(r"\d", path)[0])):
        written(tree, Mimetic())


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("own", "Block_1/mlp/gate/kernel"),
        ("own", "Block_1/mlp/fc3/kernel"),
        ("own", "Block_1/mlp/fc1/kernel_scale"),
        ("big_vision", "Transformer/encoderblock_1/MlpBlock_0/Dense_2/kernel"),
        ("timm", "blocks.1.mlp.fc1_g.weight"),
        ("nanogpt", "h.1.mlp.c_gate.weight"),
        ("bert", "encoder.layer.1.intermediate.gate.weight"),
    ],
)
def test_one_leaf_more_in_an_mlp(name, path):
    tree = FAMILIES[name]().add({path: (D, 40) if "kernel" in path else (40, D)})
    with pytest.raises(InputError, match=re.escape(path)):
        written(tree, MeanShift())


BASE = {"kernel": "weight", "flat": True, "transposed": True}


@pytest.mark.parametrize(
    ("layer", "scale"),
    [
        *(("{}_proj/base_layer", f"{{}}_proj/lora_magnitude_vector{x}") for x in ("", "/a/weight")),
        *(("{}_proj", f"{{}}_proj/{name}") for name in ("magnitude", "weight_scale", "weight_g")),
    ],
)
def test_scales_beside_a_kernel_are_refused_whatever_the_rules(layer, scale):
    """DoRA's lengths of rows, scales of quantized weights, weight norms."""
    rules = attention_rules(**dict(zip(ROLES, names(layer, "q k v o"), strict=True)), **BASE)
    tree = Stored().attention("layers/0/self_attn", names(layer, "q k v o"), **TORCH)
    assert tree.wrong(rewrite(KEY, tree.params(), Mimetic(), rules=rules, num_heads=H), Mimetic())
    tree.add({f"layers/0/self_attn/{path}": (H * K,) for path in names(scale, "q v")}).dotted()
    for given in (rules, None):
        with pytest.raises(InputError, match=re.escape(scale.format("q").replace("/", "."))):
            rewrite(KEY, tree.params(), Mimetic(), rules=given, num_heads=H)


@pytest.mark.parametrize("bias", ["v_bias", "v.bias", "q_bias"])
def test_a_bias_that_no_rule_knows_is_called_no_scale(bias):
    """As in timm's BEiT, EVA-02 and Swin v2."""
    tree = Stored().attention("layers/0/attn", names("{}_proj", "q k v o"), **TORCH)
    tree.add({f"layers/0/attn/{bias.replace('.', '/')}": (H * K,)}).dotted()
    with pytest.raises(InputError, match=re.escape(f"knows layers.0.attn.{bias}")):
        rewrite(KEY, tree.params(), Mimetic(), num_heads=H)
