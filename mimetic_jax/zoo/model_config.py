"""What a config.json of Hugging Face says of attention, which no weight shows.

`model_types` has the types, and the fields that the class of each reads. What they mean is here.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from mimetic_jax.base.errors import InputError, blaming, error_text
from mimetic_jax.base.typed import Range, converted, shown
from mimetic_jax.weights.rotary import BASE, SHARE, Rotary
from mimetic_jax.zoo.model_types import TYPES, ModelType

SIZES = {
    "num_heads": ("num_attention_heads", "n_head", "num_heads"),
    "num_kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim", "d_kv"),
    "width": ("hidden_size", "n_embd", "d_model"),
    "embedded": ("word_embed_proj_dim", "embedding_size"),
    "num_layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "hidden": ("intermediate_size",),
    "vocab": ("vocab_size",),
}
"""Counts, by the names that they have."""
SIDES = ("encoder", "decoder")
_BASES, _SHARES = ("rope_theta", "rotary_emb_base"), ("partial_rotary_factor", "rotary_pct")
IMPLEMENTED: Mapping[str, tuple[Any, ...]] = {
    "attn_logit_softcapping": (None, 30, 50),  # 50 tanh(8 / 50) is 7.9
    "do_layer_norm_before": (True,),
    "position_embedding_type": ("absolute",),
    "qk_layernorm": (False,),
    "scale_attn_by_inverse_layer_idx": (False,),
}
"""Fields of which some values alone are as the rules and schemes expect."""
_LISTS: Mapping[str, tuple[str, Any]] = {
    "layer_types": (
        "sliding_window_pattern",
        tuple[Literal["full_attention", "sliding_attention"], ...],
    ),
    "no_rope_layers": ("no_rope_layer_interval", tuple[bool | int, ...]),
}
"""Lists of layers, and of how many layers one differs without such a list."""
_COUNT = Annotated[int, Range(1, 1_000_000)]
_FACTOR = Annotated[float, Range(0, above=True)]
_TIED = "tie_word_embeddings"


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Numbers of a model's configuration; None for what it doesn't say.

    Attributes:
        model_type: the type of the model of text, or of the only one.
        row: what its class reads; None if the type is unknown.
        num_heads, num_kv_heads, head_dim, width: H, G, K, D.
        embedded: the width of the embedding of tokens, if it isn't D.
        num_layers, hidden, vocab: the number of layers; F of MLPs, if none are experts; the tokens.
        sides: the heads of encoder and decoder, if their numbers differ.
        rotary: the positions of the layers in turn, None for a layer without; one if all have the
            same, none without rotary positions.
        scaled: the rate in radians per token below which pairs turn more slowly than by the base.
        biases: whether query and key have biases.
        multiplier: what logits are multiplied by, if it isn't 1/√K.
        embedding: what the embedding of tokens is multiplied by, True for √D.
        untied: whether the output layer is not the embedding of tokens.
        others: what positions depend on that no scheme describes.
        unknown: the type, or the fields, by which nothing can be said of the model.
    """

    model_type: str = ""
    row: ModelType | None = dataclasses.field(default=None, repr=False)
    num_heads: int | None = None
    num_kv_heads: int | None = None
    head_dim: int | None = None
    width: int | None = None
    embedded: int | None = None
    num_layers: int | None = None
    hidden: int | None = None
    vocab: int | None = None
    sides: Mapping[str, int] = dataclasses.field(default_factory=dict)
    rotary: tuple[Rotary | None, ...] = ()
    scaled: float = 0.0
    biases: bool = False
    multiplier: float | None = None
    embedding: float | bool = False
    untied: bool = False
    others: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def bases(self) -> str:
        """The bases of rotary positions that its layers have, in words."""
        return ", ".join(dict.fromkeys(f"{x.base:g}" if x else "none" for x in self.rotary))

    def check_known(self) -> ModelType:
        """The row of its type.

        Raises:
            InputError: for a type, or the value of a field, that isn't described.
        """
        if self.row is None or self.unknown:
            raise InputError(
                f"the configuration has {', '.join(self.unknown)}, which the table of types in "
                "docs/model_types.md doesn't have. Pass by hand what the model's code does: "
                "num_heads (--heads), rules (--rules), PositionalHeads(base, turned=…, pairs=…)"
            )
        return self.row

    @classmethod
    def of(cls, config: Any) -> ModelConfig:
        """Read a configuration: a dictionary, an object with `to_dict`, a file or its folder.

        >>> ModelConfig.of({"model_type": "llama", "rope_theta": 5e5}).rotary
        (Rotary(base=500000.0, turned=1.0, pairs='halves', axes=1),)
        """
        if isinstance(config, ModelConfig):
            return config
        fields = _fields(config)
        with blaming(os.fspath(config) if isinstance(config, str | os.PathLike) else ""):
            sides = _sides(fields)
            text = fields.get("text_config")
            if isinstance(text, Mapping) and "model_type" in text:
                fields = {_TIED: fields.get(_TIED), **text}
            kind = converted("model_type", str | None, fields.get("model_type")) or ""
            if row := TYPES.get(kind):
                return cls(kind, row, sides=sides, **_Reading(fields, row).result())
            return cls(kind, sides=sides, unknown=(f"model_type {shown(kind or None)}",))


