"""Heads that look at a distance, for models with rotary positions."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Annotated, Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.base.typed import Range
from mimetic_jax.schemes.base import Scheme, attention_kernels, both_or_none
from mimetic_jax.schemes.block import Block, Context
from mimetic_jax.schemes.mimetic import pair_sizes
from mimetic_jax.schemes.network import Arrays, Network
from mimetic_jax.weights.baselines import norm_matched
from mimetic_jax.weights.checks import NOT_NEGATIVE, POSITIVE
from mimetic_jax.weights.rotary import AXES, BASE, SHARE, Pairs, Rotary
from mimetic_jax.zoo.model_config import ModelConfig

_TOKENS = Range(-1e6, 1e6, reason="tokens")
_Numbers = tuple[float, ...]
_Offsets = tuple[float | _Numbers | tuple[_Numbers, ...], ...]
_Sharpness = float | tuple[float | _Numbers, ...]


@dataclasses.dataclass(frozen=True)
class PositionalHeads(Scheme):
    """Fixed-offset heads: components of queries and keys that don't depend on the token.

    With rotary positions nothing in the activations says where a token is, so W_Q W_Kᵀ ≈ βI can't
    make attention local. Trained rotary models do it with constant parts of query and key. In
    closed form, for the pair of columns f with rate θ_f as a complex number,

        b_Q = A_f e^{−iθ_f·δ},  b_K = A_f,  A_f² = S √K w_f,  Σ_f w_f = 1,

    which adds S Σ_f w_f cos θ_f·(n − m − δ) to the logit of query n and key m: a bump of height S
    at distance δ. w is uniform on rates of at least `slowest`. δ = 0 attends to the token itself as
    the self-attention paper's start does, 1 to the previous token; on a grid, offsets from the
    3×3 neighborhood are the structured paper's impulses. Query heads take the offsets in turn;
    those that share a key head differ in their query alone. Content kernels stay the model's own.

    *With biases* of query and key (Qwen 2, GPT-NeoX, Phi, our models) these become b_Q and b_K.

    *Without* (Llama, Mistral, Qwen 3, Gemma), `channel` names one of the D channels that is made
    constant, as trained models do with one or two: rows of the embedding get the norm √D σ, σ that
    of their entries, and τ √D σ in the channel c; out and mlp_out don't write it, value, mlp_in,
    mlp_gate and an untied unembedding don't read it, and W_Q[c], W_K[c] are such that the mean
    query and key of a layer are b_Q and b_K: with m [D], the mean of what the layer reads, which
    random tokens that pass through the kernels show (`schemes.network`),

        W_Q[c] = (b_Q − Σ_{d≠c} m_d W_Q[d]) / m_c.

    τ is the smallest from ½ to 1.5 by which the channel holds 20% of the squared norm that the
    last attention reads, as ½ gives the first: more would drown the content of the first layers.
    `check` prints the share that each layer has, and S as it is reached. Both hold for models whose
    norms come before attention and MLP: no weight shows a norm of the sum (post-norm), after which
    layers read a smaller share. A layer without a network
    around it, as of `initializers`, takes m_c = τ √D / √(1 + τ²), τ = ½, and m_d = 0.

    *With QK norm* a query of norm ‖q‖ is multiplied by γ √K / ‖q‖. Its gain, if the tree has it,
    becomes γ_q = √((S √K + ‖W_Q‖²) / K), the mean over heads, so that S stays what it is and
    content what it is without the norm; with γ = 1 logits can't exceed √K. If some heads have no
    constant part, the others reach less than S, and the content logits of these are scaled up.

    Attributes:
        base: ratio of the highest to the lowest rotary frequency, "rope_theta" of the model's
            configuration. Weights don't show it, so it has no default.
        turned: share of a head's columns that rotate, in (0, 1].
        pairs: which columns rotate together, "halves" or "neighbors", see `Rotary`.
        axes: 1 for a sequence, 2 for a grid.
        offsets: δ in tokens, 0 or more for the past; pairs of (rows, columns) if `axes` is 2.
            Or a tuple of such tuples, from the first layer to the last of a network of any depth:
            each layer takes the nearest.
        sharpness: S, likewise: one number, numbers in turn, or a tuple of these by depth. A head
            with 0 has no constant part. Defaults to 8 in the first half of a layer's heads: in a
            model of 12 layers and 8 heads 8 for all was worse than none.
        slowest: the lowest rate in use, in radians per token.
        channel: c, for models whose query and key have no biases; None for those with biases.

    Its controls keep all else, the constant channel too: `Permuted` gives each pair of each head a
    random phase, `NormMatched` each head's constant parts as noise of their norms.

    Raises:
        InputError: if a field is out of its range, or if the tree has no query and key biases and
            `channel` is None.

    Example:
        >>> roles = frozenset({"query", "key", "value", "query_bias", "key_bias"})
        >>> sorted(PositionalHeads(10_000).writes(roles))
        ['key_bias', 'query_bias']

    Reference: ours, from the weights of trained models: docs/trained.md. That they have such parts
    is found in Rotary Outliers and Rotary Offset Features (Jonasson 2025, arXiv 2503.01832).
    """

    gated = True
    exact = True
    own_controls = frozenset({"Permuted", "NormMatched"})
    base: Annotated[float, BASE] | None = None
    offsets: Annotated[_Offsets, _TOKENS] = (0, 1, 2, 3)
    sharpness: Annotated[_Sharpness, NOT_NEGATIVE] | None = None
    _: dataclasses.KW_ONLY
    turned: Annotated[float, SHARE] = 1.0
    pairs: Pairs = "halves"
    axes: Annotated[int, AXES] = 1
    slowest: Annotated[float, POSITIVE] = 0.05
    channel: Annotated[int, Range(0)] | None = None

    @classmethod
    def for_config(cls, config: Any, **fields: Any) -> Self:
        """Return the scheme for a model of Hugging Face, by its configuration.

        Base, share that turns, pairs, and whether query and key have biases are those of the
        configuration; a model without biases gets the channel 0.

        Args:
            config: a dictionary, an object with `to_dict`, or the path of a config.json or of its
                folder.
            **fields: other fields of the scheme.

        Raises:
            InputError: for a type of models that the zoo doesn't know, for a value of one of its
                fields that isn't implemented, and if logits or positions depend on what the scheme
                doesn't describe: scaled rates, a second base, layers without positions, a factor of
                the logits (which `zoo.rules_of_config` puts into rules).

        Example:
            >>> config = {"model_type": "llama", "rope_theta": 500000.0}
            >>> PositionalHeads.for_config(config) == PositionalHeads(500_000, channel=0)
            True
        """
        own = {field.name for field in dataclasses.fields(cls)} - {
            "base",
            "turned",
            "pairs",
            "axes",
        }
        if strays := fields.keys() - own:
            raise unknown("field", min(strays), own)
        stated = ModelConfig.of(config)
        stated.check_known()
        if (factor := stated.multiplier) is not None:
            raise _not_described(f"logits multiplied by {factor:g}, not by 1/√K", *stated.others)
        rotary = _positions(stated)
        if rotary is None:
            raise _not_described(f"model_type {stated.model_type!r}, without rotary positions")
        fields = {"channel": None if stated.biases else 0, **fields}
        scheme = cls(rotary.base, turned=rotary.turned, pairs=rotary.pairs, **fields)
        scheme.check_config(stated)
        return scheme

    def check_config(self, config: ModelConfig) -> None:
        """Raise InputError if a model's configuration has other positions than the scheme."""
        if (stated := _positions(config)) not in (None, self.rotary):
            raise InputError(f"the scheme is for {self.rotary}, the configuration says {stated}")
        if config.scaled >= self.slowest:
            raise _not_described(
                f"scaled rates below {config.scaled:.3g} radians per token, not below slowest "
                f"{self.slowest:g}"
            )

    @property
    def rotary(self) -> Rotary:
        """The rotary positions of the model."""
        return Rotary(self.base or 0, self.turned, self.pairs, self.axes)

    @property
    def depends_on_layer(self) -> bool:  # type: ignore[override]
        """Whether offsets or sharpness are given by depth."""
        return _nesting(self.offsets) > self.axes or _nesting(self.sharpness) > 1

    def validate(self) -> None:
        if self.base is None:
            raise InputError(
                "base is missing; pass the base of the model's rotary positions, rope_theta in its "
                "configuration, such as 10000; no weight shows it"
            )
        _nesting(self.sharpness)
        rows = _rows(self.offsets, self.axes)
        flat = [offset for row in rows for offset in (row if isinstance(row, tuple) else (row,))]
        for offset in flat:
            if self.axes != (len(offset) if isinstance(offset, tuple) else 1):
                form = "numbers" if self.axes == 1 else "pairs of (rows, columns)"
                raise InputError(f"offset {offset}: on {self.axes} axes offsets are {form}")

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        kernels = attention_kernels(roles)
        attends = bool(both_or_none(kernels, "query", "key"))
        gains = roles & {"query_gain", "key_gain"} if attends else frozenset()
        if self.channel is None:
            biases = roles & {"query_bias", "key_bias"} if attends else frozenset()
            if attends and len(biases) < 2:
                raise InputError(
                    "query and key have no biases, which PositionalHeads needs by default. Pass "
                    "PositionalHeads(base, channel=0): it uses one channel of the token embedding "
                    "instead, and needs a rule for it (embedding_rules)."
                )
            return biases | gains
        kernels |= roles & {"mlp_in", "mlp_gate", "mlp_out", "embedding", "unembedding"}
        return kernels | gains | (roles & {f"{role}_bias" for role in kernels & _WRITERS})

    def undone_by(self, written: frozenset[str], later: frozenset[str]) -> frozenset[str]:
        """Return all roles but the output layer: S is that of the whole network, and a gain that of
        the kernels' norms."""
        kernels = {"query", "key"} if "query_gain" in written else set()
        return later & (written | kernels) - {"unembedding"}

    def check_tree(self, present: frozenset[str], written: frozenset[str]) -> None:
        if "position" in present:
            raise InputError(
                "PositionalHeads is for rotary positions, and this tree has a position embedding. "
                "For added positions use Mimetic(); if none are added, put Rule(path, ()) in front "
                "of the rules."
            )
        if self.channel is not None and "embedding" not in written:
            raise InputError(
                f"channel={self.channel} needs the token embedding, but no rule matches it. Add "
                "Rule(path, 'embedding', 't d') in front of the rules."
            )

    def survey(self, network: Callable[[], Network], written: frozenset[str]) -> Any:
        """τ, and what each layer's attention reads on average [L, D], if a channel is constant."""
        if self.channel is None:
            return None
        decoder = network()
        _, tau = self._passed(decoder, _TAU)
        means, _ = self._passed(decoder, tau)
        return {"tau": tau, "means": jnp.stack(means)}

    def _passed(self, network: Network, tau: jax.Array | float) -> tuple[list[Any], jax.Array]:
        """The means by layer with this τ; and the τ by which the last layer has enough."""
        means: list[jax.Array] = []

        def new(kind: str, block: Block, read: jax.Array) -> Arrays:
            arrays = {role: block[role] for role in block}
            written, parts, mean = self.writes(frozenset(block) & network.writable), None, None
            if kind == "attention":
                mean = read.mean(axis=0)
                parts = self._constant_parts(block, Context(len(means), len(network.layers)))
                means.append(mean)
            return arrays | _rewritten(self, written, arrays, parts, tau, mean)

        *_, (last, _) = network.read_by_attention(self.rotary, new)
        constant = jnp.mean(last[:, self.channel] ** 2)
        content = jnp.mean(jnp.sum(last**2, axis=1)) - constant
        most, least = (share / (1 - share) for share in (_MOST, _LEAST))
        enough = least * content / constant * tau**2
        return means, jnp.sqrt(jnp.clip(enough, _TAU**2, most))

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        return self._drawn(block, context, lambda parts: parts)

    def controlled(
        self, kind: str, key: jax.Array, block: Block, context: Context
    ) -> dict[str, jax.Array]:
        change = self._other_phases if kind == "Permuted" else _noise
        return self._drawn(block, context, functools.partial(change, key))

    def _drawn(
        self, block: Block, context: Context, change: Callable[[Arrays], Arrays]
    ) -> dict[str, jax.Array]:
        written, surveyed = self.writes(frozenset(block)), context.surveyed or {"tau": _TAU}
        attends = {"query", "key"} & block.keys()
        parts = change(self._constant_parts(block, context)) if attends else None
        needed = written if self.channel is not None else frozenset()
        needed |= {role for role in attends if f"{role}_gain" in written}
        arrays = {role: block[role] for role in sorted(needed)}
        mean = surveyed["means"][context.layer] if attends and "means" in surveyed else None
        return _rewritten(self, written, arrays, parts, surveyed["tau"], mean)

    def heads(self, count: int, layer: int = 0, num_layers: int = 1) -> list[tuple[Any, float]]:
        """Return (δ, S) of each of so many query heads of a layer.

        >>> PositionalHeads(10_000, offsets=(0, 1)).heads(3)
        [(0.0, 8.0), (1.0, 8.0), (0.0, 0.0)]
        """
        if (given := self.sharpness) is None:
            given = tuple(_SHARPNESS * (2 * h < count) for h in range(count))
        # The layer is traced where nothing depends on it.
        offsets, sharpness = (
            row[round(layer / max(num_layers - 1, 1) * (len(row) - 1))] if len(row) > 1 else row[0]
            for row in (_rows(self.offsets, self.axes), _rows(given, 1))
        )
        return [(offsets[h % len(offsets)], sharpness[h % len(sharpness)]) for h in range(count)]

    def every_offset(self) -> set[tuple[float, ...]]:
        """Return the offsets of all heads in all layers, one number per axis."""
        rows = _rows(self.offsets, self.axes)
        return {at if isinstance(at, tuple) else (at,) for row in rows for at in row}

    def _constant_parts(self, block: Block, context: Context) -> dict[str, jax.Array]:
        """b_Q [H, K] and b_K [G, K], by the role of their kernel."""
        _, heads, width, groups = pair_sizes(block, "query", "key")
        rates_FxA, fast_F = self.rotary.rates(width), self.rotary.fast(width, self.slowest)
        if not fast_F.any():
            raise InputError(
                f"slowest={self.slowest} exceeds the fastest rotary frequency, "
                f"{np.abs(rates_FxA).max():.3g} radians per token. Pass a smaller value."
            )
        offsets, sharpness = zip(*self.heads(heads, context.layer, context.num_layers), strict=True)
        angles = np.reshape(offsets, (heads, self.axes)) @ rates_FxA.T % (2 * math.pi)
        # The largest S of the heads that share a key is in the key, the rest in the queries.
        sharpness_GxR = np.reshape(sharpness, (groups, -1))
        largest_Gx1 = sharpness_GxR.max(axis=1, keepdims=True)
        key_GxF = np.sqrt(largest_Gx1 * np.sqrt(width) / fast_F.sum()) * fast_F
        share_GxR = sharpness_GxR / np.where(largest_Gx1 > 0, largest_Gx1, 1)
        query_HxF = (share_GxR[..., None] * key_GxF[:, None]).reshape(heads, -1)
        turned_HxF = query_HxF * np.exp(-1j * angles)
        return {
            "query": self._columns(turned_HxF.real, turned_HxF.imag, width),
            "key": self._columns(key_GxF, np.zeros(key_GxF.shape), width),
        }

    def _columns(self, real: Any, imaginary: Any, head_dim: int) -> jax.Array:
        """Complex numbers of pairs [..., F] as the columns [..., K] of heads."""
        columns = jnp.zeros((*real.shape[:-1], head_dim))
        for place, part in zip(self.rotary.places(head_dim), (real, imaginary), strict=True):
            columns = columns.at[..., place].set(part)
        return columns

    def _other_phases(self, key: jax.Array, parts: Arrays) -> Arrays:
        """The parts of the queries turned by random angles, one for each pair of each head."""
        query_HxK = parts["query"]
        real, imaginary = self.rotary.places(query_HxK.shape[-1])
        sizes = jnp.hypot(query_HxK[:, real], query_HxK[:, imaginary])
        angles = jax.random.uniform(key, sizes.shape, maxval=2 * math.pi)
        turned = sizes * jnp.cos(angles), sizes * jnp.sin(angles)
        return {**parts, "query": self._columns(*turned, query_HxK.shape[-1])}


