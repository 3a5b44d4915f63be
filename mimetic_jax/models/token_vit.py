"""The blocks of the vision transformer on tokens, for tasks that come before any image."""

from __future__ import annotations

from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from mimetic_jax.errors import InputError
from mimetic_jax.models.init import base_init
from mimetic_jax.models.layers import classify, stack
from mimetic_jax.models.low_memory import LayerNorm, add_table
from mimetic_jax.models.traits import TRANSFORMER_SHARDING, Traits
from mimetic_jax.models.vit import Block
from mimetic_jax.weights.bases import semi_orthogonal


def _orthogonal(key: jax.Array, shape: tuple[int, int]) -> jax.Array:
    return semi_orthogonal(key, *shape)


class TokenViT(nn.Module):
    """The blocks of `ViT`, under its names, between an embedding of tokens and a head per token.

    There is no patch embedding and no class token: only `block_0` … (or `blocks`) have their
    counterparts in a model of images. The embedding has orthonormal rows where there are at most D,
    else orthonormal columns. `optimizer.rate_rules` freeze it and the positions, if wanted.

    Attributes:
        vocab: V, tokens and width of the logits; token V is the mask, which is never predicted.
        width: D, of the activations.
        depth: L, the number of blocks.
        heads: H, a divisor of D.
        mlp_ratio: F / D, how much wider the hidden layer of an MLP is.
        base: the initialization that schemes start from, as in `ViT`; so are the next.
        qkv_bias: whether query, key and value have biases.
        fused_qkv: one product for query, key and value, of the same parameters.
        scan: one loop over a block, whose parameters are stacked under the name `blocks`.
        remat: recompute each block in the backward pass.
        dtype: of the computation; parameters, softmax and logits stay float32.

    Example:
        >>> model, tokens = TokenViT(vocab=6, width=16, depth=1, heads=2), jnp.array([[0, 6]])
        >>> variables = jax.jit(model.init)(jax.random.key(0), tokens)
        >>> variables["params"]["embedding"].shape, jax.jit(model.apply)(variables, tokens).shape
        ((7, 16), (1, 2, 6))

    Reference: Procedural Warm-Up for Vision Transformers (Shinnick et al. 2026).
    """

    vocab: int
    width: int = 192
    depth: int = 12
    heads: int = 3
    mlp_ratio: float = 4.0
    base: str = "timm"
    qkv_bias: bool = True
    fused_qkv: bool = False
    scan: bool = False
    remat: bool = False
    dtype: Any = jnp.float32

    traits: ClassVar[Traits] = Traits(
        sharding=TRANSFORMER_SHARDING,
        no_decay=r"(^|/)(bias|scale|pos_embed|embedding)$",
    )

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Logits float32 [B, N, V] of tokens int32 [B, N]."""
        if self.width % self.heads:
            raise InputError(f"heads {self.heads} does not divide width {self.width}")
        init = base_init(self.base)
        embedding: Any = self.param("embedding", _orthogonal, (self.vocab + 1, self.width))
        x = embedding[tokens]
        x = add_table(x, self.param("pos_embed", init.position, (1, *x.shape[1:])))
        x = stack(Block, self, x.astype(self.dtype))
        x = LayerNorm(epsilon=1e-6, dtype=self.dtype, name="norm")(x)
        return classify(x, self.vocab, init)
