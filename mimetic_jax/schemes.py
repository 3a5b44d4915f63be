"""Schemes: a method of initialization and its constants, as plain frozen data.

A scheme is a pure function (block key, block, context) → new arrays for some of the block's
roles. A *block* is what shares one parent in the parameter tree: an attention layer, an MLP,
the root with its position table. Its arrays are *canonical*, whatever their storage:

| role                                | shape     | role         | shape     |
|-------------------------------------|-----------|--------------|-----------|
| query                               | [D, H, K] | query_bias   | [H, K]    |
| key, value                          | [D, G, K] | key_bias, …  | [G, K]    |
| out                                 | [H, K, D] | out_bias     | [D]       |
| position (class-token rows included)| [N, D]    |              |           |

`rewrite` finds the blocks of a tree and applies a scheme, or a tuple of schemes from left to
right, each seeing the tree that the one before left.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self, TypeAlias

import jax
import jax.numpy as jnp

from mimetic_jax import weights
from mimetic_jax.errors import InputError, unknown
from mimetic_jax.weights.attention import Degenerate, Noise

Depthwise: TypeAlias = float | tuple[float, ...] | Callable[[float], float]


@dataclasses.dataclass(frozen=True)
class Context:
    """What a scheme may know beside its own block.

    Attributes:
        layer: index of the block among its like, from 0.
        num_layers: how many there are.
        position: rows of the position table that belong to the grid [h·w, D]; None if the tree
            has no table or several.
        grid: (h, w) of the patches; None if unknown.
    """

    layer: int = 0
    num_layers: int = 1
    position: jax.Array | None = None
    grid: tuple[int, int] | None = None


class Block(Mapping[str, jax.Array]):
    """The canonical arrays of one block by role, fetched only when a scheme looks at them.

    >>> Block.of({"query": jnp.zeros((8, 2, 4))}).shapes
    {'query': (8, 2, 4)}
    """

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        fetch: Callable[[str], jax.Array],
    ) -> None:
        self.shapes = dict(shapes)
        self._fetch = fetch

    @classmethod
    def of(cls, arrays: Mapping[str, jax.Array]) -> Self:
        """A block of arrays at hand."""
        return cls({role: array.shape for role, array in arrays.items()}, arrays.__getitem__)

    def __getitem__(self, role: str) -> jax.Array:
        return self._fetch(role)

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


@dataclasses.dataclass(frozen=True)
class Scheme:
    """What every scheme is: frozen data with two methods.

    Subclasses say which roles of a block they write, and write them.
    """

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        """The roles that would be overwritten in a block that has `roles`; empty: not mine."""
        raise NotImplementedError

    def __call__(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        """New canonical arrays for exactly `writes(block's roles)`."""
        raise NotImplementedError

    def at(self, layer: int, num_layers: int) -> Self:
        """The scheme of one layer: sequences and functions of depth become numbers.

        >>> Mimetic(beta_vo=lambda depth: -0.4 * (1 - depth)).at(11, 12).beta_vo
        -0.0
        """
        resolved = {
            field.name: _at(field.name, getattr(self, field.name), layer, num_layers)
            for field in dataclasses.fields(self)
        }
        return dataclasses.replace(self, **resolved)


@dataclasses.dataclass(frozen=True)
class Mimetic(Scheme):
    """Mimetic initialization of self-attention: W_Q W_Kᵀ ≈ αZ + βI, W_V W_out ≈ αZ + βI, β_vo < 0.

    Every α and β is a number, a sequence with one number a layer, or a function of relative
    depth in [0, 1]. A pair whose α and β are None is left untouched.

    Attributes:
        alpha_qk, beta_qk: noise and identity of the query/key product.
        alpha_vo, beta_vo: noise and (signed) identity of the value/out product.
        noise: "normal" or "uniform".
        degenerate: what truncation keeps where α = 0: "first_k" or "random_basis".
        zero_bias: whether the attention's biases become zero.

    Example:
        >>> only_query_key = Mimetic(alpha_vo=None, beta_vo=None)
        >>> sorted(only_query_key.writes(frozenset({"query", "key", "value", "out"})))
        ['key', 'query']

    Reference: Mimetic Initialization of Self-Attention Layers, eqs. 2 and 5-7.
    """

    alpha_qk: Depthwise | None = 0.7
    beta_qk: Depthwise | None = 0.7
    alpha_vo: Depthwise | None = 0.4
    beta_vo: Depthwise | None = -0.4
    noise: Noise = "normal"
    degenerate: Degenerate = "first_k"
    zero_bias: bool = True

    def __post_init__(self) -> None:
        for name in ("alpha_qk", "beta_qk", "alpha_vo", "beta_vo"):
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        for pair in ("qk", "vo"):
            alpha, beta = getattr(self, f"alpha_{pair}"), getattr(self, f"beta_{pair}")
            if (alpha is None) != (beta is None):
                raise InputError(
                    f"alpha_{pair}={alpha} and beta_{pair}={beta}: a pair is left untouched by "
                    "setting both to None"
                )

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        written: set[str] = set()
        for pair, alpha in ((("query", "key"), self.alpha_qk), (("value", "out"), self.alpha_vo)):
            present = roles & set(pair)
            if alpha is None or not present:
                continue
            if len(present) == 1:
                raise InputError(
                    f"Mimetic draws {pair[0]} and {pair[1]} together but only "
                    f"{next(iter(present))} was found"
                )
            written |= present
            if self.zero_bias:
                written |= roles & {f"{role}_bias" for role in pair}
        return frozenset(written)

    def __call__(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        # Of one layer, α and β are numbers.
        scheme: Any = self.at(context.layer, context.num_layers)
        key_qk, key_vo = jax.random.split(key)
        style: dict[str, Any] = {"noise": self.noise, "degenerate": self.degenerate}
        written = self.writes(frozenset(block))
        new = {role: jnp.zeros(block.shapes[role]) for role in written if role.endswith("_bias")}
        if "query" in written:
            sizes = _attention_sizes(block.shapes["query"], block.shapes["key"], "query", "key")
            new["query"], new["key"] = weights.query_key(
                key_qk, **sizes, alpha=scheme.alpha_qk, beta=scheme.beta_qk, **style
            )
        if "value" in written:
            H, K, D = block.shapes["out"]
            sizes = _attention_sizes((D, H, K), block.shapes["value"], "out", "value")
            new["value"], new["out"] = weights.value_out(
                key_vo, **sizes, alpha=scheme.alpha_vo, beta=scheme.beta_vo, **style
            )
        return new


def mimetic_language(**constants: Any) -> Mimetic:
    """The paper's setting for language models: W_Q W_Kᵀ = ½ I on K coordinates, small W_V W_out.

    >>> mimetic_language().alpha_qk, mimetic_language().beta_vo
    (0.0, -0.2)

    Reference: Mimetic Initialization of Self-Attention Layers, section on language.
    """
    return Mimetic(
        **{"alpha_qk": 0.0, "beta_qk": 0.5, "alpha_vo": 0.2, "beta_vo": -0.2, **constants}
    )


@dataclasses.dataclass(frozen=True)
class SinCos(Scheme):
    """Sin-cos positions in the (still trainable) position table; class-token rows become zero.

    γ · sincos_2d(h, w, D) on the patch grid, or γ · sincos_1d(N, D) for text.

    Attributes:
        scale: γ, the amplitude.
        temperature: ratio of the highest to the lowest frequency.
        axes: 2 for images, 1 for text.

    Reference: Mimetic Initialization of Self-Attention Layers, section 4; γ ≈ 2 gains a little
    on CIFAR-10.
    """

    scale: float = 1.0
    temperature: float = 10_000.0
    axes: int = 2

    def __post_init__(self) -> None:
        if self.axes not in (1, 2):
            raise InputError(f"axes {self.axes} is neither 1 (text) nor 2 (images)")

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        return roles & {"position"}

    def __call__(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        del key  # nothing here is random
        N, D = block.shapes["position"]
        waves = {"temperature": self.temperature, "scale": self.scale}
        if self.axes == 1:
            return {"position": weights.sincos_1d(N, D, **waves)}
        if context.grid is None:
            raise InputError(
                f"{N} positions are no square grid, with or without a class token: give grid=(h, w)"
            )
        h, w = context.grid
        if not 0 <= N - h * w <= 2:
            raise InputError(f"a grid of {h}x{w} doesn't fit a table of {N} positions")
        table = weights.sincos_2d(h, w, D, **waves)
        return {"position": jnp.pad(table, ((N - h * w, 0), (0, 0)))}


@dataclasses.dataclass(frozen=True)
class NormMatched(Scheme):
    """The control: independent normal noise with the Frobenius norm that `like` gives a kernel.

    Attributes:
        like: the scheme whose norms are matched, kernel by kernel. What it sets to zero is zero.

    Example:
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


