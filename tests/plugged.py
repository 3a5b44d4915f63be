"""Models of a user's, as `--config.model.name=tests.plugged:CLASS` finds them."""

from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from mimetic_jax import Rule
from mimetic_jax.models import Traits


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
