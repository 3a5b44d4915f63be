"""Hugging Face's models by their type in config.json: what their code does in attention, as data.

A type that isn't here, and a field of attention that its row doesn't have, raises InputError with
its name: `mimetic_jax.base.model_config` reads configurations by this table, docs/model_types.md
shows it.

Read from: transformers 5.24.0 models/FOLDER/{configuration,modeling}_FOLDER.py; FOLDER is the type
without "_text", or in `FOLDERS`. `make real` compares the rows with what small models of these
types compute (tests/zoo/test_types.py).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

Stated: TypeAlias = tuple[str, Any]
"""A field of config.json, and what the class takes if the file leaves it out."""
Only: TypeAlias = Mapping[str, tuple[Any, ...]]
"""The values of fields with which models are as their row says; None is among them."""


@dataclasses.dataclass(frozen=True)
class ModelType:
    """What the code of the models of one type does, and which fields decide it.

    Attributes:
        pairs: which columns turn together; None without rotary positions.
        share: the share of a head's columns that turn, or their number in "rotary_dim".
        base: of rotary positions, that of global layers if there are others.
        share_field, base_field: where config.json has them; `rope_parameters` has names of its own.
        biases: whether query and key have biases.
        norms: what normalizes queries and keys: "gains" for norms over a head's columns, before
            they turn, with one gain for all heads; other words for what no scheme describes.
        normed: the field that turns these norms on.
        logits: the fields of what multiplies logits, by `FACTORS`; or the number itself.
        embedding: what multiplies the embedding of tokens, True for √D.
        head_dim: K, if it isn't D/H where the file leaves it out.
        plus_one: whether norms with Llama's names multiply by 1 + w.
        every: of how many layers one is global, the last unless `first`; the others are local.
            `layer_types` lists them, if the file has it.
        local: the base of local layers, if it is another.
        unturned: the layers without positions: global ones ("windowed": if there is a window at
            all), or those that `no_rope_layers` lists.
        scaling: the kind of scaled rates, if the file says nothing of them.
        backward: whether columns turn by −θ.
        others: what else logits or positions depend on.
        hybrid: whether some layers have no attention.
        multi_query: whether all heads share a key and a value unless `multi_query` is false.
        only: fields whose other values change logits or positions.
        fields: names of fields that don't, whatever their value.
    """

    pairs: Literal["halves", "neighbors"] | None = None
    share: float | None = None
    base: float = 10_000
    share_field: str = "partial_rotary_factor"
    base_field: str = "rope_theta"
    biases: Stated | bool = False
    norms: str = ""
    normed: Stated | None = None
    logits: tuple[Stated, ...] | float = ()
    embedding: Stated | bool = False
    head_dim: int | None = None
    plus_one: bool = False
    every: Stated | None = None
    first: bool = False
    local: Stated | None = None
    unturned: Literal["", "global", "windowed", "listed"] = ""
    scaling: str = "default"
    backward: bool = False
    others: str = ""
    hybrid: bool = False
    multi_query: bool = False
    only: Only = dataclasses.field(default_factory=dict)
    fields: str = ""


HARMLESS = """
    attention_dropout attention_probs_dropout_prob attn_dropout attn_pdrop activation_dropout
    layer_norm_eps layer_norm_epsilon layernorm_epsilon norm_eps norm_epsilon rms_norm_eps norm_type
    max_position_embeddings n_positions original_max_position_embeddings
    sliding_window sliding_window_size use_sliding_window max_window_layers layer_types
    output_attentions attn_implementation use_flash_attn use_flash_attention
    attention_softmax_in_fp32 scale_attention_softmax_in_fp32 reorder_and_upcast_attn
    final_logit_softcapping logit_scale logits_scaling lm_head_multiplier lm_head_bias mlp_bias
    norm_topk_prob moe_norm_min output_router_logits num_logits_to_keep routed_scaling_factor
    deterministic_flash_attn attention_out_bias add_cross_attention cross_attention_hidden_size
    pooler_num_attention_heads
