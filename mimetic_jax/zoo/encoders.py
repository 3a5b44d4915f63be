"""Encoders of Hugging Face: BERT, ViT and DINOv2; T5; Whisper and BART."""

from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import layer_names
from mimetic_jax.zoo.family import Family
from mimetic_jax.zoo.storage import LINEN, TORCH, TOWERS, Storage

_BIASES = r"(?i:norm)[^/.]*/bias"


def _bert(storage: Storage) -> tuple[Rule, ...]:
    names = layer_names("attention/self/{}") | {"out": "attention/output/dense"}
    return (
        *storage.attention(names),
        *storage.mlp("intermediate/dense", "output/dense", within=r"layer/\d+$"),
        storage.gain("post_norm", "(?:attention/)?output/LayerNorm"),
        *storage.tokens("word_embeddings"),
        Rule(f"position_embeddings/{storage.table}", "position", "n d", within="embeddings$"),
    )


BERT = Family(
    (*TOWERS, *_bert(TORCH), *_bert(LINEN)),
    harmless=rf"{_BIASES}|distance_embedding/|crossattention/",
)
"""BERT, RoBERTa, ELECTRA and what else has exactly their leaves, in PyTorch and in Flax.

Blocks are encoder/layer/N. Norms come after the residual, unlike in the models in which the
structure of trained weights was measured. Read from: transformers 5.24 models/bert/modeling_bert.py
and 4.57.6 modeling_flax_bert.py.
"""


def _patches(storage: Storage) -> list[Rule]:
    layout = "d c u v" if storage.transposed else "u v c d"
    return [
        Rule(f"patch_embeddings?/projection/{storage.kernel}", "patch", layout),
        Rule("embeddings/position_embeddings", "position", "1 n d"),
    ]


def _vit(storage: Storage, before: tuple[str, str]) -> tuple[Rule, ...]:
    of_4 = layer_names("attention/attention/{}") | {"out": "attention/output/dense"}
    of_5 = layer_names("{}_proj", "qkvo") | {"within": "attention$"}
    return (
        *storage.attention(of_4),
        *storage.attention(of_5),
        *storage.mlp("intermediate/dense", "output/dense", within=r"layer/\d+$"),
        *storage.mlp("mlp/fc1", "mlp/fc2"),
        *storage.norms("gain", *before),
        *_patches(storage),
    )


VIT = Family(
    tuple(
        rule
        for storage in (TORCH, LINEN)
        for rule in _vit(storage, ("layernorm_before", "layernorm_after"))
    ),
    harmless=r"layernorm_\w+/bias",
    needs=r"layernorm_before/",
)
"""ViT and DeiT, in PyTorch by the names of transformers 4 and 5, and in Flax.

Blocks are encoder/layer/N, of transformers 5 layers/N/attention. Read from: transformers 5.24
models/vit/modeling_vit.py and 4.57.6 modeling_flax_vit.py.
"""

DINOV2 = Family(
    (
        *_vit(TORCH, ("norm1", "norm2")),
        *(
            Rule(f"layer_scale{number}/lambda1", f"{kind}_scale", "d")
            for number, kind in ((1, "attention"), (2, "mlp"))
        ),
    ),
    harmless=r"norm[12]/bias|mlp/weights_(?:in|out)/",
    needs=r"layer_scale1/lambda1",
)
"""DINOv2, with registers or without, in PyTorch.

Read from: transformers 5.24 models/dinov2/modeling_dinov2.py.
"""


def _t5(storage: Storage) -> tuple[Rule, ...]:
    rules = [
        *storage.attention(layer_names(r"layer/\d+/SelfAttention/{}", "qkvo"), undivided=True),
        storage.gain("attention_gain", "layer/0/layer_norm"),
        *storage.tokens("shared", "lm_head"),
    ]
    for layer in ("layer/1", "layer/2"):  # of the encoder, and of the decoder
        dense = f"{layer}/DenseReluDense"
        rules += storage.mlp(f"{dense}/wi_1", f"{dense}/wo", f"{dense}/wi_0")
        rules += storage.mlp(f"{dense}/wi", f"{dense}/wo")
        beside = f"{dense}/wo/{storage.kernel}"
        rules.append(storage.gain("mlp_gain", f"{layer}/layer_norm", beside=beside))
    return tuple(rules)


T5 = Family(
    (*_t5(TORCH), *_t5(LINEN)),
    harmless=r"EncDecAttention/|layer/1/layer_norm/|relative_attention_bias/",
    needs=r"SelfAttention/",
    note="the query takes 1/√K, as the model doesn't divide logits by √K",
)
"""T5, mT5 and UMT5, in PyTorch and in Flax, whose logits aren't divided by √K.

Blocks are encoder/block/N and decoder/block/N. Cross-attention keeps its initialization.
Read from: transformers 5.24 models/t5/modeling_t5.py and 4.57.6 modeling_flax_t5.py.
"""


def _whisper(storage: Storage, *, before: bool) -> tuple[Rule, ...]:
    names = layer_names("{}_proj", ("q", "k", "v", "out")) | {"within": "self_attn$"}
    norms = ("self_attn_layer_norm", "final_layer_norm")
    return (
        *storage.attention(names),
        *storage.mlp("fc1", "fc2", within=r"layers/\d+$"),
        *(
            storage.norms("gain", *norms, within=r"layers/\d+$")
            if before
            # Without biases the names are BigBird-Pegasus', too, whose norms come before.
            else [
                storage.gain(
                    "post_norm",
                    "|".join(norms),
                    within=r"layers/\d+$",
                    beside="self_attn/q_proj/bias",
                )
            ]
        ),
        *storage.tokens("embed_tokens|shared", "lm_head"),
        Rule(f"embed_positions/{storage.table}", "position", "n d", within="decoder$"),
    )


_CROSS = rf"{_BIASES}|encoder_attn"
WHISPER = Family(
    (*TOWERS, *_whisper(TORCH, before=True), *_whisper(LINEN, before=True)),
    harmless=_CROSS,
    needs=r"(?:encoder|decoder)/(?:layer_norm|final_layer_norm)/",
)
"""Whisper, mBART and OPT: a norm before each layer, in PyTorch and in Flax.

Blocks are decoder/layers/N/self_attn and those of the encoder; cross-attention keeps its
initialization. Positions of text are decoder/embed_positions [N, D]; OPT reads position n in row
n + 2. Read from: transformers 5.24 models/{whisper,mbart,opt}/modeling_*.py.
"""

BART = Family(
    (*TOWERS, *_whisper(TORCH, before=False), *_whisper(LINEN, before=False)),
    harmless=_CROSS,
    needs=r"layernorm_embedding/",
    absent=r"(?:encoder|decoder)/layer_norm/",
)
"""BART, which has Whisper's names and normalizes after the residual."""
