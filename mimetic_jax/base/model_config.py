"""What a config.json of Hugging Face says of attention, which no weight shows.

`model_types` is the table by which it is read. What that table doesn't have, and what no scheme
describes, is kept by name, for callers to refuse.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from mimetic_jax.base.errors import InputError, blaming, error_text
from mimetic_jax.base.model_types import HARMLESS, TYPES, ModelType
from mimetic_jax.base.typed import Range, converted, shown

_TEXT = ("text_config", "language_config", "llm_config", "thinker_config", "decoder")
"""Fields that hold the configuration of the language model of one with several parts."""
_DEPTH = 8
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads")
_SIDES = (
    *("encoder_attention_heads", "decoder_attention_heads"),
    *("encoder_num_attention_heads", "decoder_num_attention_heads"),
)
_KEY_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
_WIDTH = ("hidden_size", "n_embd", "d_model", "dim")
_HEAD_DIM = ("head_dim", "attention_head_dim", "d_kv")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_MATTERS = re.compile(
    "attention|attn|rope|rotary|rotat|theta|scal|multipl|norm|window|sliding|bias|alibi|qk"
    "|soft_?cap|clip|lora|nope|mup|head_dim|pruned_heads|position_embedding_type"
)
"""Names of fields on which logits or positions may depend."""

_COUNT = Annotated[int, Range(1, 1_000_000)]
_LAYER_COUNT = Annotated[int, Range(1, 10_000)]
_BASE = Annotated[float, Range(1, 10**12, above=True)]
_SHARE = Annotated[float, Range(0, 1, above=True)]
_FACTOR = Annotated[float, Range(0, above=True)]
_ROPE = {
    *("rope_theta", "rope_type", "type", "partial_rotary_factor", "factor", "low_freq_factor"),
    *("high_freq_factor", "original_max_position_embeddings"),
}
_MROPE = "mrope_section"


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Numbers of a model's configuration; None for what it doesn't say.

    Attributes:
        model_type: the type of the language model.
        num_heads, num_kv_heads, head_dim, width: H, G, K, D.
        num_layers, hidden, vocab: the number of layers; F of MLPs, if none are experts; the tokens.
        bases: of the rotary positions of the layers in turn, None for a layer without positions;
            one if all have the same, none without rotary positions.
        turned, pairs: of rotary positions, as `Rotary` takes them.
        scaled: the rate in radians per token below which pairs turn more slowly than by the base.
        biases: whether query and key have biases.
        multiplier: what logits are multiplied by, if it isn't 1/√K.
        embedding: what the embedding of tokens is multiplied by, True for √D.
        untied: whether the output layer is not the embedding of tokens, by `tie_word_embeddings`.
        plus_one: whether norms with Llama's names multiply by 1 + w.
        hybrid: whether some layers have no attention.
        others: what else positions and activations depend on, which no scheme describes.
        unknown: the type, and fields of attention, that the table of types doesn't have.
    """

    model_type: str = ""
    num_heads: int | None = None
    num_kv_heads: int | None = None
    head_dim: int | None = None
    width: int | None = None
    num_layers: int | None = None
    hidden: int | None = None
    vocab: int | None = None
    bases: tuple[float | None, ...] = ()
    turned: float = 1.0
    pairs: Literal["halves", "neighbors"] = "halves"
    scaled: float = 0.0
    biases: bool = False
    multiplier: float | None = None
    embedding: float | bool = False
    untied: bool = False
    plus_one: bool = False
    hybrid: bool = False
    others: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def grouped(self) -> bool:
        """Whether key and value have fewer heads than query."""
        return self.num_kv_heads not in (None, self.num_heads)

    def check_known(self) -> None:
        """Raise InputError for a type or a field that the table of types doesn't have."""
        if self.unknown:
            raise InputError(
                f"the configuration has {', '.join(self.unknown)}, which the table of types in "
                "docs/your_model.md doesn't have: give by hand what the model's code does, "
                "rules (--rules=PYTORCH) and PositionalHeads(base, turned=…, pairs=…)"
            )

    @classmethod
    def of(cls, config: Any) -> ModelConfig:
        """Read a configuration: a dictionary, an object with `to_dict`, a file or its folder.

        >>> ModelConfig.of({"model_type": "llama", "rope_theta": 5e5}).bases
        (500000.0,)
        """
        if isinstance(config, ModelConfig):
            return config
        fields = _text_part(_fields(config))
        with blaming(os.fspath(config) if isinstance(config, str | os.PathLike) else ""):
            kind = converted("model_type", str | None, fields.get("model_type"))
            row = TYPES.get(kind or "")
            sizes = _sizes(fields, row or ModelType())
            if row is None:
                return cls(kind or "", **sizes, unknown=(f"model_type {shown(kind)}",))
            return cls(kind or "", **sizes, **_Reading(fields, row, sizes).result())


