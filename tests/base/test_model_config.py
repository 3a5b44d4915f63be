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
GEMMA_3 = {"model_type": "gemma3_text", "rope_theta": 1e6, "rope_local_base_freq": 1e4}
TWO_BASES = {"rope_parameters": {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {}}}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (LLAMA, (10_000, 1, "halves", False, ())),
        (LLAMA | LLAMA_31, (5e5, 1, "halves", False, ())),
        (LLAMA | {"attention_bias": True}, (10_000, 1, "halves", True, ())),
        (QWEN2, (1e6, 1, "halves", True, ())),
        (NEOX, (10_000, 0.25, "halves", True, ())),
        (GPT_J, (10_000, 0.25, "neighbors", False, ())),
        ({"model_type": "gpt2", "n_head": 12}, (None, 1, "halves", False, ())),
        (LLAMA | SCALED, (10_000, 1, "halves", False, ("rope_scaling 'linear'",))),
        (GEMMA_3, (1e6, 1, "halves", False, ("rope_local_base_freq 10000, a second base",))),
    ],
)
def test_rotary_positions(config, expected):
    found = ModelConfig.of(config)
    assert (found.base, found.turned, found.pairs, found.biases, found.others) == expected


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"attention_multiplier": 0.015625},
            r"logits multiplied by 0.015625, not by 1/√K = 0.0883883",
        ),
        ({"no_rope_layers": [1, 1, 1, 0]}, "layers without positions"),
        ({"q_lora_rank": 1536}, "latent attention"),
        (TWO_BASES, "rope_parameters of several kinds of layers"),
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
