"""Self-attention with the stock parameter tree of Flax, on the fastest available kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from mimetic_jax.base.errors import InputError
from mimetic_jax.models.init import Initializer
from mimetic_jax.models.position import rotated


class Attention(nn.Module):
    """Σ_h softmax(q_h k_hᵀ / √K) v_h W_out,h, with q, k, v = x W + b: full or causal.

    Names, shapes and initial values of the parameters are those of
    `nn.MultiHeadDotProductAttention`: kernels query, key, value [D, H, K] and out [H, K, D],
    biases [H, K] and [D]. Softmax is float32 in any dtype. Half precision on an NVIDIA GPU uses
    cuDNN's flash attention if it supports the head width, everything else XLA.

    Attributes:
        num_heads: H, a divisor of D.
        kernel_init, bias_init: called with flattened shapes, as by the stock layer.
        qkv_bias: whether query, key and value have biases; out has one.
        causal: token n attends to tokens 0 … n only.
        rotary: base of rotary positions, 0 for none: queries and keys turn with their position, see
            `position.rotated`.
        grid: (h, w) of the last h·w tokens, row by row, whose positions are rows and columns; those
            in front, such as a class token, don't turn. None for a sequence.
        qk_norm: each query and key is divided by its root mean square over K and multiplied by
            learned factors [K], one set for all queries and one for all keys, before it turns.
        dtype: the dtype of the computation; parameters are float32.

    Raises:
        InputError: if H does not divide D.

    Example:
        >>> layer = Attention(num_heads=2)
        >>> params = layer.init(jax.random.key(0), jnp.ones((1, 4, 16)))["params"]
        >>> params["query"]["kernel"].shape, params["out"]["kernel"].shape
        ((16, 2, 8), (2, 8, 16))

    Reference: Attention Is All You Need, section 3.2; `qk_norm` is that of Qwen3 and Gemma 3.
    """

    num_heads: int
    kernel_init: Initializer = nn.linear.default_kernel_init
    bias_init: Initializer = nn.initializers.zeros
    qkv_bias: bool = True
    causal: bool = False
    rotary: float = 0.0
    grid: tuple[int, int] | None = None
    qk_norm: bool = False
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """[B, N, D] from [B, N, D]."""
        return self.around(self.attend, x)

    def around(
        self, attend: Callable[[jax.Array, jax.Array, jax.Array], jax.Array], x: jax.Array
    ) -> jax.Array:
        """Return the four projections around `attend`, [..., N, D] from [..., N, D]."""
        width = x.shape[-1]
        if width % self.num_heads:
            raise InputError(f"num_heads {self.num_heads} does not divide dim {width}")
        query, key, value = (self._dense(name, width)(x) for name in ("query", "key", "value"))
        if self.qk_norm:
            query = nn.RMSNorm(dtype=self.dtype, name="query_norm")(query)
            key = nn.RMSNorm(dtype=self.dtype, name="key_norm")(key)
        return nn.DenseGeneral(
            width,
            axis=(-2, -1),
            kernel_init=self.kernel_init,
            bias_init=self.bias_init,
            dtype=self.dtype,
            name="out",
        )(attend(query, key, value))

    def attend(self, query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
        """Return what each head gathers, [B, N, H, K] from three of that shape."""
        query, key = self.turned(query), self.turned(key)
        implementation = _implementation(query.dtype, query.shape[-1])
        return _attended(query, key, value, self.causal, implementation)

    def turned(self, x: jax.Array) -> jax.Array:
        """Queries or keys [B, N, H, K] turned by their positions, if these are rotary."""
        if not self.rotary:
            return x
        length = x.shape[1]
        if self.grid is None:
            return rotated(x, jnp.arange(length, dtype=jnp.float32)[:, None], self.rotary)
        places = jnp.indices(self.grid, jnp.float32).reshape(2, -1).T
        front = length - len(places)
        return rotated(x, jnp.pad(places, ((front, 0), (0, 0))), self.rotary)

    def _dense(self, name: str, width: int) -> nn.DenseGeneral:
        return nn.DenseGeneral(
            (self.num_heads, width // self.num_heads),
            use_bias=self.qkv_bias,
            kernel_init=self.kernel_init,
            bias_init=self.bias_init,
            dtype=self.dtype,
            name=name,
        )


def _attended(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    causal: bool,
    implementation: Literal["cudnn", "xla"],
) -> jax.Array:
    """Σ_h softmax(q_h k_hᵀ / √K) v_h, [B, N, H, K]."""
    batch, length = query.shape[:2]
    lengths = None
    if implementation == "cudnn" and length % 2:
        # JAX offers cuDNN's backward pass for even lengths only: pad one token, which is masked.
        one_more = ((0, 0), (0, 1), (0, 0), (0, 0))
        query, key, value = (jnp.pad(array, one_more) for array in (query, key, value))
        lengths = jnp.full(batch, length, jnp.int32)
    return jax.nn.dot_product_attention(
        query,
        key,
        value,
        is_causal=causal,
        query_seq_lengths=lengths,
        key_value_seq_lengths=lengths,
        implementation=implementation,
    )[:, :length]


def _implementation(dtype: jax.typing.DTypeLike, head_width: int) -> Literal["cudnn", "xla"]:
    """The implementation of `jax.nn.dot_product_attention`: "cudnn" if supported."""
    # A default device is set when a process with a GPU counts FLOPs on its CPU.
    chosen = jax.config.jax_default_device  # type: ignore[attr-defined]
    device = chosen if isinstance(chosen, jax.Device) else jax.local_devices(backend=chosen)[0]
    # "cuda 12090" of a GPU, "NVIDIA H200" of one that is compiled for without it.
    version = device.client.platform_version
    if device.platform != "gpu" or not ("cuda" in version or "NVIDIA" in version):
        return "xla"
    recent = tuple(map(int, device.compute_capability.split("."))) >= (8, 0)
    half = dtype in (jnp.bfloat16, jnp.float16)
    return "cudnn" if recent and half and head_width % 8 == 0 and head_width <= 128 else "xla"
