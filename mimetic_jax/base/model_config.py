"""What a config.json of Hugging Face says of attention, which no weight shows."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from typing import Any, Literal

from mimetic_jax.base.errors import InputError, error_text

_TEXT = ("text_config", "language_config", "llm_config", "thinker_config", "decoder")
"""Fields that hold the configuration of the language model of one with several parts."""
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
_KEY_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
_WIDTH = ("hidden_size", "n_embd", "d_model")
_BASE = ("rope_theta", "rotary_emb_base", "rope_base", "rotary_base")
_SHARE = ("partial_rotary_factor", "rotary_pct", "rope_pct")
_NEIGHBORS = (
    *("gptj", "codegen", "cohere", "cohere2", "glm", "glm4", "helium", "moonshine"),
    *("ernie4_5", "ernie4_5_moe", "llama4", "llama4_text"),
)
"""Types of models whose neighboring columns turn together."""
_BIASES = (
    *("qwen2", "qwen2_moe", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"),
    *("gpt_neox", "phi"),
)
"""Types of models whose query and key always have biases."""
_USUAL = ("llama", "gpt_neox", "gptj", "codegen", "phi", "stablelm")
"""Types of models whose base is 10,000 unless their configuration has another."""
_ALIKE = ("default", "llama3", "dynamic", "proportional", "mrope")
"""Kinds of scaling that leave fast pairs as they are, in texts of the length of training."""


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Numbers of a model's configuration; None for what it doesn't say.

    Attributes:
        model_type: the type of the language model.
        num_heads, num_kv_heads, head_dim: H, G, K.
        base, turned, pairs: of rotary positions, as `Rotary` takes them.
        biases: whether query and key have biases.
        others: what else the logits depend on, field by field, which is described nowhere here.
    """

    model_type: str = ""
    num_heads: int | None = None
    num_kv_heads: int | None = None
    head_dim: int | None = None
    base: float | None = None
    turned: float = 1.0
    pairs: Literal["halves", "neighbors"] = "halves"
    biases: bool = False
    others: tuple[str, ...] = ()

    @property
    def grouped(self) -> bool:
        """Whether key and value have fewer heads than query."""
        return self.num_kv_heads not in (None, self.num_heads)

    @classmethod
    def of(cls, config: Any) -> ModelConfig:
        """Read a configuration: a dictionary, an object with `to_dict`, a file or its folder.

        >>> ModelConfig.of({"model_type": "llama", "rope_theta": 5e5}).base
        500000.0
        """
        fields = _fields(config)
        parts = [fields[name] for name in _TEXT if isinstance(fields.get(name), Mapping)]
        if parts and "model_type" in parts[0]:
            return cls.of(parts[0])
        kind = str(fields.get("model_type", ""))
        heads = _first(fields, _HEADS)
        key_heads = 1 if fields.get("multi_query") is True else _first(fields, _KEY_HEADS)
        width = _first(fields, ("head_dim", "attention_head_dim"))
        if width is None and heads and (hidden := _first(fields, _WIDTH)):
            width = hidden // heads
        share = _first(fields, _SHARE)
        if share is None and width and (turned := _first(fields, ("rotary_dim",))):
            share = turned / width
        rope = fields.get("rope_parameters") or {}
        base = _first(rope, _BASE) or _first(fields, _BASE)
        biased = ("attention_bias", "qkv_bias", "use_qkv_bias", "attention_qkv_bias")
        return cls(
            kind,
            heads,
            key_heads,
            width,
            float(base) if base else 10_000.0 if kind in _USUAL else None,
            float(_first(rope, _SHARE) or share or 1.0),
            "neighbors" if kind in _NEIGHBORS else "halves",
            bool(_first(fields, biased) if _first(fields, biased) is not None else kind in _BIASES),
            tuple(_others(fields, rope, kind, width)),
        )


def _others(
    fields: Mapping[str, Any], rope: Mapping[str, Any], kind: str, width: int | None
) -> list[str]:
    """The fields on which logits or positions depend in ways of their own."""
    found = []
    scaling = fields.get("rope_scaling") or rope
    how = scaling.get("rope_type", scaling.get("type", "default")) if scaling else "default"
    if any(isinstance(part, Mapping) for part in scaling.values()):
        found.append("rope_parameters of several kinds of layers")
    elif how not in _ALIKE:
        found.append(f"rope_scaling {how!r}")
    for name in ("rope_local_base_freq", "local_rope_theta", "swa_rope_theta"):
        if fields.get(name):
            found.append(f"{name} {fields[name]:g}, a second base")
    no_rope = fields.get("no_rope_layers") or ()
    if 0 in no_rope or fields.get("no_rope_layer_interval") or kind in ("cohere2", "exaone4"):
        found.append("layers without positions")
    usual = width**-0.5 if width else None
    multiplier = fields.get("attention_multiplier")
    if (scalar := fields.get("query_pre_attn_scalar")) and not multiplier:
        multiplier = float(scalar) ** -0.5
    if multiplier and usual and not math.isclose(multiplier, usual, rel_tol=1e-3):
        found.append(f"logits multiplied by {multiplier:g}, not by 1/√K = {usual:g}")
    if fields.get("q_lora_rank") or fields.get("kv_lora_rank"):
        found.append("latent attention")
    return found


def _fields(config: Any) -> Mapping[str, Any]:
    if hasattr(config, "to_dict"):
        config = config.to_dict()
    if isinstance(config, Mapping):
        return config
    path = os.fspath(config)
    if os.path.isdir(path):
        path = os.path.join(path, "config.json")
    try:
        with open(path, encoding="utf-8") as opened:
            found = json.load(opened)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} can't be read ({error_text(error)})") from error
    if not isinstance(found, Mapping):
        raise InputError(f"{path} holds no configuration, but a {type(found).__name__}")
    return found


def _first(fields: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """The first number of these names; None if there is none."""
    numbers = (fields.get(name) for name in names)
    return next((number for number in numbers if isinstance(number, bool | int | float)), None)