def _positions(config: ModelConfig) -> Rotary | None:
    """Those of all layers; None without rotary positions."""
    if config.others:
        raise _not_described(*config.others)
    if len(config.rotary) > 1:
        raise _not_described(f"layers with other bases of rotary positions ({config.bases})")
    return config.rotary[0] if config.rotary else None


def _not_described(*parts: str) -> InputError:
    has = ", ".join(parts)
    return InputError(
        f"PositionalHeads does not support {has}, which the configuration has. Keep the model's "
        "own initialization, or use PositionalHeads(base, …) if the difference does not matter."
    )


@functools.partial(jax.jit, static_argnums=(0, 1))
def _rewritten(
    scheme: PositionalHeads,
    written: frozenset[str],
    arrays: Arrays,
    parts: Arrays | None,
    tau: jax.Array | float,
    mean_D: jax.Array | None,
) -> dict[str, jax.Array]:
    """The arrays that are written, with these parts of query and key where this mean is read."""
    new = {}
    if (channel := scheme.channel) is not None:
        for role in sorted(written - {"query_gain", "key_gain"}):
            new[role] = _with_constant_channel(role, arrays[role], channel, tau)
    for role, part in (parts or {}).items():
        if channel is None:
            new[f"{role}_bias"] = part
        if f"{role}_gain" in written or channel is not None:
            kernel, content = arrays[role], jnp.ones(())
        if channel is not None:
            kernel = kernel.at[channel].set(0)
            if mean_D is None:
                mean_D = jnp.zeros(len(kernel)).at[channel].set(constant_after_norm(len(kernel)))
            # Other channels have means, too: the mean query of a head that looks shall be `part`.
            others = jnp.einsum("d,dhk->hk", mean_D, kernel, precision="highest")
            looks = part.any(axis=1, keepdims=True)
            new[role] = kernel.at[channel].set(jnp.where(looks, part - others, 0) / mean_D[channel])
            content = (len(kernel) - mean_D[channel] ** 2) / max(len(kernel) - 1, 1)
        if f"{role}_gain" in written:
            squares = content * jnp.square(kernel).sum(axis=(0, 2))
            size = jnp.mean(squares + jnp.square(part).sum(axis=1))
            width = part.shape[-1]
            new[f"{role}_gain"] = jnp.full(width, jnp.sqrt(size / width))
    return new


