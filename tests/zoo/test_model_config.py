"""What configurations of published models say of attention; their numbers as published."""

import argparse
import dataclasses
import json

import pytest

from mimetic_jax import InputError, Rule, zoo
from mimetic_jax.schemes import PositionalHeads
from mimetic_jax.zoo.model_config import ModelConfig
from mimetic_jax.zoo.model_types import TYPES

LLAMA = {"model_type": "llama", "num_attention_heads": 32, "hidden_size": 4096}
QWEN2 = {"model_type": "qwen2", "rope_theta": 1e6, "num_attention_heads": 14, "hidden_size": 896}
NEOX = {"model_type": "gpt_neox", "rotary_pct": 0.25, "rotary_emb_base": 10_000}
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
TWO_BASES = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    "full_attention": {"rope_type": "default", "rope_theta": 1e6},
}
GEMMA3, SMOLLM3 = {"model_type": "gemma3_text"}, {"model_type": "smollm3", "rope_theta": 5e6}
LOCAL, GLOBAL = "sliding_attention", "full_attention"
BASES = [
    ({"model_type": "qwen3", "rope_parameters": {"rope_theta": 1e6}}, (1e6,)),
    # Gemma 3: five local layers before each global one.
    ({**GEMMA3, "rope_theta": 1e6}, (*[1e4] * 5, 1e6)),
    ({**GEMMA3, "layer_types": [LOCAL, GLOBAL], "rope_parameters": TWO_BASES}, (1e4, 1e6)),
    (SMOLLM3, (5e6, 5e6, 5e6, None)),
    ({**SMOLLM3, "no_rope_layers": [1, 0]}, (5e6, None)),
    ({"model_type": "gpt2"}, ()),
]


@pytest.mark.parametrize(("config", "bases"), BASES)
def test_bases_of_layers_in_turn(config, bases):
    found = ModelConfig.of(config)
    assert tuple(rotary and rotary.base for rotary in found.rotary) == bases
    assert found.unknown == ()


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (LLAMA, PositionalHeads(10_000, channel=0)),
        (SMOLLM2, PositionalHeads(100_000, channel=0)),
        (LLAMA | LLAMA_31, PositionalHeads(500_000, channel=0)),
        (LLAMA | {"attention_bias": True}, PositionalHeads(10_000)),
        (QWEN2, PositionalHeads(1_000_000)),
        (NEOX, PositionalHeads(10_000, turned=0.25)),
        (PHI_3, PositionalHeads(10_000, channel=0)),
        ({"model_type": "phi3", "partial_rotary_factor": 0.75}, 0.75),
        ({"model_type": "phi3", "rope_parameters": {"partial_rotary_factor": 0.75}}, 0.75),
        # What the files of these models leave out.
        ({"model_type": "phi"}, PositionalHeads(10_000, turned=0.5)),
        ({"model_type": "mixtral"}, PositionalHeads(1_000_000, channel=0)),
        ({"model_type": "gemma2", "attn_logit_softcapping": 50.0}, 1.0),
        # Dynamic scaling begins after the length of training.
        (LLAMA | {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 1.0),
        # Fields that the classes don't read decide nothing.
        (LLAMA | {"attention_multiplier": 0.0156, "qk_norm": True, "attn_window": 9}, 1.0),
        (LLAMA | {"_attn_implementation_autoset": True, "partial_rotary_factor": 1.0}, 1.0),
        (NEOX | {"rope_theta": 1e6, "partial_rotary_factor": 0.5}, 0.25),
    ],
)
def test_the_scheme_for_a_configuration(config, expected):
    scheme = PositionalHeads.for_config(config)
    assert expected in (scheme, scheme.turned)


GEMMA2 = {"model_type": "gemma2", "head_dim": 64}
GRANITE = {"model_type": "granite", "head_dim": 64, "attention_multiplier": 0.125}
VISION = {"model_type": "vision-encoder-decoder", "encoder": {"model_type": "vit"}}
UNKNOWN = [
    (LLAMA | {"model_type": "my_llama"}, "model_type 'my_llama', which the table"),
    ({"rope_theta": 1e4}, "model_type None, which the table"),
    (LLAMA | {"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5, which the table"),
    (LLAMA | {"rope_parameters": TWO_BASES}, "rope_parameters.sliding_attention"),
    ({**GEMMA3, "rope_parameters": {"rope_theta": 1e6}}, "rope_parameters that aren't by layer"),
    (GEMMA2 | {"attn_logit_softcapping": 5.0}, "attn_logit_softcapping 5.0, which the table"),
    ({"model_type": "phi", "qk_layernorm": True}, "qk_layernorm True, which the table"),
    ({"model_type": "bert", "position_embedding_type": "relative_key"}, "type 'relative_key'"),
    ({"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": True}, "inverse_layer_idx True"),
    ({"model_type": "opt", "do_layer_norm_before": False}, "do_layer_norm_before False"),
    (LLAMA | {"rope_scaling": {"factor": 2.0}, "rope_parameters": {"rope_theta": 1e4}}, "differ"),
    (VISION | {"decoder": LLAMA}, "model_type 'vision-encoder-decoder'"),
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
        (LLAMA | {"rope_scaling": {"rope_type": "yarn", "factor": 4}}, "rope_scaling 'yarn'"),
        (LLAMA | {"rope_scaling": {"type": "linear", "factor": 4.0}}, "rope_scaling 'linear'"),
        (LLAMA | {"rope_scaling": {"type": "llama3", "factor": 8.0}}, "rope_scaling 'llama3'"),
        (BASES[1][0], r"layers with other bases of rotary positions \(10000, 1e\+06\)"),
        (SMOLLM3, r"layers with other bases of rotary positions \(5e\+06, none\)"),
        (GRANITE | {"residual_multiplier": 0.22}, "residual_multiplier 0.22"),
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
        (GEMMA3 | {"layer_types": 3}, "layer_types must be a sequence.*got 3"),
        (
            GEMMA3 | {"sliding_window_pattern": 10**9},
            r"an integer in \[1, 1000000\]; got 1000000000",
        ),
        (GEMMA3 | {"sliding_window_pattern": float("nan")}, "an integer .*; got nan"),
        (SMOLLM3 | {"no_rope_layers": [1], "num_hidden_layers": 36}, "1 entries"),
        (NEOX | {"rotary_pct": 1.5}, "rotary_pct must be .*got 1.5"),
    ],
)
def test_values_of_other_types_are_plain_errors(config, words):
    with pytest.raises(InputError, match=words):
        PositionalHeads.for_config(config)


