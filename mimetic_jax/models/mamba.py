"""A language model of state space layers: Mamba-2, with the output tied to the embedding."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from mimetic_jax.base.errors import InputError
from mimetic_jax.models import ssd
from mimetic_jax.models.attention import Attention
from mimetic_jax.models.init import Initializer, base_init
from mimetic_jax.models.layers import by_example, shared, stack
from mimetic_jax.models.traits import TRANSFORMER_SHARDING, Traits

STEPS = (0.001, 0.1)
"""Range of Δ at the start, log-uniform by head."""

DECAYS = (1.0, 16.0)
"""Range of −A at the start, uniform by head."""


class Mamba(nn.Module):
    """A causal language model without positions, and without attention unless layers are named.

    Calling it gives hidden states [B, N, D], like `GPT`, and `logits` the logits. Parameters and
    their initial values are those of state-spaces/mamba; its `in_proj` is five layers here, in its
    order z, x, b, c, dt, so that each has a name and shards by heads.

    Attributes:
        vocab: V.
        width: D, of the activations.
        depth: L, the number of blocks.
        heads: H, a divisor of the inner width expand · D.
        expand: inner width over D.
        state: S, numbers of a head's state per column of its output.
        groups: G, a divisor of H: heads of a group write and read under the same b and c.
        taps: tokens that the convolution sees, the current one included.
        chunk: tokens up to which a sequence is computed as attention, in N² products; a longer one
            is computed in chunks of as many.
        base: the initialization that schemes start from: "torch" (the reference's), "timm", "flax".
        embedding_std: standard deviation of the embedding's initial values.
        attention_layers: layers, from 0, that have causal self-attention of H heads in place of
            the state space layer: a hybrid. Schemes for either find their layers.
        scan: one compiled block, run L times, see `GPT`; not of a hybrid.
        remat: recompute each block in the backward pass, see `GPT`.
        dtype: the dtype of the projections; parameters, the recurrence and norms stay float32.

    Example:
        >>> model = Mamba(vocab=50, width=16, depth=1, heads=2, state=8)
        >>> tokens = jnp.zeros((1, 8), jnp.int32)
        >>> variables = jax.jit(model.init)(jax.random.key(0), tokens)
        >>> jax.jit(model.apply)(variables, tokens).shape
        (1, 8, 16)

    Reference: Transformers are SSMs: Generalized Models and Efficient Algorithms Through Structured
    State Space Duality (Dao and Gu 2024), section 7; `Mamba2Simple` of its code.
    """

    vocab: int
    width: int = 256
    depth: int = 4
    heads: int = 8
    expand: int = 2
    state: int = 64
    groups: int = 1
    taps: int = 4
    chunk: int = 256
    base: str = "torch"
    embedding_std: float = 0.02
    attention_layers: tuple[int, ...] = ()
    scan: bool = False
    remat: bool = False
    dtype: Any = jnp.float32

    traits: ClassVar[Traits] = Traits(
        sharding=(
            (r"mixer/(z|x|dt)/kernel$", ("fsdp?", "tensor")),
            (r"mixer/out_proj/kernel$", ("tensor", "fsdp?")),
            *TRANSFORMER_SHARDING,
        ),
        no_decay=r"(^|/)(bias|scale|embedding|A_log|D|dt_bias)$",
        output=lambda params: (params["embedding"], jnp.zeros(len(params["embedding"]))),
    )

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Hidden states float32 [B, N, D] of tokens int32 [B, N]."""
        self._check()
        attends = [int(layer in self.attention_layers) for layer in range(self.depth)]
        embedding: Any = self.param(
            "embedding", nn.initializers.normal(self.embedding_std), (self.vocab, self.width)
        )
        x = stack(
            Block,
            self,
            embedding[tokens].astype(self.dtype),
            attends if any(attends) else None,
            mixer=functools.partial(Mixer, **shared(Mixer, self, out_scale=self.depth**-0.5)),
        )
        return nn.RMSNorm(epsilon=1e-5, dtype=jnp.float32, name="norm")(x)

    def logits(self, tokens: jax.Array) -> jax.Array:
        """Logits float32 [B, N, V] of the next tokens."""
        return self(tokens) @ self.get_variable("params", "embedding").T

    def _check(self) -> None:
        inner = self.expand * self.width
        for name in ("heads", "expand", "state", "groups", "taps", "chunk"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} {getattr(self, name)} is not positive")
        if inner % self.heads:
            raise InputError(
                f"heads {self.heads} does not divide the inner width {inner} (expand "
                f"{self.expand} x width {self.width})"
            )
        if self.heads % self.groups:
            raise InputError(f"groups {self.groups} does not divide heads {self.heads}")
        for layer in self.attention_layers:
            if not 0 <= layer < self.depth:
                raise InputError(f"attention_layers {layer} is not one of {self.depth}, from 0")
        if self.attention_layers and self.scan:
            raise InputError("scan repeats one kind of block: leave out attention_layers")


class Block(nn.Module):
    """x + mixer(norm(x)), or x + attention(norm(x))."""

    mixer: Callable[..., nn.Module]
    heads: int
    base: str
    dtype: Any

    @nn.compact
    def __call__(self, x: jax.Array, attends: int | None = None) -> tuple[jax.Array, None]:
        """Activations [B, N, D] and nothing: the form of a scan's body."""
        attention = Attention(
            num_heads=self.heads,
            **base_init(self.base).of(x.shape[-1]),
            causal=True,
            dtype=self.dtype,
            name="attention",
        )
        layer = attention if attends else self.mixer(name="mixer")
        normal = nn.RMSNorm(epsilon=1e-5, dtype=self.dtype, name="norm")(x)
        return by_example(x + layer(normal)), None


class Mixer(nn.Module):
    """The state space layer: out_proj(norm((y + D x) ∘ silu(z))), y the recurrence of `ssd`.

    x, b and c pass a causal depthwise convolution and SiLU first. Fields are those of `Mamba`;
    `out_scale` is a factor of the output kernel's initial values, 1/√L in the reference.
    """

    heads: int
    expand: int
    state: int
    groups: int
    taps: int
    chunk: int
    base: str
    dtype: Any
    out_scale: float

    @nn.compact
    def __call__(self, u: jax.Array) -> jax.Array:
        """[B, N, D] from [B, N, D]."""
        width, init = u.shape[-1], base_init(self.base).linear
        inner, states = self.expand * width, self.groups * self.state

        def dense(name: str, features: int, kernel_init: Initializer = init) -> nn.Dense:
            return nn.Dense(
                features, use_bias=False, kernel_init=kernel_init, dtype=self.dtype, name=name
            )

        sizes = {"z": inner, "x": inner, "b": states, "c": states, "dt": self.heads}
        z, x, b, c, dt = (dense(name, features)(u) for name, features in sizes.items())
        mixed = nn.silu(
            CausalConv(self.taps, self.dtype, name="conv")(jnp.concatenate([x, b, c], -1))
        )
        x, b, c = jnp.split(mixed, (inner, inner + states), axis=-1)

        log_decay: Any = self.param("A_log", _log_decays, (self.heads,))
        step_bias: Any = self.param("dt_bias", step_biases, (self.heads,))
        skip: Any = self.param("D", nn.initializers.ones, (self.heads,))
        step = nn.softplus(dt.astype(jnp.float32) + step_bias)
        by_head = x.reshape(*x.shape[:2], self.heads, -1)
        b, c = (array.reshape(*array.shape[:2], self.groups, -1) for array in (b, c))
        terms = by_head, step, -jnp.exp(log_decay), b, c
        long = u.shape[1] > self.chunk
        y = ssd.chunked(*terms, self.chunk) if long else ssd.dual(*terms)
        # Per channel: on CPUs the gradient of a factor per head takes a fifth of the layer's time.
        y = y.reshape(x.shape) + skip.repeat(inner // self.heads) * x
        y = nn.RMSNorm(epsilon=1e-5, dtype=jnp.float32, name="norm")(y * nn.silu(z))
        return dense("out_proj", width, _scaled(self.out_scale, init))(y.astype(self.dtype))


class CausalConv(nn.Module):
    """Each channel convolved with its own filter over the last tokens, and a bias.

    y[n, c] = bias[c] + Σ_u kernel[u, c] x[n + u − (k − 1), c], zeros before the first token.
    Parameters kernel [k, C] and bias [C] are float32.
    """

    taps: int
    dtype: Any

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """[B, N, C] from [B, N, C]."""
        length, channels = x.shape[1:]
        init = _uniform(self.taps**-0.5)  # PyTorch's default
        kernel: Any = self.param("kernel", init, (self.taps, channels))
        bias: Any = self.param("bias", init, (channels,))
        kernel, bias = kernel.astype(self.dtype), bias.astype(self.dtype)
        padded = jnp.pad(x.astype(self.dtype), ((0, 0), (self.taps - 1, 0), (0, 0)))
        return bias + sum(kernel[u] * padded[:, u : u + length] for u in range(self.taps))


def _scaled(factor: float, init: Initializer) -> Initializer:
    return lambda *arguments: factor * init(*arguments)


def _uniform(bound: float) -> Initializer:
    return lambda key, shape: jax.random.uniform(key, shape, jnp.float32, -bound, bound)


def _log_decays(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return jnp.log(jax.random.uniform(key, shape, jnp.float32, *DECAYS))


def step_biases(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Those whose softplus is log-uniform in `STEPS`."""
    low, high = map(math.log, STEPS)
    step = jnp.exp(jax.random.uniform(key, shape, jnp.float32, low, high))
    return step + jnp.log(-jnp.expm1(-step))
