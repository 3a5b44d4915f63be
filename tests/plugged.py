"""Models of a user's, as `--config.model.name=tests.plugged:CLASS` finds them."""

from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from mimetic_jax import Rule
from mimetic_jax.models import Traits


class TinyMLPMixer(nn.Module):
    """Token and channel mixing; the names of the channel MLP are those of the stock rules."""

    num_classes: int
    width: int = 32
    depth: int = 2
    patch: int = 2
    tokens_hidden: int = 16

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        batch, height, width, channels = images.shape
        rows, columns = height // self.patch, width // self.patch
        x = images.reshape(batch, rows, self.patch, columns, self.patch, channels)
        x = x.transpose(0, 1, 3, 2, 4, 5).reshape(batch, rows * columns, -1)
        x = nn.Dense(self.width)(x)
        for layer in range(self.depth):
            x = MixerBlock(self.tokens_hidden, name=f"block_{layer}")(x)
        return nn.Dense(self.num_classes)(nn.LayerNorm()(x).mean(axis=1))


class MixerBlock(nn.Module):
    tokens_hidden: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = nn.LayerNorm()(x).swapaxes(1, 2)
        y = nn.Dense(x.shape[1], name="out_tokens")(
            nn.gelu(nn.Dense(self.tokens_hidden, name="in_tokens")(y))
        )
        x = x + y.swapaxes(1, 2)
        hidden = nn.gelu(nn.Dense(2 * x.shape[-1], name="fc1")(nn.LayerNorm()(x)))
        return x + nn.Dense(x.shape[-1], name="fc2")(hidden)


class TinyBatchNorm(nn.Module):
    """A convolution, batch normalization, an average: a model with running statistics."""

    num_classes: int
    width: int = 8
    momentum: float = 0.9

    @nn.compact
    def __call__(self, images: jax.Array, train: bool = False) -> jax.Array:
        x = nn.Conv(self.width, (3, 3), use_bias=False)(images)
        x = nn.BatchNorm(use_running_average=not train, momentum=self.momentum)(x)
        # The counter of a collection of one's own: an integer beside the averages.
        calls = self.variable("counters", "calls", lambda: jnp.zeros((), jnp.int32))
        if train:
            calls.value += 1
        x = nn.relu(x)
        return nn.Dense(self.num_classes, name="head")(x.mean(axis=(1, 2)))


class TinyReader(nn.Module):
    """Tokens to logits, each token seeing itself alone; its attention-like names need rules."""

    vocab: int
    width: int = 16

    traits: ClassVar[Traits] = Traits(
        rules=(Rule("up/kernel", "mlp_in", "d f"), Rule("down/kernel", "mlp_out", "f d"))
    )

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = nn.Embed(self.vocab, self.width)(tokens)
        x = x + nn.Dense(self.width, name="down")(nn.gelu(nn.Dense(32, name="up")(x)))
        return nn.Dense(self.vocab)(x)


class FlatAttention(nn.Module):
    """Attention under names of its own, whose kernels store heads flattened."""

    num_classes: int
    width: int = 16
    heads: int = 2

    @nn.compact
    def __call__(self, x, train=False):
        x = nn.Conv(self.width, (4, 4), (4, 4), name="patch_embed")(x)
        x = x.reshape(x.shape[0], -1, self.width)
        by_head = (*x.shape[:2], self.heads, self.width // self.heads)
        q, k, v = (nn.Dense(self.width, name=f"w{part}")(x).reshape(by_head) for part in "qkv")
        x += nn.Dense(self.width, name="wo")(nn.dot_product_attention(q, k, v).reshape(x.shape))
        return nn.Dense(self.num_classes, name="head")(x.mean(axis=1))


class WrongShape(nn.Module):
    """Logits for seven classes, whatever the data has."""

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        return nn.Dense(7)(images.reshape(len(images), -1))


class Broken(nn.Module):
    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        return images @ jnp.ones((3, 3))


class NeedsAWidth(nn.Module):
    num_classes: int
    breadth: int

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        x = nn.Dense(self.breadth)(images.reshape(len(images), -1))
        return nn.Dense(self.num_classes)(x)


class NotAModule:
    pass
