"""The layers of a network in their order, and what random tokens make of the activations there."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.schemes.block import Block
from mimetic_jax.weights.rotary import Rotary

T = TypeVar("T")
Arrays = Mapping[str, jax.Array]
LENGTH, NUMBERS = 64, 4096
"""Tokens of a random text, and the numbers of one channel's width that texts have together: a
narrow network needs more of them for the same precision. The second half of a text counts, since
what attention adds to the first few tokens is larger."""


@dataclasses.dataclass(frozen=True)
class NetworkLayer:
    """Attention and the MLP after it.

    Attributes:
        at: path and index of the attention.
        attention: its arrays by role, with the gains and scales around it.
        mlp: those of the MLP, likewise; None if no rule describes it.
        parallel: whether the MLP reads the same activations as attention.
        norms_after: "attention" or "mlp", or both, if a norm comes after it, before the sum.
    """

    at: tuple[str, int | None]
    attention: Block
    mlp: Block | None
    parallel: bool = False
    norms_after: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class Network:
    """A decoder: the embedding of tokens, its layers from the first to the last, and the norm
    before the output layer, None if that isn't known.

    `writable` are the roles in it that schemes may write.
    """

    embedding: Block
    layers: tuple[NetworkLayer, ...]
    last: Block | None = None
    writable: frozenset[str] = frozenset()

    def read_by_attention(
        self,
        rotary: Rotary | Sequence[Rotary | None],
        new: Callable[[str, Block, jax.Array], Arrays] = lambda kind, block, read: block,
    ) -> Iterator[tuple[jax.Array, jax.Array]]:
        """Yield the activations before each attention, and what it reads of them, [N, D] each.

        Args:
            rotary: the positions; with two axes of a square, without a causal mask. Or those of
                each layer, None for one without positions.
            new: other arrays of the "embedding", or of "attention" or an "mlp" in a block that may
                hold both, which reads these activations.
        """
        return itertools.islice(self._passed(rotary, new), len(self.layers))

    def read_by_output(self) -> jax.Array:
        """Return what the output layer reads, [N, D], of tokens without positions.

        Raises:
            InputError: if the norm before it isn't known.
        """
        self._known_last()  # before any layer is computed
        *_, (_, read) = self._passed([None] * len(self.layers))
        return read

    def embedding_as_read(self) -> jax.Array:
        """Return each token's embedding as the output layer reads it if no layer adds anything,
        [V, D].

        Raises:
            InputError: if the norm before the output layer isn't known.
        """
        rows = self.embedding["embedding"]
        return _normalized(rows[None], _around(self._known_last(), "tied"), after=False)[0][0]

    def _known_last(self) -> Block:
        if self.last is None:
            raise InputError(
                "no rule describes the norm before the output layer: add Rule(path, 'tied_gain', "
                "'d') in front of the rules"
            )
        return self.last

    def _passed(
        self,
        rotary: Rotary | Sequence[Rotary | None],
        new: Callable[[str, Block, jax.Array], Arrays] = lambda kind, block, read: block,
    ) -> Iterator[tuple[jax.Array, jax.Array]]:
        """The activations before each norm of attention and, last, of the output layer, and after
        it.

        Tokens are drawn from the vocabulary, each as likely as the others, by a key of its own:
        no data. Norms have their known gains, MLPs GELU or, if they are gated, SiLU.
        """
        table = new("embedding", self.embedding, jnp.zeros((0, 0)))["embedding"]
        texts = max(2, NUMBERS // table.shape[1])
        x = table[jax.random.randint(jax.random.key(0), (texts, LENGTH), 0, len(table))]
        several = [rotary] * len(self.layers) if isinstance(rotary, Rotary) else rotary
        for layer, turning in zip(self.layers, several, strict=True):
            around = _around(layer.attention, "attention")
            after = "attention" in layer.norms_after
            read, seen = _normalized(x, around, after)
            block = dict(new("attention", layer.attention, seen[1]))
            yield seen
            before, x = x, _attended(x, read, block, around, after, turning)
            if layer.mlp is not None:
                around, after = _around(layer.mlp, "mlp"), "mlp" in layer.norms_after
                read, seen = _normalized(before if layer.parallel else x, around, after)
                x = _through_mlp(x, read, dict(new("mlp", layer.mlp, seen[1])), around, after)
        yield _normalized(x, _around(self._known_last(), "tied"), after=False)[1]


def _plainly(function: Callable[..., T]) -> Callable[..., T]:
    """With all digits, and broadcast as NumPy does, whatever a caller's own code is held to."""

    @functools.wraps(function)
    def inner(*arguments: Any, **named: Any) -> T:
        with jax.default_matmul_precision("highest"), jax.numpy_rank_promotion("allow"):
            return function(*arguments, **named)

    return inner


