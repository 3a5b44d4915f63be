"""Schemes that modify another scheme: controls, a range of layers."""

from __future__ import annotations

import dataclasses
import operator
import zlib
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import jax

from mimetic_jax import weights
from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import Range
from mimetic_jax.schemes.base import Scheme, call_of, inside
from mimetic_jax.schemes.block import Block, Context
from mimetic_jax.schemes.network import Network

_PARTNERS = frozenset({"value", "query_bias", "key_bias", "mlp_in", "token_in", "position"})
"""What schemes look for beside the roles of channels."""

_CHANNELS = {
    **{"key": 0, "query": 0, "out": -1, "mlp_out": -1, "token_out": -1},
    "embedding": 0,
    "patch": 0,
}
"""The axes that `Permuted` permutes: channels, a query's only if no key is written, and tokens."""

_DEPTH = Range(0, 1, reason="a fraction of depth: 0.5 is half of the layers")


@dataclasses.dataclass(frozen=True)
class _Wrapper(Scheme):
    """Base of schemes that write the roles of another one."""

    like: Scheme

    def __post_init__(self) -> None:
        several = self.like
        if isinstance(several, tuple | list) and all(isinstance(x, Scheme) for x in several):
            name = type(self).__name__
            each = ", ".join(f"{name}({call_of(one)})" for one in several)
            raise InputError(f"{name} must have one scheme; got {len(several)}. Pass ({each}).")
        super().__post_init__()

    gated = property(operator.attrgetter("like.gated"))
    exact = property(operator.attrgetter("like.exact"))
    partial = property(operator.attrgetter("like.partial"))
    needs = property(operator.attrgetter("like.needs"))
    uses = property(operator.attrgetter("like.uses"))

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        return self.like.writes(roles)

    def undone_by(self, written: frozenset[str], later: frozenset[str]) -> frozenset[str]:
        return self.like.undone_by(written, later)

    def covers(self, layer: int, num_layers: int) -> bool:
        return self.like.covers(layer, num_layers)

    def check_tree(self, present: frozenset[str], written: frozenset[str]) -> None:
        self.like.check_tree(present, written)

    def note(self, block: Block, context: Context) -> str:
        return self.like.note(block, context)

    def survey(self, network: Callable[[], Network], written: frozenset[str]) -> Any:
        return self.like.survey(network, written)


@dataclasses.dataclass(frozen=True)
class NormMatched(_Wrapper):
    """The control: independent normal noise with the Frobenius norm that `like` gives each kernel.

    Attributes:
        like: the scheme whose norms are matched. Kernels that it sets to zero become zero. Of
            `PositionalHeads` the constant parts alone become noise, each head's of their norm. What
            is only multiplied stays that of `like`: gains of norms, positions beside an embedding.

    Raises:
        InputError: if a field is out of its range.

    Example:
        >>> import jax.numpy as jnp
        >>> from mimetic_jax.schemes import Mimetic
        >>> block = Block.of({role: jnp.zeros((8, 1, 8)) for role in ("query", "key")})
        >>> both = (Mimetic(), NormMatched(Mimetic()))
        >>> drawn = [scheme(jax.random.key(0), block, Context())["query"] for scheme in both]
        >>> bool(jnp.allclose(*(jnp.linalg.norm(kernel.ravel()) for kernel in drawn), rtol=1e-5))
        True
    """

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        # Noise must be independent of the draw whose norms it has, and of its permutation.
        stream = jax.random.fold_in(key, 1)
        if "NormMatched" in self.like.own_controls:
            return self.like.controlled("NormMatched", stream, block, context)
        new = self.like(key, block, context)
        # A norm's gain has no structure, and with other signs it would be another model's. Beside
        # an embedding positions are those of before, times a number.
        kept = {"position"} if "embedding" in new else set()
        return {
            role: array
            if role.endswith("_gain") or role in kept
            else weights.norm_matched(jax.random.fold_in(stream, zlib.crc32(role.encode())), array)
            for role, array in new.items()
        }