def _with_constant_channel(
    role: str, array: jax.Array, channel: int, tau: jax.Array | float
) -> jax.Array:
    """A kernel or bias that neither reads nor writes the channel, or the embedding with it."""
    width = array.shape[0 if role in _READERS | {"query", "key"} else -1]
    if channel >= width:
        raise InputError(f"channel must be in 0…{width - 1}; got {channel}")
    if role in _READERS:
        return array.at[channel].set(0)
    if role in ("query", "key"):
        return array
    array = array.at[..., channel].set(0)
    if role == "embedding":
        norms_Tx1 = jnp.linalg.norm(array, axis=-1, keepdims=True)
        norm = jnp.sqrt(jnp.mean(norms_Tx1**2))
        array = array * (norm / jnp.where(norms_Tx1 > 0, norms_Tx1, 1))
        array = array.at[:, channel].set(tau * norm)
    return array


_SHARPNESS = 8.0
_TAU = 0.5
"""The least τ: the constant channel has τ²/(1 + τ²), a fifth, of the energy of the first
activations."""
_LEAST, _MOST = 0.2, 0.7
"""The share that the last attention should have, and the most that the first may: trained models
have 0.51 to 0.70."""


def constant_after_norm(dim: int) -> float:
    """y = τ √D / √(1 + τ²): the constant channel among D after RMSNorm of gain 1.

    >>> round(constant_after_norm(64), 3)
    3.578
    """
    return _TAU * math.sqrt(dim / (1 + _TAU**2))


_READERS = frozenset({"value", "mlp_in", "mlp_gate"})
_WRITERS = frozenset({"out", "mlp_out"})


def _noise(key: jax.Array, parts: Arrays) -> Arrays:
    """Normal noise with the norms of each head's parts."""
    keys = dict(zip(sorted(parts), jax.random.split(key, len(parts)), strict=True))
    return {
        role: jax.vmap(norm_matched)(jax.random.split(keys[role], len(part)), part)
        for role, part in parts.items()
    }


def _nesting(value: Any) -> int:
    """How many tuples are around each number."""
    if not isinstance(value, tuple):
        return 0
    inner = {_nesting(item) for item in value}
    if len(inner) != 1:
        raise InputError(
            "offsets and sharpness need at least one number at each depth, and all of them as "
            f"deep; got {value}"
        )
    return 1 + inner.pop()


def _rows(value: Any, level: int) -> tuple[Any, ...]:
    """Numbers by depth; if they aren't, as one row."""
    value = value if isinstance(value, tuple) else (value,)
    return value if _nesting(value) > level else (value,)
