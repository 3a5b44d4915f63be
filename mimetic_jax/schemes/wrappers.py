"""Schemes that modify another scheme: controls, polar factors, a range of layers."""

from __future__ import annotations

import dataclasses
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp

from mimetic_jax import weights
from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import Range
from mimetic_jax.schemes.base import Scheme
from mimetic_jax.schemes.block import Block, Context

_DENSE = frozenset({"mlp_in", "mlp_out", "token_in", "token_out"})

_DEPTH = Range(0, 1, reason="a fraction of depth: 0.5 is half of the layers")


@dataclasses.dataclass(frozen=True)
class _Wrapper(Scheme):
    """Base of schemes that write the roles of another one."""

    like: Scheme

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        return self.like.writes(roles)

    def check_tree(self, present: frozenset[str], written: frozenset[str]) -> None:
        self.like.check_tree(present, written)


@dataclasses.dataclass(frozen=True)
class _Control(_Wrapper):
    """Base of controls: every array that `like` writes is drawn anew, matching one property."""

    # The draw must be independent of the one that it matches, and of the other control's.
    _stream: ClassVar[int]

    def _like(self, key: jax.Array, target: jax.Array) -> jax.Array:
        raise NotImplementedError

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        target = self.like(key, block, context)
        keys = jax.random.split(jax.random.fold_in(key, self._stream), len(target))
        return {
            # A norm's gain has no structure, and with other signs it would be another model's.
            role: target[role] if role.endswith("_gain") else self._like(role_key, target[role])
            for role_key, role in zip(keys, sorted(target), strict=True)
        }


@dataclasses.dataclass(frozen=True)
class NormMatched(_Control):
    """The control: independent normal noise with the Frobenius norm that `like` gives each kernel.

    Attributes:
        like: the scheme whose norms are matched. Kernels that it sets to zero become zero.

    Example:
        >>> from mimetic_jax.schemes import Mimetic
        >>> sorted(NormMatched(Mimetic()).writes(frozenset({"query", "key", "position"})))
        ['key', 'query']
    """

    _stream: ClassVar[int] = 1

    def _like(self, key: jax.Array, target: jax.Array) -> jax.Array:
        return weights.norm_matched(key, target)


@dataclasses.dataclass(frozen=True)
class Shuffled(_Control):
    """The stricter control: the entries that `like` gives each kernel, in random order.

    Norm, mean and distribution of the entries are those of `like`; its structure is gone. The
    entries of all heads of a kernel are permuted together. Biases, where `like` writes them, are
    permuted too: zeros stay zeros.

    A permutation keeps the mean, so this is not a control for the constant form of `MeanShift`.

    Attributes:
        like: the scheme whose entries are permuted.

    Example:
        >>> from mimetic_jax.schemes import Mimetic
        >>> sorted(Shuffled(Mimetic()).writes(frozenset({"query", "key", "position"})))
        ['key', 'query']
    """

    _stream: ClassVar[int] = 2

    def _like(self, key: jax.Array, target: jax.Array) -> jax.Array:
        return weights.shuffled(key, target)


@dataclasses.dataclass(frozen=True)
class Polar(_Wrapper):
    """The polar factors of `like`: its singular vectors with equal singular values in every head.

    W = U Σ Vᵀ → s U Vᵀ for each head of query, key, value and out and for each whole MLP kernel,
    with one s per kernel that keeps its Frobenius norm. Condition numbers become 1, as in
    `Conditioned`, while products keep the singular vectors that `like` gives them:
    `Polar(Mimetic())` has W_Q W_Kᵀ = s² U_K V_Kᵀ with those of αZ + βI. Biases, positions and
    filters are those of `like`.

    Attributes:
        like: the scheme whose kernels are replaced.

    Example:
        >>> from mimetic_jax.schemes import Mimetic
        >>> sorted(Polar(Mimetic()).writes(frozenset({"query", "key", "position"})))
        ['key', 'query']
    """

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        new = self.like(key, block, context)
        return {role: _polar(role, array) for role, array in new.items()}


@dataclasses.dataclass(frozen=True)
class Layers(_Wrapper):
    """`like` in a range of depth; the other layers stay unchanged.

    Layer l of L is in the range if its middle is: first ≤ (l + ½)/L < last. So `Layers(like, 2/3,
    1)` is the last third, and adjacent ranges write each layer once. Blocks that don't repeat, such
    as the position table, are always written.

    Attributes:
        like: the scheme to apply.
        first, last: bounds of relative depth, 0 ≤ first < last ≤ 1: fractions, not layers.

    Example:
        >>> import jax.numpy as jnp
        >>> from mimetic_jax.schemes import Mimetic
        >>> block = Block.of({role: jnp.zeros((8, 2, 4)) for role in ("query", "key")})
        >>> last_third = Layers(Mimetic(), 2 / 3, 1)
        >>> [sorted(last_third(jax.random.key(0), block, Context(l, 6))) for l in (3, 4, 5)]
        [[], ['key', 'query'], ['key', 'query']]
    """

    by_depth: ClassVar[bool] = True
    first: Annotated[float, _DEPTH] = 0.0
    last: Annotated[float, _DEPTH] = 1.0

    def validate(self) -> None:
        if not self.first < self.last:
            raise InputError(
                f"first {self.first} and last {self.last} are not a range: give fractions of depth "
                "with first below last, such as 0.5 and 1 for the second half of the layers"
            )

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        depth = (context.layer + 0.5) / context.num_layers
        if context.num_layers == 1 or self.first <= depth < self.last:
            return self.like(key, block, context)
        return {}


def _polar(role: str, kernel: jax.Array) -> jax.Array:
    if role in ("query", "key", "value"):
        factor = weights.polar(kernel.swapaxes(0, 1)).swapaxes(0, 1)
    elif role == "out" or role in _DENSE:
        factor = weights.polar(kernel)
    else:
        return kernel
    norm = jnp.linalg.norm(factor.ravel()).clip(min=jnp.finfo(jnp.float32).tiny)
    return factor * (jnp.linalg.norm(kernel.ravel()) / norm)
