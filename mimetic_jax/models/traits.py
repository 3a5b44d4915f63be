"""What training must know of a model that its parameters don't show."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import jax

from mimetic_jax.rules.rule import Rule
from mimetic_jax.weights.rotary import Rotary

Placement: TypeAlias = str | tuple[str | None, ...]
Shape: TypeAlias = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Traits:
    """Facts about a module: set `traits = Traits(…)` in its class. Every trait is optional.

    Attributes:
        grid: (module, shape of an image [h, w, C]) → (rows, columns) of the patch grid, which
            `SinCos` and `Impulse` need if the position table is not square.
        rules: roles and layouts of the parameters, for `rewrite`, which otherwise finds them.
        rotary: module → its rotary positions, None if it has others: `schemes.PositionalHeads` is
            checked against them.
        sharding: ordered (regular expression, placement) pairs over parameter paths; see
            `train.cluster.mesh.shardings`. Kernels and embeddings are sharded over "fsdp" unless
            given.
        no_decay: regular expression of the parameters without weight decay if a
            configuration sets `optimizer.no_decay`.
        output: parameters → (E [V, D], b [V]) of the output layer, for a text model that returns
            hidden states [B, N, D] instead of logits: the loss then computes the logits in chunks.
    """

    grid: Callable[[Any, Shape], tuple[int, int]] | None = None
    rules: tuple[Rule, ...] | None = None
    rotary: Callable[[Any], Rotary | None] | None = None
    sharding: tuple[tuple[str, Placement], ...] = ((r"kernel$|embed", "fsdp"),)
    no_decay: str = r"(^|/)(bias|scale)$"
    output: Callable[[Any], tuple[jax.Array, jax.Array]] | None = None


TRANSFORMER_SHARDING: tuple[tuple[str, Placement], ...] = (
    (r"attention/(query|key|value)/kernel$", ("fsdp?", "tensor", None)),
    (r"attention/(query|key|value)/bias$", ("tensor", None)),
    (r"attention/out/kernel$", ("tensor", None, "fsdp?")),
    (r"mlp/(fc1|up)/kernel$", ("fsdp?", "tensor")),
    (r"mlp/(fc1|up)/bias$", ("tensor",)),
    (r"mlp/fc2/kernel$", ("tensor", "fsdp?")),
    (r"kernel$|embed", "fsdp"),
)
"""Sharding of blocks with `attention` and `mlp`: heads and hidden units over "tensor"."""