@dataclasses.dataclass(frozen=True)
class Permuted(_Wrapper):
    """The control of alignment: the kernels of `like`, with channels in random order.

    W_K → P W_K and W_out → W_out P, so that W_Q W_Kᵀ → W_Q W_Kᵀ Pᵀ and W_V W_out → W_V W_out P, P a
    random permutation of its own for each kernel, the same for all heads. Likewise W_2 → W_2 P of
    an MLP, over channels or tokens; W_Q → P W_Q if `like` writes no key; E → P E of an embedding of
    tokens or patches, whose rows become those of other tokens, or of other pixels and colors. Every
    entry, norm and singular value of each kernel stays; only the alignment goes. All else is that
    of `like`, such as biases and the means of `MeanShift`. Of `PositionalHeads` each pair of each
    head gets a random phase instead: the same sizes, no distance.

    Attributes:
        like: the scheme whose kernels are permuted.

    Raises:
        InputError: `like` writes no kernel that would change.

    Example:
        >>> from mimetic_jax.schemes import Mimetic
        >>> import jax.numpy as jnp
        >>> block = Block.of({role: jnp.zeros((8, 1, 8)) for role in ("query", "key")})
        >>> new = Permuted(Mimetic(alpha_qk=0.0))(jax.random.key(0), block, Context())
        >>> (new["query"][:, 0] @ new["key"][:, 0].T > 0.6).astype(int).sum(axis=0)
        Array([1, 1, 1, 1, 1, 1, 1, 1], dtype=int32)
    """

    def validate(self) -> None:
        roles = self.like.writes(_PARTNERS.union(_CHANNELS))
        if "Permuted" not in self.like.own_controls and not roles & _CHANNELS.keys():
            name = type(self.like).__name__
            raise InputError(
                f"Permuted({name}) would be {name} itself, which writes none of "
                f"{', '.join(_CHANNELS)}: use NormMatched as its control"
            )

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        # Far from the small numbers that give `like` its keys: fold_in(key, i) is split(key, n)[i].
        stream = jax.random.fold_in(key, 2**31)
        if "Permuted" in self.like.own_controls:
            return self.like.controlled("Permuted", stream, block, context)
        new = self.like(key, block, context)
        roles = new.keys() & _CHANNELS.keys()
        if "key" in new:  # its channels alone: two permutations of one product are one
            roles -= {"query"}
        return new | {
            role: _in_random_order(
                jax.random.fold_in(stream, zlib.crc32(role.encode())), role, new[role]
            )
            for role in sorted(roles)
        }


def _in_random_order(key: jax.Array, role: str, array: jax.Array) -> jax.Array:
    if role == "patch":  # the pixels and their channels, which have three axes
        pixels = array.reshape(-1, array.shape[-1])
        return jax.random.permutation(key, pixels).reshape(array.shape)
    return jax.random.permutation(key, array, _CHANNELS[role])


@dataclasses.dataclass(frozen=True)
class Layers(_Wrapper):
    """`like` in a range of depth; the other layers keep their arrays.

    Layer l of L is in the range if its middle is: first ≤ (l + ½)/L < last. So `Layers(like, 2/3,
    1)` is the last third, and adjacent ranges write each layer once. Blocks that don't repeat, such
    as the position table, are always written. Of layers that are stacked in one leaf the others are
    stored again as float32: what is stored in more digits, or divided by √K, is rounded.

    Attributes:
        like: the scheme to apply.
        first: lower bound of relative depth, a fraction in [0, 1].
        last: upper bound, excluded, above `first`.

    Raises:
        InputError: if a field is out of its range, or unless first < last.

    Example:
        >>> import jax.numpy as jnp
        >>> from mimetic_jax.schemes import Mimetic
        >>> block = Block.of({role: jnp.zeros((8, 2, 4)) for role in ("query", "key")})
        >>> last_third = Layers(Mimetic(), 2 / 3, 1)
        >>> drawn = [last_third(jax.random.key(0), block, Context(l, 6)) for l in (3, 4, 5)]
        >>> [bool(layer["query"].any()) for layer in drawn]
        [False, True, True]
    """

    depends_on_layer: ClassVar[bool] = True
    first: Annotated[float, _DEPTH] = 0.0
    last: Annotated[float, _DEPTH] = 1.0

    @property
    def own_controls(self) -> frozenset[str]:  # type: ignore[override]
        """Those of `like`."""
        return self.like.own_controls

    def validate(self) -> None:
        if not self.first < self.last:
            raise InputError(
                f"first {self.first} and last {self.last} are not a range; pass fractions of depth "
                "with first below last, such as 0.5 and 1 for the second half of the layers"
            )
        if any(getattr(part, "channel", None) is not None for part in inside([self.like])):
            raise InputError(
                "Layers would leave layers that write the constant channel; pass sharpness by "
                "depth instead, such as sharpness=((0.0,), (8.0,))"
            )

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        return self.like(key, block, context)

    def controlled(
        self, kind: str, key: jax.Array, block: Block, context: Context
    ) -> dict[str, jax.Array]:
        return self.like.controlled(kind, key, block, context)

    def covers(self, layer: int, num_layers: int) -> bool:
        within = num_layers == 1 or self.first <= (layer + 0.5) / num_layers < self.last
        return within and self.like.covers(layer, num_layers)
