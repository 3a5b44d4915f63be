"""The controls that a scheme is compared with."""

from __future__ import annotations

import dataclasses

import jax

from mimetic_jax import weights
from mimetic_jax.schemes.base import Block, Context, Scheme


@dataclasses.dataclass(frozen=True)
class NormMatched(Scheme):
    """The control: independent normal noise with the Frobenius norm that `like` gives a kernel.

    Attributes:
        like: the scheme whose norms are matched, kernel by kernel. What it sets to zero is zero.

    Example:
        >>> from mimetic_jax.schemes import Mimetic
        >>> sorted(NormMatched(Mimetic()).writes(frozenset({"query", "key", "position"})))
        ['key', 'query']
    """

    like: Scheme

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        return self.like.writes(roles)

    def __call__(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        target = self.like(key, block, context)
        # Not `key` itself: the noise must be independent of the draw whose norm it matches.
        keys = jax.random.split(jax.random.fold_in(key, 1), len(target))
        return {
            role: weights.norm_matched(role_key, target[role])
            for role_key, role in zip(keys, sorted(target), strict=True)
        }