def _sides(fields: Mapping[str, Any]) -> dict[str, int]:
    """The heads of encoder and decoder, if their numbers differ."""
    heads = {}
    for side in SIDES:
        own, name = fields.get(side), f"{side}_attention_heads"
        inside = _count(own, (*SIZES["num_heads"], name)) if isinstance(own, Mapping) else None
        if count := inside or _count(fields, (name,)):
            heads[side] = count
    return heads if len(set(heads.values())) > 1 else {}


class _Reading:
    """One configuration, read by the row of its type."""

    def __init__(self, fields: Mapping[str, Any], row: ModelType) -> None:
        self.fields, self.row = fields, row
        self.sizes = {size: _count(fields, names) for size, names in SIZES.items()}
        self.others: list[str] = []
        self.unknown = [
            f"{name} {shown(value)}"
            for name, values in IMPLEMENTED.items()
            if name in row.fields and (value := self.read(name)) not in values
        ]

    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = self.counts()
        if self.reads(_BASES):
            found |= self.positions()
        residual = self.read("residual_multiplier", _FACTOR)
        if residual not in (None, 1):
            self.others.append(f"residual_multiplier {residual:g}")
        factor = self.read("embedding_multiplier", _FACTOR) or 1
        scaled = self.row.embedding or self.read("scale_embedding") is True
        return found | {
            "biases": self.row.biases or any(map(self.read, ("attention_bias", "qkv_bias"))),
            "multiplier": self.multiplier(found["head_dim"]),
            "embedding": scaled or (factor != 1 and factor),
            "untied": self.read(_TIED) is False,
            "others": tuple(self.others),
            "unknown": tuple(self.unknown),
        }

    def counts(self) -> dict[str, int | None]:
        sides = {_count(self.fields, (f"{side}_attention_heads",)) for side in SIDES}
        heads = self.sizes["num_heads"] or (sides.pop() if len(sides) == 1 else None)
        width, hidden = self.sizes["width"], self.sizes["hidden"]
        head_dim = self.sizes["head_dim"] or self.row.fields.get("head_dim")
        head_dim = head_dim or (width // heads if heads and width else None)
        hidden = None if any("expert" in str(name) for name in self.fields) else hidden
        return self.sizes | {"num_heads": heads, "head_dim": head_dim, "hidden": hidden}

    def reads(self, names: Iterable[str]) -> list[str]:
        """Those of some fields that the class reads."""
        return [name for name in names if name in self.row.fields]

    def read(self, name: str, annotation: Any = None) -> Any:
        """The value of a field, or what the class takes without it; None if it doesn't read it."""
        usual, given = self.row.fields.get(name), self.fields.get(name)
        if given is None or name not in self.row.fields:
            return usual
        annotation = bool if isinstance(usual, bool) else annotation
        return converted(name, annotation, given) if annotation else given

    def positions(self) -> dict[str, Any]:
        whole, local = self.rope()
        base = self.own(whole, "rope_theta", _BASES, Annotated[float, BASE])
        near = self.own(local, "rope_theta", ["rope_local_base_freq"], Annotated[float, BASE])
        share = self.share(whole)
        share = min(share, self.share(local)) if local else share
        bases: tuple[float | None, ...] = (base,)
        if (kinds := self.layers()) is not None:
            # What other layers than one of several have is a base of their own, or the only one.
            one, others = (base, near) if near else (None, base)
            bases = tuple(others if is_other else one for is_other in kinds)
        turned = [base if base is None else Rotary(base, share) for base in bases]
        return {
            "rotary": tuple(turned if len(set(bases)) > 1 else turned[:1]),
            "scaled": max(self.scaled(whole), self.scaled(local)),
        }

    def own(
        self, part: Mapping[str, Any], name: str, fields: Iterable[str], annotation: Any
    ) -> Any:
        """A number of a part of rope_parameters, or else of a field beside it."""
        if (value := part.get(name)) is not None:
            return converted(name, annotation, value)
        return next((self.read(field, annotation) for field in self.reads(fields)), None)

    def rope(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """What global and what local layers have in rope_parameters, once rope_scaling."""
        given = [
            converted(name, Mapping[str, Any], self.fields[name])
            for name in ("rope_scaling", "rope_parameters")
            if self.fields.get(name)
        ] or [{}]
        if given[0] != given[-1]:
            self.unknown.append("rope_scaling and rope_parameters that differ")
        parts = {name: part for name, part in given[0].items() if isinstance(part, Mapping)}
        whole, by_layer = given[0], self.reads(["rope_local_base_freq"])
        local: Mapping[str, Any] = {}
        if by_layer and parts:
            whole, local = (parts.pop(f"{kind}_attention", {}) for kind in ("full", "sliding"))
        elif by_layer and "rope_theta" in whole:
            self.unknown.append("rope_parameters that aren't by layer_types")
        self.unknown += [f"rope_parameters.{name}" for name in parts]
        return whole, local

    def share(self, part: Mapping[str, Any]) -> float:
        """The share of columns that turn; 1 in classes that don't read it."""
        share = self.own(part, "partial_rotary_factor", _SHARES, Annotated[float, SHARE])
        if not self.reads(_SHARES):
            # Transformers 4 reads it for all classes, and fails where it isn't 1.
            share = share or self.fields.get("partial_rotary_factor")
            if share not in (None, 1):
                self.unknown.append(f"partial_rotary_factor {shown(share)}")
            return 1.0
        return float(share)

    def scaled(self, part: Mapping[str, Any]) -> float:
        """The rate below which pairs are scaled.

        Dynamic scaling begins in longer texts than those of training, and Llama 3's leaves fast
        pairs as they are.
        """
        kinds = {
            converted(name, str, part[name])
            for name in ("rope_type", "type")
            if part.get(name) is not None
        }
        others = sorted(kinds - {"default", "dynamic", "llama3"})
        self.others += [f"rope_scaling {kind!r}" for kind in others]
        if others or "llama3" not in kinds:
            return 0.0
        names = ("high_freq_factor", "original_max_position_embeddings")
        fast, trained = (converted(name, _FACTOR | None, part.get(name)) for name in names)
        if fast is None or trained is None:
            self.others.append("rope_scaling 'llama3' that doesn't say which pairs are fast")
            return 0.0
        return 2 * math.pi * fast / trained

    def layers(self) -> list[bool] | None:
        """Which layers aren't the one of several: all, or as many as there are until they repeat.

        Local ones of Gemma 3, and those with positions of SmolLM 3; None if all are alike.
        """
        for name in self.reads(_LISTS):
            interval, annotation = _LISTS[name]
            if not (listed := converted(name, annotation, self.fields.get(name) or ())):
                return [True] * (self.read(interval, _COUNT) - 1) + [False]
            if (layers := self.sizes["num_layers"]) not in (None, len(listed)):
                raise InputError(f"{name} has {len(listed)} entries for {layers} layers")
            return [kind in (1, "sliding_attention") for kind in listed]
        return None

    def multiplier(self, head_dim: int | None) -> float | None:
        """What logits are multiplied by; None for 1/√K."""
        scalar = self.read("query_pre_attn_scalar", _FACTOR)
        found = self.read("attention_multiplier", _FACTOR) or (scalar and scalar**-0.5)
        found = 1.0 if self.read("scale_attn_weights") is False else found
        is_usual = found and head_dim and math.isclose(found, head_dim**-0.5, rel_tol=1e-3)
        return None if found is None or is_usual else float(found)


def _fields(config: Any) -> Mapping[str, Any]:
    if hasattr(config, "to_dict"):
        try:
            config = config.to_dict()
        except Exception as error:  # whatever a user's class raises
            raise InputError(
                f"to_dict of the configuration failed ({error_text(error)})"
            ) from error
    if isinstance(config, Mapping):
        return config
    if not isinstance(config, str | os.PathLike):
        raise InputError(
            f"configuration {shown(config)} is not a dictionary, an object with to_dict, or a path"
        )
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


def _count(fields: Mapping[str, Any], names: Iterable[str]) -> int | None:
    """The first of some counts; None if there is none, or one for each layer."""
    given = next((name for name in names if fields.get(name) is not None), "")
    value = fields.get(given)
    return None if isinstance(value, list | None) else converted(given, _COUNT, value)
