"""A language model of selective state space layers: Mamba, the first version."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from mimetic_jax.errors import InputError
from mimetic_jax.models.init import base_init
from mimetic_jax.models.layers import shared
from mimetic_jax.models.mamba import (
    CausalConv,
    Mamba,
    check_positive,
    hidden_states,
    residual,
    scaled,
    step_biases,
    tied_logits,
)
from mimetic_jax.models.traits import Traits


class Mamba1(nn.Module):
    """A causal language model without attention and without positions.

    As `Mamba`, with the layer of the first paper: each inner channel has its own A, of S numbers,
    and its own Δ, through a bottleneck of `rank` channels. A sequence is one parallel scan, which
    keeps I · S numbers per token.

    Attributes:
        vocab: V.
        width: D, of the activations.
        depth: L, the number of blocks.
        expand: inner width I over D.
        state: S, numbers of a channel's state.
        rank: of Δ's projection; ⌈D / 16⌉ if 0.
        taps: tokens that the convolution sees, the current one included.
        base: the initialization that schemes start from: "torch", the reference's, or "timm".
        embedding_std: standard deviation of the embedding's initial values.
        scan: one compiled block, run L times, see `GPT`.
        remat: recompute each block in the backward pass, see `GPT`.
        dtype: of the projections; parameters, the recurrence and norms stay float32.

    Example:
        >>> model = Mamba1(vocab=50, width=16, depth=1, state=8)
        >>> tokens = jnp.zeros((1, 8), jnp.int32)
        >>> variables = jax.jit(model.init)(jax.random.key(0), tokens)
        >>> jax.jit(model.apply)(variables, tokens).shape
        (1, 8, 16)

    Reference: Mamba: Linear-Time Sequence Modeling with Selective State Spaces (Gu and Dao 2023),
    section 3; `mamba_simple.Mamba` of its code.
    """

    vocab: int
    width: int = 256
    depth: int = 4
    expand: int = 2
    state: int = 16
    rank: int = 0
    taps: int = 4
    base: str = "torch"
    embedding_std: float = 0.02
    scan: bool = False
    remat: bool = False
    dtype: Any = jnp.float32

    traits: ClassVar[Traits] = Mamba.traits

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Hidden states float32 [B, N, D] of tokens int32 [B, N]."""
        check_positive(self, "expand", "state", "taps")
        if self.rank < 0:
            raise InputError(f"rank {self.rank} is negative")
        return hidden_states(Block, self, tokens)

    def logits(self, tokens: jax.Array) -> jax.Array:
        """Logits float32 [B, N, V] of the next tokens."""
        return tied_logits(self, tokens)


class Block(nn.Module):
    """x + mixer(norm(x))."""

    expand: int
    state: int
    rank: int
    taps: int
    base: str
    dtype: Any
    out_scale: float

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, None]:
        """Activations [B, N, D] and nothing: the form of a scan's body."""
        return residual(Mixer(**shared(Mixer, self), name="mixer"), x, self.dtype)


class Mixer(nn.Module):
    """The selective layer: out_proj((y + D x) ∘ silu(z)), y = selective_scan(x, Δ, A, b, c).

    x passes a causal depthwise convolution and SiLU first; b, c and Δ are projections of that.

    Attributes:
        expand, state, rank, taps, base, dtype: see `Mamba1`.
        out_scale: factor of the output kernel's initial values: 1/√L in the reference.
    """

    expand: int = 2
    state: int = 16
    rank: int = 0
    taps: int = 4
    base: str = "torch"
    dtype: Any = jnp.float32
    out_scale: float = 1.0

    @nn.compact
    def __call__(self, u: jax.Array) -> jax.Array:
        """[B, N, D] from [B, N, D]."""
        width, init = u.shape[-1], base_init(self.base).linear
        inner, rank = self.expand * width, self.rank or math.ceil(width / 16)

        def dense(name: str, features: int, x: jax.Array, scale: float = 1.0) -> jax.Array:
            kernel_init = scaled(scale, init)
            layer = nn.Dense(
                features, use_bias=False, kernel_init=kernel_init, dtype=self.dtype, name=name
            )
            return layer(x.astype(self.dtype))

        z, x = dense("z", inner, u), dense("x", inner, u)
        x = nn.silu(CausalConv(self.taps, self.dtype, name="conv")(x))
        b, c = dense("b", self.state, x), dense("c", self.state, x)
        dt = dense("dt", inner, dense("dt_low", rank, x))
        log_decay: Any = self.param("A_logs", _log_decays, (inner, self.state))
        step_bias: Any = self.param("dt_bias", step_biases, (inner,))
        skip: Any = self.param("D", nn.initializers.ones, (inner,))
        step = nn.softplus(dt.astype(jnp.float32) + step_bias)
        y = selective_scan(x, step, -jnp.exp(log_decay), b, c) + skip * x
        return dense("out_proj", width, y * nn.silu(z), self.out_scale)


def selective_scan(
    x: jax.Array, step: jax.Array, decay: jax.Array, b: jax.Array, c: jax.Array
) -> jax.Array:
    """One linear recurrence per channel, in parallel over tokens, in float32.

        state_n = exp(Δ_n A) ∘ state_{n−1} + Δ_n x_n b_n,    y_n = c_n · state_n

    Args:
        x: [B, N, I].
        step: Δ [B, N, I], positive.
        decay: A [I, S], negative.
        b, c: [B, N, S], what is written under and what is read.

    Returns:
        y [B, N, I].

    Example:
        >>> ones = jnp.ones((1, 3, 1))
        >>> selective_scan(ones, ones, jnp.zeros((1, 1)), ones, ones).ravel().tolist()
        [1.0, 2.0, 3.0]
    """
    x, step, b, c = (array.astype(jnp.float32) for array in (x, step, b, c))
    kept = jnp.exp(step[..., None] * decay)
    written = (step * x)[..., None] * b[..., None, :]
    states = jax.lax.associative_scan(_both, (kept, written), axis=1)[1]
    return jnp.einsum("bnis,bns->bni", states, c)


def _both(
    first: tuple[jax.Array, jax.Array], then: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    """Two steps s → k s + w as one."""
    return first[0] * then[0], then[0] * first[1] + then[1]


def _log_decays(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """A = −1, …, −S in every channel."""
    return jnp.broadcast_to(jnp.log(jnp.arange(1.0, shape[1] + 1)), shape)