def test_fields_of_a_scheme_for_a_configuration():
    assert PositionalHeads.for_config(QWEN2, offsets=(1,)) == PositionalHeads(1e6, offsets=(1,))
    for name in ("nonsense", "base", "turned"):
        with pytest.raises(InputError, match=f"unknown field '{name}'. Choose one of channel"):
            PositionalHeads.for_config(QWEN2, **{name: 0.5})


def test_heads_and_the_text_of_several_parts(tmp_path):
    text = LLAMA | {"num_key_value_heads": 8, "rope_theta": 5e5}
    config = {"model_type": "llava", "vision_config": {"num_heads": 16}, "text_config": text}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = ModelConfig.of(tmp_path)
    expected = ("llama", 32, 8, 128)
    assert (found.model_type, found.num_heads, found.num_kv_heads, found.head_dim) == expected
    module = argparse.Namespace(to_dict=lambda: config)
    assert PositionalHeads.for_config(module) == PositionalHeads(5e5, channel=0)


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "bart", "encoder_attention_heads": 6, "decoder_attention_heads": 4},
        {"encoder": {"model_type": "vit", "num_attention_heads": 6}, "decoder": {"n_head": 4}},
        {"encoder": {"num_attention_heads": 6}, "decoder": {"decoder_attention_heads": 4}},
    ],
)
def test_sides_with_other_numbers_of_heads(config):
    found = ModelConfig.of(config)
    assert (found.sides, found.num_heads) == ({"encoder": 6, "decoder": 4}, None)
    whisper = {"encoder_attention_heads": 6, "decoder_attention_heads": 6, "d_model": 384}
    assert ModelConfig.of({"model_type": "whisper"} | whisper).num_heads == 6


BART = {"encoder_attention_heads": 6, "decoder_attention_heads": 6}
PUBLISHED = [
    {
        **BART,
        **{"model_type": "bart", "normalize_before": False, "normalize_embedding": True},
        **{"add_bias_logits": False, "add_final_layer_norm": False, "classif_dropout": 0.0},
    },
    {**BART, "model_type": "mbart", "normalize_before": True, "scale_embedding": True},
    {**BART, "model_type": "pegasus", "static_position_embeddings": True},
    {"model_type": "umt5", "num_heads": 6, "scalable_attention": True},
    {"model_type": "gpt2", "n_head": 6, "attn_pdrop": 0.1, "reorder_and_upcast_attn": False},
    {"model_type": "qwen3", "num_attention_heads": 6, "use_sliding_window": False},
    {**NEOX, "num_attention_heads": 6, "use_parallel_residual": True},
    # Of transformers 4, in memory and inside a model of text and images.
    {"model_type": "llama", "num_attention_heads": 6, "_attn_implementation_autoset": True},
    {
        "model_type": "idefics3",
        "text_config": {
            **{"model_type": "llama", "num_attention_heads": 6, "_flash_attn_2_enabled": True},
            "rope_theta": 130000.0,
        },
    },
]


@pytest.mark.parametrize("config", PUBLISHED, ids=[config["model_type"] for config in PUBLISHED])
def test_published_fields_that_decide_nothing_are_ignored(config):
    found = ModelConfig.of(config)
    found.check_known()
    assert found.num_heads == 6


@pytest.mark.parametrize(
    ("config", "untied"),
    [
        ({"model_type": "llama"}, True),
        ({"model_type": "qwen3", "tie_word_embeddings": True}, False),
        ({"model_type": "gemma"}, False),
        ({"model_type": "gemma", "tie_word_embeddings": False}, True),
        ({"model_type": "vit"}, False),
        ({"tie_word_embeddings": True, "text_config": {"model_type": "qwen2"}}, False),
    ],
)
def test_whether_the_output_layer_is_another_tensor(config, untied):
    """By the class, if the configuration doesn't say it; then only the embedding is written."""
    assert ModelConfig.of(config).untied == untied


@pytest.mark.parametrize("kind", TYPES)
def test_rules_with_what_a_configuration_says_have_the_name_of_their_family(kind):
    """Messages and plans name it, and `closest` searches in no other."""
    family = TYPES[kind].family
    name = zoo.name_of(family.rules)
    said = ModelConfig.of({"model_type": "llama", "tie_word_embeddings": False})
    said = dataclasses.replace(said, multiplier=0.5, sides={"encoder": 4, "decoder": 8})
    rules = zoo.with_config(family.rules, said)
    assert name
    assert rules != family.rules
    assert zoo.name_of(rules) == name
    assert zoo.name_of((Rule("own/kernel", ()), *rules)) == ""
