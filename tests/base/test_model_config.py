"""What configurations of published models say of attention; their numbers as published."""

import argparse
import json

import pytest

from mimetic_jax import InputError
from mimetic_jax.base.model_config import ModelConfig
from mimetic_jax.schemes import PositionalHeads

LLAMA = {"model_type": "llama", "num_attention_heads": 32, "hidden_size": 4096}
QWEN2 = {"model_type": "qwen2", "rope_theta": 1e6, "num_attention_heads": 14, "hidden_size": 896}
NEOX = {"model_type": "gpt_neox", "rotary_pct": 0.25, "rotary_emb_base": 10_000}
GPT_J = {"model_type": "gptj", "rotary_dim": 64, "n_head": 16, "n_embd": 4096}
SCALED = {"rope_scaling": {"type": "linear", "factor": 4.0}}
LLAMA_31 = {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}
TWO_BASES = {"rope_parameters": {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {}}}


LOCAL, GLOBAL = {"rope_type": "default", "rope_theta": 1e4}, {"rope_type": "default"}
BASES = [
    ({"model_type": "qwen3", "rope_parameters": {"rope_theta": 1e6}}, (1e6,)),
    # Gemma 3: five local layers before each global one.
    (
        {"model_type": "gemma3_text", "rope_theta": 1e6, "rope_local_base_freq": 1e4},
        (*[1e4] * 5, 1e6),
    ),
    (
        {
            "model_type": "gemma3_text",
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_parameters": {
                "sliding_attention": LOCAL,
                "full_attention": GLOBAL | {"rope_theta": 1e6},
            },
        },
        (1e4, 1e6),
    ),
    # ModernBERT: the first of three is global.
    (
        {
            "model_type": "modernbert",
            "global_attn_every_n_layers": 3,
            "global_rope_theta": 160_000.0,
            "local_rope_theta": 1e4,
        },
        (160_000.0, 1e4, 1e4),
    ),
    ({"model_type": "smollm3", "rope_theta": 5e6}, (5e6, 5e6, 5e6, None)),
    ({"model_type": "smollm3", "rope_theta": 5e6, "no_rope_layers": [1, 0]}, (5e6, None)),
    ({"model_type": "cohere2", "rope_theta": 5e4}, (5e4, 5e4, 5e4, None)),
    (
        {"model_type": "exaone4", "rope_theta": 1e6, "sliding_window_pattern": "LLG"},
        (1e6, 1e6, None),
    ),
    ({"model_type": "exaone4", "rope_theta": 1e6}, (1e6,)),
    (
        {
            "model_type": "gpt_oss",
            "rope_theta": 1e5,
            "layer_types": ["sliding_attention", "full_attention"],
        },
        (1e5,),
    ),
]


@pytest.mark.parametrize(("config", "bases"), BASES, ids=[one["model_type"] for one, _ in BASES])
def test_bases_of_layers_in_turn(config, bases):
    assert ModelConfig.of(config).bases == bases


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (LLAMA, ((10_000,), 1, "halves", False, ())),
        (LLAMA | LLAMA_31, ((5e5,), 1, "halves", False, ())),
        (LLAMA | {"attention_bias": True}, ((10_000,), 1, "halves", True, ())),
        (QWEN2, ((1e6,), 1, "halves", True, ())),
        (NEOX, ((10_000,), 0.25, "halves", True, ())),
        (GPT_J, ((10_000,), 0.25, "neighbors", False, ())),
        ({"model_type": "gpt2", "n_head": 12}, ((), 1, "halves", False, ())),
        (LLAMA | SCALED, ((10_000,), 1, "halves", False, ("rope_scaling 'linear'",))),
    ],
)
def test_rotary_positions(config, expected):
    found = ModelConfig.of(config)
    assert (found.bases, found.turned, found.pairs, found.biases, found.others) == expected


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"attention_multiplier": 0.015625}, "logits multiplied by 0.015625, not by 1/√K"),
        (
            {"head_dim": 64, "query_pre_attn_scalar": 256},
            "logits multiplied by 0.0625, not by 1/√K",
        ),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4}}, "rope_scaling 'yarn'"),
        ({"rope_local_base_freq": 1e3, "sliding_window_pattern": 2}, r".* \(1000, 10000\)"),
        ({"no_rope_layers": [1, 1, 1, 0]}, r".* \(10000, none\)"),
        ({"q_lora_rank": 1536}, "latent attention"),
        ({"residual_multiplier": 0.22}, "residual_multiplier 0.22"),
        (TWO_BASES, "a second base, of layers that it doesn't name"),
    ],
)
def test_what_no_scheme_describes_is_refused(fields, words):
    with pytest.raises(InputError, match=f"the configuration has {words}, which PositionalHeads"):
        PositionalHeads.for_config(LLAMA | fields)


def test_heads_and_the_text_of_several_parts(tmp_path):
    assert ModelConfig.of({"n_head": 48, "multi_query": True}).num_kv_heads == 1
    text = LLAMA | {"num_key_value_heads": 8, "rope_theta": 5e5}
    config = {"model_type": "llava", "vision_config": {"num_heads": 16}, "text_config": text}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = ModelConfig.of(tmp_path)
    assert (found.model_type, found.num_heads, found.num_kv_heads, found.head_dim) == (
        *("llama", 32, 8, 128),
    )
    module = argparse.Namespace(to_dict=lambda: config)
    assert PositionalHeads.for_config(module) == PositionalHeads(5e5, channel=0)
    assert PositionalHeads.for_config(QWEN2, offsets=(1,)) == PositionalHeads(1e6, offsets=(1,))
    with pytest.raises(InputError, match="the configuration has no rope_theta"):
        PositionalHeads.for_config({"model_type": "gpt2"})
