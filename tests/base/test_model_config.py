"""What configurations of published models say of attention; their numbers as published."""

import argparse
import json

import pytest

from mimetic_jax import InputError, zoo
from mimetic_jax.base.model_config import ModelConfig
from mimetic_jax.schemes import PositionalHeads

LLAMA = {"model_type": "llama", "num_attention_heads": 32, "hidden_size": 4096}
QWEN2 = {"model_type": "qwen2", "rope_theta": 1e6, "num_attention_heads": 14, "hidden_size": 896}
NEOX = {"model_type": "gpt_neox", "rotary_pct": 0.25, "rotary_emb_base": 10_000}
GPT_J = {
    **{"model_type": "gptj", "rotary_dim": 64, "n_head": 16, "n_embd": 4096, "rotary": True},
    "scale_attn_weights": True,
}
SMOLLM2 = LLAMA | {"rope_interleaved": False, "pretraining_tp": 1, "rope_theta": 1e5}
LLAMA_31 = {
    "rope_theta": 5e5,
    "rope_scaling": {
        **{"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        **{"original_max_position_embeddings": 8192, "rope_type": "llama3"},
    },
}
PHI_3 = {
    **{"model_type": "phi3", "attention_bias": False, "original_max_position_embeddings": 4096},
    **{"rope_scaling": None, "sliding_window": 2047, "num_attention_heads": 32},
}
HUNYUAN = {"alpha": 1000.0, "beta_fast": 32, "factor": 1.0, "mscale": 1.0, "type": "dynamic"}
OMNI = {"model_type": "qwen2_5_omni_text", "rope_scaling": {"mrope_section": [16, 24, 24]}}
TWO_BASES = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    "full_attention": {"rope_type": "default", "rope_theta": 1e6},
}
GEMMA3, EXAONE4 = {"model_type": "gemma3_text"}, {"model_type": "exaone4", "rope_theta": 1e6}
LOCAL, GLOBAL = "sliding_attention", "full_attention"
BASES = [
    ({"model_type": "qwen3", "rope_parameters": {"rope_theta": 1e6}}, (1e6,)),
    # Gemma 3: five local layers before each global one.
    ({**GEMMA3, "rope_theta": 1e6}, (*[1e4] * 5, 1e6)),
    ({**GEMMA3, "layer_types": [LOCAL, GLOBAL], "rope_parameters": TWO_BASES}, (1e4, 1e6)),
    # ModernBERT: the first of three is global.
    ({"model_type": "modernbert"}, (160_000, 1e4, 1e4)),
    ({"model_type": "smollm3", "rope_theta": 5e6}, (5e6, 5e6, 5e6, None)),
    ({"model_type": "smollm3", "rope_theta": 5e6, "no_rope_layers": [1, 0]}, (5e6, None)),
    ({"model_type": "cohere2", "rope_theta": 5e4}, (5e4, 5e4, 5e4, None)),
    ({**EXAONE4, "sliding_window_pattern": "LLLG", "layer_types": [LOCAL, GLOBAL]}, (1e6, None)),
    ({**EXAONE4, "sliding_window": None}, (1e6,)),
    ({"model_type": "gpt2"}, ()),
]


@pytest.mark.parametrize(("config", "bases"), BASES, ids=[x["model_type"] for x, _ in BASES])
def test_bases_of_layers_in_turn(config, bases):
    found = ModelConfig.of(config)
    assert (found.bases, found.unknown) == (bases, ())


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (LLAMA, PositionalHeads(10_000, channel=0)),
        (SMOLLM2, PositionalHeads(100_000, channel=0)),
        (LLAMA | LLAMA_31, PositionalHeads(500_000, channel=0)),
        (LLAMA | {"attention_bias": True}, PositionalHeads(10_000)),
        (QWEN2, PositionalHeads(1_000_000)),
        (OMNI, PositionalHeads(1_000_000)),
        (NEOX, PositionalHeads(10_000, turned=0.25)),
        (GPT_J, PositionalHeads(10_000, turned=0.25, pairs="neighbors", channel=0)),
        (PHI_3, PositionalHeads(10_000, channel=0)),
        ({"model_type": "phi3", "partial_rotary_factor": 0.75}, 0.75),
        # What the files of these models leave out.
        ({"model_type": "glm"}, PositionalHeads(10_000, turned=0.5, pairs="neighbors")),
        ({"model_type": "nemotron"}, 0.5),
        ({"model_type": "starcoder2", "use_bias": True}, PositionalHeads(10_000)),
        ({"model_type": "mixtral"}, PositionalHeads(1_000_000, channel=0)),
        ({"model_type": "gemma2", "attn_logit_softcapping": 50.0}, 1.0),
        # Dynamic scaling begins after the length of training.
        (LLAMA | {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 1.0),
    ],
)
def test_the_scheme_for_a_configuration(config, expected):
    scheme = PositionalHeads.for_config(config)
    assert expected in (scheme, scheme.turned)