def _sizes(fields: Mapping[str, Any], row: ModelType) -> dict[str, Any]:
    heads, groups, width = (_count(fields, names) for names in (_HEADS, _KEY_HEADS, _WIDTH))
    sides = {_count(fields, (name,)) for name in _SIDES} - {None}
    if heads is None and len(sides) == 1:
        (heads,) = sides
    shared = converted("multi_query", bool, fields.get("multi_query", row.multi_query))
    if shared and not fields.get("new_decoder_architecture"):
        groups = 1
    head_dim = _count(fields, _HEAD_DIM) or row.head_dim
    if head_dim is None and heads and width:
        head_dim = width // heads
    experts = any("expert" in str(name) for name in fields)
    return {
        "num_heads": heads,
        "num_kv_heads": groups,
        "head_dim": head_dim,
        "width": width,
        "num_layers": _count(fields, _LAYERS),
        "hidden": None if experts else _count(fields, ("intermediate_size",)),
        "vocab": _count(fields, ("vocab_size",)),
        "untied": fields.get("tie_word_embeddings") is False,
    }


class _Reading:
    """One configuration, read by the row of its type."""

    def __init__(self, fields: Mapping[str, Any], row: ModelType, sizes: Mapping[str, Any]) -> None:
        self.fields, self.row, self.sizes = fields, row, sizes
        self.others = [row.others] if row.others else []
        self.unknown: list[str] = []
        self.known = {*HARMLESS.split(), *row.fields.split(), *row.only, "multi_query"}
        self.known |= {*_HEADS, *_SIDES, *_KEY_HEADS, *_HEAD_DIM}

    def result(self) -> dict[str, Any]:
        row = self.row
        found = self.positions() if row.pairs else {}
        found |= {"plus_one": row.plus_one, "hybrid": row.hybrid, "multiplier": self.multiplier()}
        factor = self.stated(row.embedding)
        found |= {
            "biases": self.stated(row.biases),
            "embedding": factor is True or (factor != 1 and factor),
        }
        if self.stated(row.normed or True) and row.norms not in ("", "gains"):
            self.others.append(f"queries and keys normalized {row.norms}")
        # Without rotary positions these fields change logits, which every scheme writes.
        refused = self.others if row.pairs else self.unknown
        refused += [
            f"{name} {shown(self.fields[name])}"
            for name, values in row.only.items()
            if self.fields.get(name) is not None and self.fields[name] not in values
        ]
        self.refuse({x: y for x, y in self.fields.items() if _MATTERS.search(str(x))})
        return found | {"others": tuple(self.others), "unknown": tuple(self.unknown)}

    def refuse(self, fields: Mapping[str, Any], within: str = "") -> None:
        """Keep the names of fields that the row doesn't have."""
        for name, value in fields.items():
            if name not in self.known and value is not None and value not in ([], {}):
                self.unknown.append(f"{within}{name} {shown(value)}")

    def stated(self, value: Any, annotation: Any = _FACTOR) -> Any:
        """A value of the row, or of the field that the row names with its default."""
        if not isinstance(value, tuple):
            return value
        name, default = value
        self.known.add(name)
        if (given := self.fields.get(name)) is None:
            return default
        return converted(name, bool if isinstance(default, bool) else annotation, given)

    def positions(self) -> dict[str, Any]:
        row, (whole, local) = self.row, self.rope()
        if row.backward:
            self.others.append("columns that turn by −θ")
        base = self.own(whole, "rope_theta", (row.base_field, row.base), _BASE)
        near = self.own(local, "rope_theta", row.local, _BASE) if row.local else base
        bases = self.bases(base, near)
        return {
            "bases": bases if len(set(bases)) > 1 else bases[:1],
            "turned": min(self.share(whole), self.share(local)),
            "pairs": row.pairs,
            "scaled": max(self.scaled(whole), self.scaled(local)),
        }

    def own(self, part: Mapping[str, Any], name: str, stated: Any, annotation: Any) -> Any:
        """A number of a part of rope_parameters, or else of a field beside it."""
        usual, value = self.stated(stated, annotation), part.get(name)
        return usual if value is None else converted(name, annotation, value)

    def rope(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """What global and what local layers have in rope_parameters, once rope_scaling."""
        names = ("rope_scaling", "rope_parameters")
        self.known.update(names)
        given = [
            converted(name, Mapping[str, Any], self.fields[name])
            for name in names
            if self.fields.get(name)
        ] or [{"rope_type": self.row.scaling}]
        if given[0] != given[-1]:
            self.unknown.append("rope_scaling and rope_parameters that differ")
        parts = {name: part for name, part in given[0].items() if isinstance(part, Mapping)}
        if not parts or not self.row.local:
            if self.row.local and "rope_theta" in given[0]:
                self.unknown.append("rope_parameters that aren't by layer_types")
            return given[0], {}
        whole, local = (parts.pop(f"{kind}_attention", {}) for kind in ("full", "sliding"))
        self.refuse(parts, "rope_parameters.")
        return whole, local

    def share(self, part: Mapping[str, Any]) -> float:
        row, usual = self.row, (self.row.share_field, self.row.share or 1.0)
        if row.share_field == "rotary_dim":
            columns = self.stated(("rotary_dim", row.share), _COUNT)
            share = columns / (self.sizes["head_dim"] or math.nan) if columns else 1.0
            usual = converted("rotary_dim / head_dim", _SHARE, share)
        share = self.own(part, "partial_rotary_factor", usual, _SHARE)
        if share != 1 and row.share is None and row.share_field != "rotary_dim":
            self.unknown.append(f"partial_rotary_factor {share:g}")  # this code doesn't look at it
        return share

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
        read = {"default", "dynamic", "llama3"} | ({"mrope"} if _MROPE in self.known else set())
        if kinds - read:
            self.others += [f"rope_scaling {kind!r}" for kind in sorted(kinds - read)]
            return 0.0
        self.refuse({x: y for x, y in part.items() if x not in _ROPE}, "rope_scaling.")
        if "llama3" not in kinds:
            return 0.0
        names = ("high_freq_factor", "original_max_position_embeddings")
        fast, trained = (converted(name, _FACTOR | None, part.get(name)) for name in names)
        if fast is None or trained is None:
            self.others.append("rope_scaling 'llama3' that doesn't say which pairs are fast")
            return 0.0
        return 2 * math.pi * fast / trained

    def bases(self, base: float, near: float) -> tuple[float | None, ...]:
        """Those of all layers, or of as many as there are until they begin again."""
        row = self.row
        if row.every is None:
            return (base,)
        name = "layer_types"
        annotation: Any = tuple[Literal["full_attention", "sliding_attention"], ...]
        if row.unturned == "listed":
            name, annotation = "no_rope_layers", tuple[bool | int, ...]
            self.known.add(name)
        if given := converted(name, annotation, self.fields.get(name) or ()):
            self.known.add(row.every[0])
            local = [kind in (1, "sliding_attention") for kind in given]
            if (layers := self.sizes["num_layers"]) not in (None, len(local)):
                raise InputError(f"{name} has {len(local)} entries for {layers} layers")
        else:
            every = self.stated(row.every, _LAYER_COUNT)
            local = [False] * row.first + [True] * (every - 1) + [False] * (not row.first)
        without_window = self.fields.get("sliding_window", 1) is None
        if without_window and row.unturned == "global":
            self.unknown.append("sliding_window None")
        turned = not row.unturned or (without_window and row.unturned == "windowed")
        return tuple(near if is_local else base if turned else None for is_local in local)

    def multiplier(self) -> float | None:
        """What logits are multiplied by; None for 1/√K."""
        row, width = self.row, self.sizes["head_dim"]
        if isinstance(row.logits, float):
            return row.logits
        factors = {field[0]: self.stated(field) for field in row.logits}
        keys = factors.get("key_multiplier", 1) * factors.get("attention_in_multiplier", 1) ** 2
        if "attention_multiplier" in factors:
            found = factors["attention_multiplier"]
        elif "query_pre_attn_scalar" in factors:
            found = factors["query_pre_attn_scalar"] ** -0.5
        elif not factors.get("scale_attn_weights", True):
            found = 1.0
        elif keys == 1:
            return None
        else:
            found = keys * converted("head_dim", _COUNT, width) ** -0.5
        is_usual = width and math.isclose(found, width**-0.5, rel_tol=1e-3)
        return None if is_usual else float(found)


def _text_part(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of the language model, which may be inside of others."""
    for _ in range(_DEPTH):
        parts = [fields[name] for name in _TEXT if isinstance(fields.get(name), Mapping)]
        if not parts or "model_type" not in parts[0]:
            attention = fields.get("attn_config")  # of MPT
            return {**attention, **fields} if isinstance(attention, Mapping) else fields
        fields = parts[0]
    raise InputError(f"the configuration is inside of {_DEPTH} others, or of itself")


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


def _count(fields: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    """The first of some counts; None if there is none, or one for each layer."""
    name = next((name for name in names if fields.get(name) is not None), "")
    return (
        None if isinstance(fields.get(name), list | None) else converted(name, _COUNT, fields[name])
    )