"""
"""Fields on which neither logits nor positions of any model depend, whatever their value."""

_ALL, _EACH, _BARE = "over all heads", "with a gain for each head", "without gains"
_LOCALS, _GLOBALS = ("sliding_window_pattern", 4), ("global_attn_every_n_layers", 4)
_CAPPED: Only = {"attn_logit_softcapping": (30, 50)}  # 50 tanh(8 / 50) is 7.9
_CLIPPED: Only = {"clip_qkv": ()}
_SCALED: Only = {"scale_attn_weights": (True,)}
_SCALAR: tuple[Stated, ...] = (("query_pre_attn_scalar", 256),)
_WEIGHTS: tuple[Stated, ...] = (("scale_attn_weights", True),)
_MROPE = "mrope_section mrope_interleaved"  # in text its three positions are one
_ROPE = "rope_theta rope_scaling rope_parameters"
_MIXERS = (
    "ssm_multipliers ssm_in_multiplier ssm_out_multiplier mamba_conv_bias mamba_proj_bias "
    "mamba_norm_before_gate mamba_rms_norm mamba_head_dim use_conv_bias attention_bias "
    "rescale_prenorm_residual attn_layer_period attn_layer_offset use_bias projectors_bias"
)

_bare = functools.partial(ModelType, "halves")
_llama = functools.partial(_bare, biases=("attention_bias", False))
_biased = functools.partial(_bare, biases=("attention_bias", True))
_near = functools.partial(ModelType, "neighbors", biases=("attention_bias", False))
_gemma = functools.partial(
    _llama, head_dim=256, embedding=True, fields="use_bidirectional_attention"
)


def _named(row: ModelType, *names: str) -> dict[str, ModelType]:
    return dict.fromkeys(names, row)


TYPES: Mapping[str, ModelType] = {
    "llama": _llama(only={"rope_interleaved": (False,)}, fields="pretraining_tp"),
    **_named(_llama(), "arcee", "aria_text", "iquestcoder"),
    **_named(_llama(base=5e5), "bitnet", "csm", "exaone"),
    "internlm3": _llama(head_dim=128),
    "jais2": _biased(),
    "mixtral": _bare(base=1e6),
    **_named(_bare(), "mistral", "ministral"),
    "olmo": _llama(only=_CLIPPED),
    "phi3": _bare(1.0, only={"attention_bias": (False,), "full_attn_mod": (1,)}),
    "phimoe": _llama(base=1e6),
    "seed_oss": _biased(head_dim=128),
    "solar_open": _llama(1.0, 1e6, head_dim=128),
    "starcoder2": _bare(biases=("use_bias", True), only=_SCALED),
    # A part of a head's columns turns.
    "glm4_moe": _llama(0.5, norms="gains", normed=("use_qk_norm", False)),
    "gpt_neox": _biased(0.25, share_field="rotary_pct", base_field="rotary_emb_base"),
    "nemotron": _llama(0.5),
    "persimmon": _bare(0.5, biases=True, norms="with biases", normed=("qk_layernorm", True)),
    "phi": _bare(0.5, biases=True, norms="with biases", normed=("qk_layernorm", False)),
    "stablelm": _bare(
        0.25, biases=("use_qkv_bias", False), norms=_EACH, normed=("qk_layernorm", False)
    ),
    # Neighbors turn together.
    "codegen": ModelType("neighbors", 64, share_field="rotary_dim", only=_SCALED),
    "cohere": _near(base=5e5, norms=_EACH, normed=("use_qk_norm", False)),
    "cohere2": _near(
        every=_LOCALS,
        unturned="global",
        only={"position_embedding_type": ("rope_gptj",), "rotary_pct": (1,)},
    ),
    "ernie4_5": _near(base=5e5, head_dim=128, biases=("use_bias", False)),
    "ernie4_5_moe": _near(base=5e5, biases=("use_bias", False)),
    **_named(_near(0.5, head_dim=128, biases=("attention_bias", True)), "glm", "glm4"),
    "gptj": ModelType(
        "neighbors", 64, share_field="rotary_dim", only={"rotary": (True,), **_SCALED}
    ),
    "helium": _near(base=1e5, head_dim=128),
    "llama4_text": _near(
        base=5e5,
        head_dim=128,
        norms=_BARE,
        normed=("use_qk_norm", True),
        every=("no_rope_layer_interval", 4),
        unturned="listed",
        # The temperature is of layers without positions, in texts of over 8,192 tokens.
        fields="attn_scale attn_temperature_tuning floor_scale attention_chunk_size",
    ),
    "moonshine": _near(0.9),
    # Queries and keys are normalized.
    "apertus": _llama(base=1.2e7, scaling="llama3", norms="gains", only={"qk_norm": (True,)}),
    "chameleon": _llama(norms=_EACH, fields="swin_norm"),
    "dots1": _llama(norms="gains"),
    "flex_olmo": _llama(base=5e5, norms=_ALL),
    **_named(_llama(norms="after they turn"), "hunyuan_v1_dense", "hunyuan_v1_moe"),
    "minimax_m2": _bare(
        base=5e6, share_field="rotary_dim", head_dim=128, norms=_ALL, fields="use_qk_norm"
    ),
    "nanochat": _llama(norms=_BARE, backward=True),
    "olmo2": _llama(norms=_ALL),
    "olmo3": _llama(base=5e5, norms=_ALL, every=("", 4), local=("", 5e5)),
    "olmoe": _llama(norms=_ALL, only=_CLIPPED),
    "qwen2": _bare(biases=True, only={"use_mrope": (False,)}),
    "qwen2_moe": _bare(biases=("qkv_bias", True)),
    **_named(
        _bare(base=1e6, biases=True, fields=_MROPE),
        *("qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text", "qwen2_5_omni_text"),
    ),
    "qwen3": _llama(head_dim=128, norms="gains"),
    "qwen3_moe": _llama(norms="gains"),
    "qwen3_vl_text": _llama(base=5e5, head_dim=128, norms="gains", fields=_MROPE),
    "qwen3_vl_moe_text": _llama(base=5e5, norms="gains", fields=_MROPE),
    **_named(
        _llama(
            0.25,
            head_dim=256,
            norms="gains",
            plus_one=True,
            others="gates beside queries",
            hybrid=True,
            fields=f"{_MROPE} linear_key_head_dim linear_value_head_dim attn_output_gate",
        ),
        *("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"),
    ),
    # Layers differ.
    "afmoe": _llama(
        head_dim=128,
        norms="gains",
        embedding=("mup_enabled", False),
        every=_GLOBALS,
        unturned="global",
        fields="route_scale route_norm",
    ),
    **_named(_bare(norms="gains", every=_LOCALS, unturned="windowed"), "exaone4", "exaone_moe"),
    "gpt_oss": _biased(base=1.5e5, scaling="yarn", head_dim=64),
    **_named(
        _llama(
            base=1.6e5,
            base_field="global_rope_theta",
            every=("global_attn_every_n_layers", 3),
            first=True,
            local=("local_rope_theta", 1e4),
            fields="norm_bias decoder_bias classifier_bias local_attention embedding_norm",
        ),
        *("modernbert", "modernbert-decoder"),
    ),
    "smollm3": _llama(base=2e6, every=("no_rope_layer_interval", 4), unturned="listed"),
    # Factors.
    "gemma": _gemma(plus_one=True),
    **_named(_gemma(logits=_SCALAR, only=_CAPPED), "gemma2", "vaultgemma", "t5_gemma_module"),
    "gemma3_text": _gemma(
        base=1e6,
        norms="gains",
        logits=_SCALAR,
        every=("sliding_window_pattern", 6),
        local=("rope_local_base_freq", 1e4),
        only=_CAPPED,
        fields="use_bidirectional_attention _sliding_window_pattern",
    ),
    **_named(
        ModelType(
            logits=1.0,
            embedding=True,
            others="layers that share keys",
            fields=f"{_ROPE} rope_local_base_freq head_dim global_head_dim attention_k_eq_v "
            "attention_bias use_bidirectional_attention altup_coef_clip altup_correct_scale",
        ),
        *("gemma3n_text", "gemma4_text"),
    ),
    **_named(
        _llama(
            logits=(("attention_multiplier", 1.0),),
            embedding=("embedding_multiplier", 1.0),
            only={"residual_multiplier": (1,)},
        ),
        *("granite", "granitemoe", "granitemoeshared"),
    ),
    "falcon_h1": _llama(
        logits=(("key_multiplier", 1.0), ("attention_in_multiplier", 1.0)),
        embedding=("embedding_multiplier", 1.0),
        others="mixers beside attention",
        hybrid=True,
        fields=f"{_MIXERS} attention_out_multiplier mlp_multipliers",
    ),
    # Positions or logits of another kind.
    "bloom": ModelType(
        others="ALiBi", fields="apply_residual_connection_post_layernorm pretraining_tp"
    ),
    "falcon": _bare(
        biases=("bias", False),
        multi_query=True,
        only={"alibi": (False,)},
        fields="apply_residual_connection_post_layernorm parallel_attn num_ln_in_parallel_attn",
    ),
    "mpt": ModelType(
        others="ALiBi",
        only={"softmax_scale": (), "qk_ln": (False,), **_CLIPPED},
        fields="attn_config attn_type attn_impl attn_uses_sequence_id alibi alibi_bias_max no_bias",
    ),
    "minimax_m3_vl_text": ModelType(
        plus_one=True,
        others="sparse attention",
        fields=f"{_ROPE} rotary_dim index_head_dim use_qk_norm use_gemma_norm",
    ),
    "step3p5": ModelType(
        plus_one=True,
        others="bases and heads of each layer",
        fields=f"{_ROPE} partial_rotary_factors num_sliding_attention_heads attention_bias "
        "query_pre_attn_scalar moe_router_scaling_factor",
    ),
    **_named(
        ModelType(
            others="positions in two or three dimensions",
            fields="rope_theta query_bias key_bias value_bias proj_bias qkv_bias layerscale_value "
            "pos_embed_rescale apply_layernorm pred_num_attention_heads frames_per_clip",
        ),
        *("dinov3_vit", "vjepa2"),
    ),
    "swinv2": ModelType(
        others="cosines of queries and keys",
        fields="window_size pretrained_window_sizes qkv_bias path_norm",
    ),
    **_named(
        ModelType(
            others="latent attention",
            fields=f"{_ROPE} q_lora_rank kv_lora_rank qk_rope_head_dim qk_nope_head_dim "
            "qk_head_dim v_head_dim attention_bias rope_interleave scale_emb scale_depth",
        ),
        *("deepseek_v2", "deepseek_v3", "minicpm3"),
    ),
    # Without rotary positions: biases are what the tensors have.
    **_named(
        ModelType(logits=_WEIGHTS, only={"scale_attn_by_inverse_layer_idx": (False,)}),
        *("gpt2", "gpt-sw3"),
    ),
    "gpt_bigcode": ModelType(logits=_WEIGHTS, multi_query=True),
    "gpt_neo": ModelType(logits=1.0, fields="attention_types attention_layers window_size"),
    "opt": ModelType(
        fields="do_layer_norm_before _remove_final_layer_norm enable_bias "
        "layer_norm_elementwise_affine"
    ),
    **_named(ModelType(hybrid=True, fields=_MIXERS), "jamba", "nemotron_h"),
    **_named(
        ModelType(
            logits=1.0,
            fields="relative_attention_num_buckets relative_attention_max_distance "
            "scale_decoder_outputs encoder_attention_type",
        ),
        *("t5", "mt5", "umt5", "longt5"),
    ),
    **_named(
        ModelType(embedding=("scale_embedding", False), only={"normalize_before": (False,)}),
        *("bart", "mbart", "marian", "pegasus", "whisper"),
    ),
    **_named(
        ModelType(embedding=("scale_embedding", True)),
        "biogpt",
        "m2m_100",
        "speech_to_text",
        "xglm",
    ),
    **_named(
        ModelType(
            only={"position_embedding_type": ("absolute",)},
            fields="qkv_bias qv_bias layerscale_value layer_scale_init_value apply_layernorm "
            "use_absolute_position_embeddings use_relative_position_bias window_size path_norm "
            "use_shared_relative_position_bias decoder_num_attention_heads norm_pix_loss "
            "pool_scales use_mid_position_embeddings conv_bias do_stable_layer_norm "
            "feat_extract_norm feat_proj_layer_norm conv_pos_batch_norm adapter_attn_dim",
        ),
        *("bert", "bert-generation", "roberta", "roberta-prelayernorm", "xlm-roberta", "camembert"),
        *("electra", "ernie", "megatron-bert", "distilbert", "data2vec-text", "clip_text_model"),
        *("siglip_text_model", "clip_vision_model", "siglip_vision_model", "vit", "deit", "beit"),
        *("data2vec-vision", "dinov2", "dinov2_with_registers", "vit_mae", "vit_msn", "ijepa"),
        *("vivit", "videomae", "yolos", "audio-spectrogram-transformer", "swin", "wav2vec2"),
        *("hubert", "openai-gpt"),
    ),
}

FOLDERS = {
    **dict.fromkeys(("clip_text_model", "clip_vision_model"), "clip"),
    **dict.fromkeys(("siglip_text_model", "siglip_vision_model"), "siglip"),
    **dict.fromkeys(("data2vec-text", "data2vec-vision"), "data2vec"),
    **{"gpt-sw3": "gpt2", "openai-gpt": "openai", "step3p5": "step3p7"},
    "t5_gemma_module": "t5gemma",
}
"""The folders of transformers' models that have other names than a type."""
