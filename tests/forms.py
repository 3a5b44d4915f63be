"""One vision transformer as a Linen class and an NNX class.

Names, shapes and arithmetic agree, and so do losses that start from the same weights.
"""

import flax.linen as nn
import jax
from flax import nnx

FORMS = {"linen": "tests.forms:LinenViT", "nnx": "tests.forms:NNXViT"}


class LinenViT(nn.Module):
    num_classes: int
    width: int = 32
    depth: int = 2
    dropout: float = 0.0

    @nn.compact
    def __call__(self, images: jax.Array, train: bool = False) -> jax.Array:
        x = nn.Conv(self.width, (4, 4), 4, use_bias=False, name="patches")(images)
        x = nn.BatchNorm(use_running_average=not train, name="norm")(x)
        x = x.reshape(len(x), -1, self.width)
        x = x + self.param("position", nn.initializers.normal(0.02), (1, *x.shape[1:]))
        for layer in range(self.depth):
            x = LinenBlock(self.dropout, not train, name=f"block_{layer}")(x)
        return nn.Dense(self.num_classes, name="head")(x.mean(axis=1))


class LinenBlock(nn.Module):
    dropout: float
    deterministic: bool

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        attention = nn.MultiHeadDotProductAttention(2, name="attention")
        x = x + attention(nn.LayerNorm(name="norm1")(x))
        y = nn.gelu(nn.Dense(2 * x.shape[-1], name="fc1")(nn.LayerNorm(name="norm2")(x)))
        y = nn.Dropout(self.dropout, deterministic=self.deterministic)(y)
        return x + nn.Dense(x.shape[-1], name="fc2")(y)


class NNXViT(nnx.Module):
    """A vision transformer.

    Args:
        width: D.
        channels, patches: the numbers of an image's channels and patches.
    """

    def __init__(
        self,
        num_classes: int,
        width: int = 32,
        depth: int = 2,
        dropout: float = 0.0,
        channels: int = 1,
        patches: int = 4,
        *,
        rngs: nnx.Rngs,
    ) -> None:
        self.patches = nnx.Conv(channels, width, (4, 4), 4, use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(width, rngs=rngs)
        self.position = nnx.Param(0.02 * jax.random.normal(rngs.params(), (1, patches, width)))
        for layer in range(depth):
            setattr(self, f"block_{layer}", NNXBlock(width, dropout, rngs))
        self.depth = depth
        self.head = nnx.Linear(width, num_classes, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        x = self.norm(self.patches(images))
        x = x.reshape(len(x), -1, x.shape[-1]) + self.position[...]
        for layer in range(self.depth):
            x = getattr(self, f"block_{layer}")(x)
        return self.head(x.mean(axis=1))


class NNXBlock(nnx.Module):
    def __init__(self, width: int, dropout: float, rngs: nnx.Rngs) -> None:
        self.norm1, self.norm2 = (nnx.LayerNorm(width, rngs=rngs) for _ in range(2))
        self.attention = nnx.MultiHeadAttention(2, width, decode=False, rngs=rngs)
        self.fc1 = nnx.Linear(width, 2 * width, rngs=rngs)
        self.fc2 = nnx.Linear(2 * width, width, rngs=rngs)
        self.dropout = nnx.Dropout(dropout, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + self.attention(self.norm1(x))
        return x + self.fc2(self.dropout(nnx.gelu(self.fc1(self.norm2(x)))))