_SCHEMES = {scheme.__name__: scheme for scheme in (Mimetic, SinCos, NormMatched)}


def to_dict(scheme: Scheme) -> dict[str, Any]:
    """The scheme as plain JSON-able data.

    >>> to_dict(SinCos(scale=2.0))
    {'scheme': 'SinCos', 'scale': 2.0, 'temperature': 10000.0, 'axes': 2}
    """
    fields = {field.name: getattr(scheme, field.name) for field in dataclasses.fields(scheme)}
    for name, value in fields.items():
        if isinstance(value, Scheme):
            fields[name] = to_dict(value)
        elif callable(value):
            raise InputError(
                f"{type(scheme).__name__}.{name} is a function, which can't be written down: "
                "give one number a layer instead"
            )
    return {"scheme": type(scheme).__name__, **fields}


def from_dict(data: Mapping[str, Any]) -> Scheme:
    """The inverse of `to_dict`.

    >>> from_dict(to_dict(NormMatched(Mimetic()))) == NormMatched(Mimetic())
    True

    Raises:
        InputError: for an unknown scheme or field, with the nearest name.
    """
    fields = dict(data)
    name = fields.pop("scheme", None)
    if name not in _SCHEMES:
        raise unknown("scheme", name, _SCHEMES)
    known = {field.name for field in dataclasses.fields(_SCHEMES[name])}
    for field, value in fields.items():
        if field not in known:
            raise unknown(f"field of {name}", field, known)
        if isinstance(value, Mapping):
            fields[field] = from_dict(value)
    return _SCHEMES[name](**fields)


