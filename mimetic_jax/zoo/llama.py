"""Llama and the decoders that have its leaves; Phi, GPT-NeoX; Gemma by Hugging Face's names."""

from typing import Any

from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import layer_names, llama_rules
from mimetic_jax.zoo.family import Family
from mimetic_jax.zoo.storage import LINEN, TORCH, TOWERS, Storage

_PROJ = layer_names("{}_proj", "qkvo") | {"within": "self_attn$"}
_LLAMA_NORMS = ("input_layernorm", "post_attention_layernorm")
_HARMLESS = (
    r"rotary_emb|inv_freq|rngs|mlp/\w+_proj/bias"
    r"|mlp/(?:experts|gate|router|shared_experts?|shared_expert_gate)/|block_sparse_moe/"
)


def _ends(storage: Storage, norm: str, embedding: str, output: str, **form: Any) -> list[Rule]:
    """The embedding of tokens, the output layer, and the norm before it."""
    beside = f"{embedding}/{storage.table}"
    return [
        *storage.tokens(embedding, output),
        storage.gain("tied_gain", norm, beside=beside, **form),
    ]


def _query_key_norms(storage: Storage, **form: Any) -> list[Rule]:
    return [
        storage.gain(f"{role}_gain", f"{name}_norm", "k", within="self_attn$", **form)
        for name, role in (("q", "query"), ("k", "key"))
    ]


def _llama(storage: Storage, **form: Any) -> tuple[Rule, ...]:
    return (
        *storage.attention(_PROJ),
        *storage.mlp("mlp/up_proj", "mlp/down_proj", "mlp/gate_proj"),
        *storage.norms("gain", *_LLAMA_NORMS, **form),
        *_query_key_norms(storage, **form),
        *_ends(storage, "norm", "embed_tokens", "lm_head", **form),
    )


_TUNIX = (
    *llama_rules(
        **layer_names("attn/{}_proj", "qkvo"),
        gate="mlp/gate_proj",
        up="mlp/up_proj",
        down="mlp/down_proj",
        attention_norm="input_layernorm/w",
        mlp_norm="post_attention_layernorm/w",
        query_norm="attn/q_norm/w",
        key_norm="attn/k_norm/w",
        embedding="embedder/input_embedding",
        unembedding="lm_head/w",
        flat=False,
        transposed=False,
        kernel="w",
    ),
    Rule("attn/q_bias", "query_bias", "(h k)"),
    Rule("attn/k_bias", "key_bias", "(g k)"),
    Rule("attn/v_bias", "value_bias", "(g k)"),
)

LLAMA = Family(
    (*TOWERS, *_llama(TORCH), *_llama(LINEN), *_TUNIX),
    harmless=_HARMLESS,
    needs=r"post_attention_layernorm/",
)
"""Llama, Mistral, Mixtral, Qwen 2 and 3, SmolLM, Granite and what else has exactly their leaves:
Hugging Face's in PyTorch, EasyDeL's and bonsai's in Flax, tunix's.

Blocks are model/layers/N/self_attn, tunix's layers/N. Heads are flattened: give `num_heads`, and
`num_kv_heads` if heads are grouped; tunix stores them apart. H·K need not be D. Qwen 3 normalizes
queries and keys before their product; positions are rotary; MLPs are gated or mixtures of experts.

Read from: transformers 5.24 models/{llama,mistral,mixtral,qwen2,qwen3,smollm3,granite}/
modeling_*.py; erfanzar/EasyDeL easydel/modules/*/modeling_*.py (090a03b); jax-ml/bonsai
bonsai/models/*/modeling.py (3628425); google/tunix
tunix/models/{llama3,qwen2,qwen3}/model.py (c7d8950).
"""

GEMMA_1 = Family(
    (*TOWERS, *_llama(TORCH, form="1 + w"), *_llama(LINEN, form="1 + w")),
    harmless=_HARMLESS,
    by_config=True,
)
"""Gemma 1, which has Llama's leaves and stores w of its gains 1 + w: config.json tells."""


def _phi(storage: Storage) -> tuple[Rule, ...]:
    names = _PROJ | {"out": "dense"}
    return (
        *storage.attention(names),
        *storage.mlp("mlp/fc1", "mlp/fc2"),
        storage.gain("shared_gain", "input_layernorm"),
        *_ends(storage, "final_layernorm", "embed_tokens", "lm_head"),
    )


PHI = Family(
    (*TOWERS, *_phi(TORCH), *_phi(LINEN)),
    harmless=rf"{_HARMLESS}|input_layernorm/bias",
    needs=r"self_attn/dense/",
)
"""Phi 1 and 2, in PyTorch and EasyDeL's: one norm before attention and MLP."""


def _phi3(storage: Storage) -> tuple[Rule, ...]:
    names = {"fused": "qkv_proj", "out": "o_proj", "within": "self_attn$"}
    return (
        *storage.attention(names, grouped=True),
        *storage.norms("gain", *_LLAMA_NORMS),
        *_ends(storage, "norm", "embed_tokens", "lm_head"),
    )


PHI_3 = Family(
    (*TOWERS, *_phi3(TORCH), *_phi3(LINEN)),
    harmless=rf"{_HARMLESS}|mlp/(?:gate_up_proj|down_proj)/",
    needs=r"self_attn/qkv_proj/",
)
"""Phi 3, whose query, key and value are one kernel, in this order, and gate and up another."""


def _neox(storage: Storage, *, by_head: bool) -> tuple[Rule, ...]:
    names = {"fused": "attention/query_key_value", "out": "attention/dense"}
    return (
        *storage.attention(names, by_head=by_head),
        *storage.mlp("mlp/dense_h_to_4h", "mlp/dense_4h_to_h"),
        *storage.norms("gain", *_LLAMA_NORMS),
        *_ends(storage, "final_layer_norm", "embed_in", "embed_out|lm_head"),
    )


GPT_NEOX = Family(
    (*_neox(TORCH, by_head=True), *_neox(LINEN, by_head=False)),
    harmless=r"attention/(?:bias|masked_bias|rotary_emb/.*)$|_layernorm/bias|rngs",
    needs=r"(?:^|/)embed_in/",
)
"""GPT-NeoX and Pythia. In PyTorch one kernel holds query, key and value of one head after the
other, in EasyDeL's all heads of query before those of key.

Read from: transformers 5.24 models/gpt_neox/modeling_gpt_neox.py; EasyDeL as above.
"""


def _gemma2(storage: Storage) -> tuple[Rule, ...]:
    return (
        *storage.attention(_PROJ),
        *storage.mlp("mlp/up_proj", "mlp/down_proj", "mlp/gate_proj"),
        *storage.norms("gain", "input_layernorm", "pre_feedforward_layernorm", form="1 + w"),
        *storage.norms(
            "scale", "post_attention_layernorm", "post_feedforward_layernorm", form="1 + w"
        ),
        *_query_key_norms(storage, form="1 + w"),
        *_ends(storage, "norm", "embed_tokens", "lm_head", form="1 + w"),
    )


GEMMA_2 = Family(
    (*TOWERS, *_gemma2(TORCH), *_gemma2(LINEN)),
    harmless="rotary_emb|inv_freq|rngs",
    needs="pre_feedforward_layernorm/",
)
"""Gemma 2 and 3 by Hugging Face's names, in PyTorch and in bonsai's Flax: norms before and after
each layer, which store w of their gains 1 + w. Gemma 3n and 4 are others.

Read from: transformers 5.24 models/{gemma2,gemma3}/modeling_*.py; bonsai as above.
"""
