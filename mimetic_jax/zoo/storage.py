"""How libraries store the layers that many families share: names of leaves and their order."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import (
    CROSS_ATTENTION,
    attention_rules,
    embedding_rules,
    left_out,
    mlp_rules,
)

BESIDE_TEXT = (
    rf"{CROSS_ATTENTION}|(?:^|[/.])(?:pooler|predictor|resampler|qformer|visual)[/.]"
    r"|(?:^|[/.])(?:vision_(?:tower|model)|audio_tower)[/.]"
)
"""Attention between two models, and parts beside a text model with another number of heads."""


@dataclasses.dataclass(frozen=True)
class Storage:
    """The names of the leaves of linear layers, embeddings and norms, and the order of kernels.

    Attributes:
        kernel, table, norm: of a linear layer, of an embedding, and of the gain of a norm, as a
            regular expression.
        transposed: whether kernels are stored output first.
    """

    kernel: str
    table: str
    norm: str
    transposed: bool

    @property
    def layers(self) -> dict[str, Any]:
        """Arguments of `mlp_rules`."""
        return {"kernel": self.kernel, "transposed": self.transposed, "exclude": ""}

    def attention(self, names: Mapping[str, str], **options: Any) -> tuple[Rule, ...]:
        """The rules of attention with flattened heads; cross-attention has other names."""
        return attention_rules(**{**names, **self.layers, "flat": True, **options})

    def mlp(self, first: str, second: str, gate: str = "", **options: Any) -> tuple[Rule, ...]:
        return mlp_rules(**{"first": first, "second": second, "gate": gate} | self.layers | options)

    def tokens(self, embedding: str, unembedding: str = "") -> tuple[Rule, ...]:
        return embedding_rules(
            f"(?:{embedding})/{self.table}",
            unembedding and f"(?:{unembedding})/{self.kernel}",
            transposed=self.transposed,
            exclude="",
        )

    def norms(
        self, what: Literal["gain", "scale"], attention: str, mlp: str, **options: Any
    ) -> tuple[Rule, ...]:
        """The norms around attention and around the MLP, in front of them or behind."""
        return tuple(
            Rule(f"(?:{name})/{self.norm}", f"{kind}_{what}", "d", **options)
            for kind, name in (("attention", attention), ("mlp", mlp))
        )

    def gain(self, role: str, name: str, axes: str = "d", **options: Any) -> Rule:
        return Rule(f"(?:{name})/{self.norm}", role, axes, **options)


TORCH = Storage("weight", "weight", "weight", transposed=True)
"""PyTorch's, and Equinox's."""
LINEN = Storage("kernel", "embedding", "(?:scale|weight|kernel)", transposed=False)
"""Of Hugging Face's Flax models, of EasyDeL's and bonsai's."""

TOWERS = left_out(BESIDE_TEXT)


def only_beside(rules: Iterable[Rule], *leaves: str) -> tuple[Rule, ...]:
    """The rules for blocks that have other leaves, too, without which a name may be anything's."""
    return tuple(dataclasses.replace(rule, beside=leaves) for rule in rules)