GEMMA2 = {"model_type": "gemma2", "head_dim": 64}
FALCON_H1 = {"model_type": "falcon_h1", "head_dim": 64, "key_multiplier": 0.0390625}
GRANITE = {"model_type": "granite", "head_dim": 64, "attention_multiplier": 0.125}
UNKNOWN = [
    (LLAMA | {"model_type": "my_llama"}, "model_type 'my_llama', which the table of types"),
    ({"rope_theta": 1e4}, "model_type None, which the table"),
    (LLAMA | {"attention_multiplier": 0.0156}, "attention_multiplier 0.0156, which the table"),
    (LLAMA | {"qk_norm": False, "attn_window": 9}, "qk_norm False, attn_window 9, which the"),
    (LLAMA | {"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5, which the table"),
    (LLAMA | {"pruned_heads": {"0": [1]}}, r"pruned_heads \{'0': \[1\]\}, which the table"),
    (LLAMA | {"rope_scaling": HUNYUAN}, "rope_scaling.alpha 1000.0, rope_scaling.beta_fast 32"),
    (LLAMA | {"rope_parameters": TWO_BASES}, "rope_scaling.sliding_attention"),
    ({**GEMMA3, "rope_parameters": {"rope_theta": 1e6}}, "rope_parameters that aren't by layer"),
    (NEOX | {"rope_theta": 1e6}, r"rope_theta 1000000.0, which the table"),
    ({"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": True}, "inverse_layer_idx True"),
    ({"model_type": "mpt", "attn_config": {"softmax_scale": 0.1}}, "softmax_scale 0.1"),
    (LLAMA | {"rope_scaling": {"factor": 2.0}, "rope_parameters": {"rope_theta": 1e4}}, "differ"),
]


@pytest.mark.parametrize(("config", "words"), UNKNOWN)
def test_what_the_table_lacks_is_refused_by_name(config, words):
    for read in (PositionalHeads.for_config, lambda config: zoo.rules_of_config({}, config)):
        with pytest.raises(InputError, match=f"the configuration has .*{words}"):
            read(config)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "granite"}, "logits multiplied by 1, not by 1/√K"),
        (GEMMA2 | {"query_pre_attn_scalar": 256}, "logits multiplied by 0.0625, not by 1/√K"),
        (FALCON_H1, r"logits multiplied by 0.00488\d+, not by 1/√K, mixers beside attention"),
        (LLAMA | {"rope_scaling": {"rope_type": "yarn", "factor": 4}}, "rope_scaling 'yarn'"),
        (LLAMA | {"rope_scaling": {"type": "linear", "factor": 4.0}}, "rope_scaling 'linear'"),
        (LLAMA | {"rope_scaling": {"type": "llama3", "factor": 8.0}}, "rope_scaling 'llama3'"),
        ({"model_type": "gpt_oss"}, "rope_scaling 'yarn'"),
        (BASES[1][0], r"layers with other bases of rotary positions \(10000, 1e\+06\)"),
        (BASES[4][0], r"layers with other bases of rotary positions \(5e\+06, none\)"),
        ({"model_type": "deepseek_v3", "q_lora_rank": 1536}, "latent attention"),
        (GRANITE | {"residual_multiplier": 0.22}, "residual_multiplier 0.22"),
        ({"model_type": "olmo2"}, "queries and keys normalized over all heads"),
        ({"model_type": "cohere", "use_qk_norm": True}, "queries and keys normalized with a gain"),
        ({"model_type": "nanochat"}, "columns that turn by −θ, queries and keys normalized"),
        ({"model_type": "gpt2"}, "model_type 'gpt2', without rotary positions"),
    ],
)
def test_what_no_scheme_describes_is_refused(config, words):
    with pytest.raises(
        InputError, match=f"PositionalHeads does not support {words}.*, which the con"
    ):
        PositionalHeads.for_config(config)