def _around(block: Block, kind: str) -> dict[str, jax.Array]:
    """The norm before a layer, and what multiplies its output."""
    roles = {name: f"{kind}_{name}" for name in ("gain", "shift", "scale")}
    return {name: block[role] for name, role in roles.items() if role in block}


@functools.partial(jax.jit, static_argnames="after")
@_plainly
def _normalized(
    x: jax.Array, around: Arrays, after: bool
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """What a layer reads, and the tokens that count: before the norm and after it."""
    read = x
    if "gain" in around or not after:
        centered = x - x.mean(axis=-1, keepdims=True) if "shift" in around else x
        read = _rms_norm(centered) * around.get("gain", 1.0) + around.get("shift", 0.0)
    counted, normalized = (y[:, LENGTH // 2 :].reshape(-1, y.shape[-1]) for y in (x, read))
    return read, (counted, normalized)


def _added(x: jax.Array, out: jax.Array, around: Arrays, after: bool) -> jax.Array:
    return x + (_rms_norm(out) if after else out) * around.get("scale", 1.0)


def _rms_norm(x: jax.Array) -> jax.Array:
    size = jnp.mean(x**2, axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(jnp.maximum(size, jnp.finfo(jnp.float32).tiny))


@functools.partial(jax.jit, static_argnames=("after", "rotary"))
@_plainly
def _attended(
    x: jax.Array, read: jax.Array, block: Arrays, around: Arrays, after: bool, rotary: Rotary | None
) -> jax.Array:
    def projected(role: str) -> jax.Array:
        y = jnp.einsum("bnd,dhk->bnhk", read, block[role]) + block.get(f"{role}_bias", 0.0)
        y = _rms_norm(y) * block[f"{role}_gain"] if f"{role}_gain" in block else y
        return jnp.repeat(y, block["query"].shape[1] // y.shape[2], axis=2)

    query, key, value = (projected(role) for role in ("query", "key", "value"))
    grid = rotary is not None and rotary.axes == 2
    if rotary is not None:
        at = np.indices((8, LENGTH // 8)).reshape(2, -1).T if grid else np.arange(LENGTH)[:, None]
        query, key = (rotary.turned_by(y, at[:, None]) for y in (query, key))
    logits = jnp.einsum("bnhk,bmhk->bhnm", query, key) / query.shape[-1] ** 0.5
    seen = None if grid else np.tri(LENGTH, dtype=bool)
    weights = jax.nn.softmax(logits, axis=-1, where=seen)
    out = jnp.einsum("bhnm,bmhk,hkd->bnd", weights, value, block["out"])
    return _added(x, out + block.get("out_bias", 0.0), around, after)


@functools.partial(jax.jit, static_argnames="after")
@_plainly
def _through_mlp(
    x: jax.Array, read: jax.Array, block: Arrays, around: Arrays, after: bool
) -> jax.Array:
    hidden = read @ block["mlp_in"] + block.get("mlp_in_bias", 0.0)
    if "mlp_gate" in block:
        hidden *= jax.nn.silu(read @ block["mlp_gate"])
    else:
        hidden = jax.nn.gelu(hidden)
    return _added(x, hidden @ block["mlp_out"] + block.get("mlp_out_bias", 0.0), around, after)
