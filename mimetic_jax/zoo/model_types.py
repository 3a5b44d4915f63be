"""Types of Hugging Face's config.json: what the classes of each read that decides, as data.

In a type that is here the fields of its row decide, and all others decide nothing. Any other type
raises InputError with its name. Read from: transformers 5.24.0
models/*/{configuration,modeling}_*.py; `make real` compares the rows with the classes, with the
leaves of small models and with what these compute (tests/zoo/test_types.py).
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from mimetic_jax.zoo.encoders import BART, BERT, DINOV2, T5, VIT, WHISPER
from mimetic_jax.zoo.family import Family
from mimetic_jax.zoo.gpt2 import GPT2
from mimetic_jax.zoo.llama import GEMMA_1, GEMMA_2, GPT_NEOX, LLAMA, PHI, PHI_3


@dataclasses.dataclass(frozen=True)
class ModelType:
    """What the models of one type do, and which fields of config.json decide it.

    Attributes:
        family: what knows their leaves.
        fields: the fields that the class reads, with what it takes if a file leaves them out; what
            each means is the same for all types, see `model_config`. Positions are rotary if the
            base is among them.
        biases: whether query and key have biases, if no field says it.
        embedding: whether the embedding of tokens is multiplied by √D, if no field says it.
    """

    family: Family
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    biases: bool = False
    embedding: bool = False


def _llama(**fields: Any) -> ModelType:
    return ModelType(LLAMA, _LLAMA | fields)


_UNTIED, _TIED = {"tie_word_embeddings": False}, {"tie_word_embeddings": True}
_ROTARY = {"rope_theta": 10_000.0, **_UNTIED}
_LLAMA = {"attention_bias": False, **_ROTARY}
_BERT = _TIED | {"position_embedding_type": "absolute"}
_BART = _TIED | {"scale_embedding": False}
_GEMMA = _LLAMA | _TIED | {"head_dim": 256}
_GEMMA_2 = _GEMMA | {"query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0}
_GEMMA_3 = {
    **{"rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": 6},
    **{"layer_types": None, "attn_logit_softcapping": None},
}
_GRANITE = dict.fromkeys(
    ("attention_multiplier", "embedding_multiplier", "residual_multiplier"), 1.0
)

TYPES: Mapping[str, ModelType] = {
    "llama": _llama(),
    **dict.fromkeys(("mistral", "ministral"), ModelType(LLAMA, _ROTARY)),
    "mixtral": ModelType(LLAMA, _ROTARY | {"rope_theta": 1e6}),
    "qwen2": ModelType(LLAMA, _ROTARY, biases=True),
    "qwen2_moe": ModelType(LLAMA, _ROTARY | {"qkv_bias": True}),
    "qwen3": _llama(head_dim=128),
    "qwen3_moe": _llama(),
    "smollm3": _llama(rope_theta=2e6, no_rope_layer_interval=4, no_rope_layers=None, **_TIED),
    "granite": _llama(**_GRANITE),
    "gemma": ModelType(GEMMA_1, _GEMMA, embedding=True),
    "gemma2": ModelType(GEMMA_2, _GEMMA_2, embedding=True),
    "gemma3_text": ModelType(GEMMA_2, _GEMMA_2 | _GEMMA_3, embedding=True),
    "gpt_neox": ModelType(
        GPT_NEOX,
        {"rotary_emb_base": 10_000.0, "rotary_pct": 0.25, "attention_bias": True, **_UNTIED},
    ),
    "phi": ModelType(
        PHI, _ROTARY | {"partial_rotary_factor": 0.5, "qk_layernorm": False}, biases=True
    ),
    "phi3": ModelType(PHI_3, _ROTARY | {"partial_rotary_factor": 1.0}),
    "gpt2": ModelType(
        GPT2, _TIED | {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False}
    ),
    "opt": ModelType(WHISPER, _TIED | {"do_layer_norm_before": True}),
    **dict.fromkeys(("mbart", "pegasus", "whisper"), ModelType(WHISPER, _BART)),
    "bart": ModelType(BART, _BART),
    **dict.fromkeys(
        ("bert", "roberta", "xlm-roberta", "camembert", "electra"), ModelType(BERT, _BERT)
    ),
    **dict.fromkeys(("t5", "mt5", "umt5"), ModelType(T5, _TIED)),
    **dict.fromkeys(("vit", "deit"), ModelType(VIT)),
    **dict.fromkeys(("dinov2", "dinov2_with_registers"), ModelType(DINOV2)),
}