def test_llama_3_scales_rates_below_those_that_the_scheme_uses():
    PositionalHeads.for_config(LLAMA | LLAMA_31, slowest=0.004)
    with pytest.raises(InputError, match=r"scaled rates below 0.00307 .* slowest 0.002"):
        PositionalHeads.for_config(LLAMA | LLAMA_31, slowest=0.002)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (None, "configuration None is not a dictionary, an object with to_dict, or a path"),
        (3, "configuration 3 is not a dictionary"),
        ([LLAMA], "configuration .* is not a dictionary"),
        (argparse.Namespace(to_dict=lambda: 1 / 0), "to_dict of .* failed .ZeroDivisionError"),
        ({"model_type": ["llama"]}, r"model_type must be text.*got \['llama'\]"),
        (LLAMA | {"rope_theta": float("nan")}, "rope_theta must be a number.*got nan"),
        (LLAMA | {"rope_parameters": "linear"}, "rope_parameters must be a mapping.*got 'linear'"),
        (LLAMA | {"rope_scaling": 2.0}, "rope_scaling must be a mapping.*got 2.0"),
        (LLAMA | {"num_attention_heads": "8"}, "num_attention_heads must be an integer.*got '8'"),
        (LLAMA | {"attention_bias": "yes"}, "attention_bias must be True or False.*got 'yes'"),
        ({"model_type": "gemma3_text", "layer_types": 3}, "layer_types must be a sequence.*got 3"),
        (
            {"model_type": "gemma3_text", "sliding_window_pattern": 10**9},
            r"an integer in \[1, 10000\]; got 1000000000",
        ),
        (
            {"model_type": "gemma3_text", "sliding_window_pattern": float("nan")},
            "an integer .*; got nan",
        ),
        ({"model_type": "smollm3", "no_rope_layers": [1], "num_hidden_layers": 36}, "1 entries"),
        ({"model_type": "gptj", "n_head": 4, "n_embd": 64, "rotary_dim": 64}, "rotary_dim / head"),
    ],
)
def test_values_of_other_types_are_plain_errors(config, words):
    with pytest.raises(InputError, match=words):
        PositionalHeads.for_config(config)


def test_a_configuration_inside_itself_is_a_plain_error():
    loop = {"model_type": "llava"}
    loop["text_config"] = loop
    with pytest.raises(InputError, match="inside of 8 others, or of itself"):
        ModelConfig.of(loop)


def test_fields_of_a_scheme_for_a_configuration():
    assert PositionalHeads.for_config(QWEN2, offsets=(1,)) == PositionalHeads(1e6, offsets=(1,))
    for name in ("nonsense", "base", "turned"):
        with pytest.raises(InputError, match=f"unknown field '{name}'. Choose one of channel"):
            PositionalHeads.for_config(QWEN2, **{name: 0.5})


def test_heads_and_the_text_of_several_parts(tmp_path):
    assert ModelConfig.of({"n_head": 48, "multi_query": True}).num_kv_heads == 1
    assert ModelConfig.of({"model_type": "gpt_bigcode", "n_head": 48}).num_kv_heads == 1
    whisper = {"encoder_attention_heads": 6, "decoder_attention_heads": 6, "d_model": 384}
    assert ModelConfig.of({"model_type": "whisper"} | whisper).num_heads == 6
    text = LLAMA | {"num_key_value_heads": 8, "rope_theta": 5e5}
    config = {"model_type": "llava", "vision_config": {"num_heads": 16}, "text_config": text}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = ModelConfig.of(tmp_path)
    expected = ("llama", 32, 8, 128)
    assert (found.model_type, found.num_heads, found.num_kv_heads, found.head_dim) == expected
    module = argparse.Namespace(to_dict=lambda: config)
    assert PositionalHeads.for_config(module) == PositionalHeads(5e5, channel=0)
