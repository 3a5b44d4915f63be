"""Depthwise convolution, in the form that is fast on the platform it is compiled for."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.models.init import Initializer


def depthwise_conv(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Convolve each channel of x [B, h, w, C] with its own filter, zero-padded to the same size.

    y[b, i, j, c] = Σ_uv kernel[u, v, c] x[b, i + u − a, j + v − a, c], a = ⌊(k − 1) / 2⌋: PyTorch's
    "same", which pads an even filter with one more row and column behind than in front.

    On a CPU this is one product per channel with a banded matrix, of all pixels or of rows, as the
    sizes have it: XLA's grouped convolution takes several times as long there.
    Elsewhere it is that convolution.

    >>> shift = jnp.zeros((3, 3, 1)).at[1, 2].set(1.0)  # each pixel reads its right neighbor
    >>> depthwise_conv(jnp.arange(4.0).reshape(1, 1, 4, 1), shift).ravel().tolist()
    [1.0, 2.0, 3.0, 0.0]
    """
    kernel = kernel.astype(x.dtype)
    # Chosen while the program is lowered, so that a program compiled here for a TPU is a TPU's.
    return jax.lax.platform_dependent(x, kernel, cpu=_product, default=_grouped)


class Depthwise(nn.Module):
    """`depthwise_conv` with a bias; parameters kernel [k, k, 1, C], as of `nn.Conv`, and bias [C].

    They are float32, and `dtype` is that of the computation.
    """

    size: int
    kernel_init: Initializer = nn.linear.default_kernel_init
    bias_init: Initializer = nn.initializers.zeros
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """[B, h, w, C] from [B, h, w, C]."""
        channels = x.shape[-1]
        if self.size < 1:
            raise InputError(f"filter size {self.size} is not positive")
        shape = (self.size, self.size, 1, channels)
        kernel: Any = self.param("kernel", self.kernel_init, shape, jnp.float32)
        bias: Any = self.param("bias", self.bias_init, (channels,), jnp.float32)
        return depthwise_conv(x.astype(self.dtype), kernel[:, :, 0]) + bias.astype(self.dtype)


def _grouped(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return jax.lax.conv_general_dilated(
        x,
        kernel[:, :, None],
        window_strides=(1, 1),
        padding=[_padding(kernel)] * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=x.shape[-1],
    )


def _product(x: jax.Array, kernel: jax.Array) -> jax.Array:
    # A filter wider than half the image leaves few zeros in the matrix of all pixels.
    return (_of_pixels if max(x.shape[1:3]) < 2 * len(kernel) else _of_rows)(x, kernel)


def _of_pixels(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """All pixels times one matrix per channel, which is doubly banded."""
    batch, height, width, channels = x.shape
    padding = _padding(kernel)[0]
    down, across = (_band(length, len(kernel), padding, x.dtype) for length in (height, width))
    matrix = jnp.einsum("uip,cujq->cijpq", down, jnp.einsum("vjq,uvc->cujq", across, kernel))
    y = jnp.einsum(
        "cyx,cbx->cby",
        matrix.reshape(channels, height * width, height * width),
        x.reshape(batch, height * width, channels).transpose(2, 0, 1),
    )
    return y.transpose(1, 2, 0).reshape(x.shape)


def _of_rows(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """The rows that a filter covers, side by side, times one matrix per channel."""
    batch, height, width, channels = x.shape
    size, padding = len(kernel), _padding(kernel)
    matrix = jnp.einsum("vjq,uvc->cjuq", _band(width, size, padding[0], x.dtype), kernel)
    # Channels first: the products are then over contiguous memory, twice as fast.
    padded = jnp.pad(x.transpose(3, 0, 1, 2), ((0, 0), (0, 0), padding, (0, 0)))
    rows = jnp.stack([padded[:, :, u : u + height] for u in range(size)], axis=3)
    y = jnp.einsum(
        "cjq,cnq->cnj",
        matrix.reshape(channels, width, size * width),
        rows.reshape(channels, batch * height, size * width),
    )
    return y.reshape(channels, batch, height, width).transpose(1, 2, 3, 0)


def _band(length: int, size: int, padding: int, dtype: Any) -> np.ndarray:
    """Entry [u, to, from] is 1 where the filter's entry u takes `from` to `to`: [k, N, N]."""
    entry = np.arange(length) - np.arange(length)[:, None] + padding
    return (entry == np.arange(size)[:, None, None]).astype(dtype)


def _padding(kernel: jax.Array) -> tuple[int, int]:
    size = len(kernel)
    return (size - 1) // 2, size // 2
