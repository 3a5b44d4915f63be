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
_BASE = ("rope_theta", "rotary_emb_base", "rope_base", "rotary_base", "global_rope_theta")
_LOCAL_BASE = ("rope_local_base_freq", "local_rope_theta", "swa_rope_theta")
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
_EMBEDDING = ("embedding_multiplier", "scale_emb")
_EVERY = {"gemma3": 6, "gemma3_text": 6, "cohere2": 4, "llama4_text": 4, "smollm3": 4}
"""Every so many layers one is of another kind, unless the configuration has another number."""
_USUAL = ("llama", "gpt_neox", "gptj", "codegen", "phi", "stablelm")
"""Types of models whose base is 10,000 unless their configuration has another."""
_GLOBAL_WITHOUT = ("cohere2", "exaone4", "llama4_text", "smollm3")
"""Types of models whose global layers have no positions if there are local ones."""
_ROOT_WIDTH = ("gemma", "t5gemma", "recurrent_gemma")
"""How types begin whose models multiply the embedding by √D."""
_ALIKE = ("default", "llama3", "dynamic", "proportional", "mrope")
"""Kinds of scaling that leave fast pairs as they are, in texts of the length of training."""


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Numbers of a model's configuration; None for what it doesn't say.

    Attributes:
        model_type: the type of the language model.
        num_heads, num_kv_heads, head_dim: H, G, K.
        bases: of the rotary positions of the layers in turn, None for a layer without positions;
            one if all have the same, none if the configuration doesn't say it.
        turned, pairs: of rotary positions, as `Rotary` takes them.
        biases: whether query and key have biases.
        multiplier: what logits are multiplied by, if it isn't 1/√K.
        embedding: what the embedding of tokens is multiplied by, True for √D.
        untied: whether the output layer is not the embedding of tokens, by `tie_word_embeddings`.
        others: what else the logits depend on, field by field, which is described nowhere here.
    """

    model_type: str = ""
    num_heads: int | None = None
    num_kv_heads: int | None = None
    head_dim: int | None = None
    bases: tuple[float | None, ...] = ()
    turned: float = 1.0
    pairs: Literal["halves", "neighbors"] = "halves"
    biases: bool = False
    multiplier: float | None = None
    embedding: float | bool = False
    untied: bool = False
    others: tuple[str, ...] = ()

    @property
    def grouped(self) -> bool:
        """Whether key and value have fewer heads than query."""
        return self.num_kv_heads not in (None, self.num_heads)

    @classmethod
    def of(cls, config: Any) -> ModelConfig:
        """Read a configuration: a dictionary, an object with `to_dict`, a file or its folder.

        >>> ModelConfig.of({"model_type": "llama", "rope_theta": 5e5}).bases
        (500000.0,)
        """
        if isinstance(config, ModelConfig):
            return config
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
        biased = ("attention_bias", "qkv_bias", "use_qkv_bias", "attention_qkv_bias")
        return cls(
            kind,
            heads,
            key_heads,
            width,
            _bases(fields, rope, kind),
            float(_first(rope, _SHARE) or share or 1.0),
            "neighbors" if kind in _NEIGHBORS else "halves",
            bool(_first(fields, biased) if _first(fields, biased) is not None else kind in _BIASES),
            _multiplier(fields, width),
            kind.startswith(_ROOT_WIDTH) or _first(fields, _EMBEDDING) or 0,
            fields.get("tie_word_embeddings") is False,
            tuple(_others(fields, rope, kind)),
        )


def _bases(
    fields: Mapping[str, Any], rope: Mapping[str, Any], kind: str
) -> tuple[float | None, ...]:
    by_type = {name: part for name, part in rope.items() if isinstance(part, Mapping)}
    usual = 10_000 if kind in _USUAL else None
    base = _first(by_type.get("full_attention", rope), _BASE) or _first(fields, _BASE) or usual
    local = _first(by_type.get("sliding_attention", {}), _BASE) or _first(fields, _LOCAL_BASE)
    if base is None:
        return ()
    near = _local(fields, kind)
    turns = [True] * len(near)
    if no_rope := fields.get("no_rope_layers"):  # 0 for a layer without positions
        turns, near = list(map(bool, no_rope)), [False] * len(no_rope)
    elif kind in _GLOBAL_WITHOUT and any(near):
        turns = near
    bases = [
        float(local if is_near and local else base) if turning else None
        for is_near, turning in zip(near, turns, strict=True)
    ]
    return tuple(bases) if len(set(bases)) > 1 else tuple(bases[:1])


def _local(fields: Mapping[str, Any], kind: str) -> list[bool]:
    """Which of the layers in turn are local, or have positions where others have none."""
    pattern = fields.get("sliding_window_pattern")
    if types := fields.get("layer_types"):
        return ["sliding" in name or "local" in name for name in types]
    if isinstance(pattern, str):
        return [letter == "L" for letter in pattern]
    if every := _first(fields, ("global_attn_every_n_layers",)):
        return [False] + [True] * (int(every) - 1)
    every = _first(fields, ("sliding_window_pattern", "no_rope_layer_interval"))
    return [True] * (int(every or _EVERY.get(kind, 1)) - 1) + [False]


def _multiplier(fields: Mapping[str, Any], width: int | None) -> float | None:
    given = _first(fields, ("attention_multiplier",))
    if given is None and (scalar := _first(fields, ("query_pre_attn_scalar",))):
        given = scalar**-0.5
    if given is None or (width and math.isclose(given, width**-0.5, rel_tol=1e-3)):
        return None
    return float(given)


def _others(fields: Mapping[str, Any], rope: Mapping[str, Any], kind: str) -> list[str]:
    """The fields on which logits or positions depend in ways of their own."""
    scaling = fields.get("rope_scaling") or rope
    found = []
    for part in [x for x in scaling.values() if isinstance(x, Mapping)] or [scaling]:
        if (how := part.get("rope_type", part.get("type", "default"))) not in _ALIKE:
            found.append(f"rope_scaling {how!r}")
    second = any(isinstance(x, Mapping) for x in rope.values()) or _first(fields, _LOCAL_BASE)
    if second and not any(_local(fields, kind)):
        found.append("a second base, of layers that it doesn't name")
    if fields.get("q_lora_rank") or fields.get("kv_lora_rank"):
        found.append("latent attention")
    for name in ("residual_multiplier", "scale_depth"):
        if _first(fields, (name,)) not in (None, 1):
            found.append(f"{name} {fields[name]:g}")
    if kind == "llama4_text" and fields.get("use_qk_norm", True):
        found.append("use_qk_norm, a norm without a gain")
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