def as_tuple(scheme: Scheme | tuple[Scheme, ...]) -> tuple[Scheme, ...]:
    """One scheme or several, as several; anything else is an error that names it."""
    several = scheme if isinstance(scheme, tuple) else (scheme,)
    for one in several:
        if not isinstance(one, Scheme):
            raise InputError(
                f"{one!r} is not a scheme: use one of {', '.join(sorted(_SCHEMES))} from "
                "mimetic_jax.schemes, or a tuple of them"
            )
    return several


def _at(name: str, value: Any, layer: int, num_layers: int) -> Any:
    if isinstance(value, tuple):
        if len(value) != num_layers:
            raise InputError(f"{name} has {len(value)} values for {num_layers} layers")
        return value[layer]
    if isinstance(value, Scheme):
        return value.at(layer, num_layers)
    if callable(value):
        return value(layer / max(num_layers - 1, 1))
    return value


def _attention_sizes(
    wide: tuple[int, ...], narrow: tuple[int, ...], wide_role: str, narrow_role: str
) -> dict[str, Any]:
    """D, H, G, K from the shapes [D, H, K] and [D, G, K] of a pair."""
    if len(wide) != 3 or len(narrow) != 3 or wide[0] != narrow[0] or wide[2] != narrow[2]:
        raise InputError(
            f"{wide_role} {wide} and {narrow_role} {narrow} (width, heads, head width) have no "
            "square product"
        )
    D, H, K = wide
    return {"dim": D, "num_heads": H, "head_dim": K, "num_kv_heads": narrow[1]}
