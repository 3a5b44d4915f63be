"""A decoder-only transformer for text: pre-norm, its output tied to the embedding or not."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from mimetic_jax.base.errors import InputError
from mimetic_jax.models.attention import Attention
from mimetic_jax.models.init import POSITION, base_init
from mimetic_jax.models.layers import (
    MLP,
    Dropout,
    by_example,
    check_choices,
    check_heads,
    check_rates,
    shared,
    stack,
)
from mimetic_jax.models.low_memory import LayerNorm, add_table
from mimetic_jax.models.traits import TRANSFORMER_SHARDING, Traits
from mimetic_jax.rules.flax import FLAX
from mimetic_jax.rules.rule import Rule
from mimetic_jax.weights.position import sincos_1d
from mimetic_jax.weights.rotary import Rotary

RULES = (
    Rule("embedding", "embedding", "t d", form=True),
    Rule("unembedding", "unembedding", "t d"),
    Rule("decoder_bias", "unembedding_bias", "t"),
    Rule("norm/scale", "tied_gain", "d"),
    *FLAX,
)
"""What the parameters are: stock Flax's names, the embedding, and the output layer."""


def _output(params: Any) -> tuple[jax.Array, jax.Array]:
    kernel = params.get("unembedding", params["embedding"])
    bias = params.get("decoder_bias")
    return kernel, jnp.zeros(len(kernel)) if bias is None else bias


def _rotary(model: GPT) -> Rotary | None:
    if model.positions != "rotary":
        return None
    return Rotary(model.rotary_base)


class GPT(nn.Module):
    """A causal language model: output n depends on tokens 0 … n.

    Calling it gives hidden states [B, N, D], whose products with the output layer are the logits:
    with a large vocabulary those of a whole batch don't fit in memory, and
    `train.tasks.cross_entropy.token_losses` takes them in chunks. `logits` makes all of them.
    Attention has the parameter names of Flax's own layer.

    Attributes:
        vocab: V.
        width: D, of the activations.
        depth: L, the number of blocks.
        heads: H, a divisor of D.
        mlp_ratio: F / D, how much wider the hidden layer of an MLP is.
        positions: "sinusoidal", a fixed table of any length, added to √D times the embedding:
            tied embeddings must be small for the logits, and sines of amplitude 1 would drown
            them. Or "learned", a table `pos_embed` as small as the embedding, which is added
            unscaled. Or "rotary": queries and keys turn with their position, at any length, and
            the scaled embedding enters the blocks alone.
        rotary_base: ratio of the highest to the lowest rate of rotary positions.
        max_length: rows of the learned table; the longest input.
        bias_free: query, key and value have no biases, as in Llama.
        qk_norm: normalize each query and key, see `Attention`.
        rms_norm: RMSNorm, x / √(mean x² + ε) ∘ scale, in place of LayerNorm.
        swiglu: the MLP is fc2(silu(fc1(x)) ∘ up(x)), which has half as many parameters again at the
            same F: an mlp_ratio of 8/3 has as many as without it at 4. Schemes leave gated MLPs as
            they are, unless they are for them.
        dropout: rate after positions, attention and MLP layers.
        embedding: initial values of the embedding, which is the output layer too: "normal" of 0.01,
            as in the word model of Bai et al., or "uniform" in ±0.1, as in their character model.
            At a normal of 0.02 a model of width 384 starts out expecting each token once more, 8%
            above log V for 50 characters; but of the 0.01 only 7% of what enters its first block is
            content and the rest position, of the uniform 72%.
        embedding_std: standard deviation of a normal embedding in place of 0.01, if it isn't 0. At
            D^(−½) two thirds of what enters the first block are content, at any width.
        tied: the output layer is the embedding; else `unembedding` is, whose initial values are
            drawn likewise.
        output_bias: whether logits have a bias, as the models of the papers; recent ones don't.
        embedding_dropout: rate of dropout on the embedded tokens.
        dropout_of: what it drops: "tokens" of the vocabulary, drawn once per call for all positions
            of a token, or single "elements".
        base: the initialization that schemes start from: "timm", a normal of 0.02 with zero biases,
            as in GPT-2; or "torch" or "flax", whose linear layers are PyTorch's or Flax's.
        scan: one compiled block, run L times: the parameters of `block_0` … are stacked, L in
            front, under the one name `blocks`. Compiles fast; its initial values and dropout
            masks are other draws.
        remat: recompute each block in the backward pass: it keeps only the inputs of blocks, for
            about a third more arithmetic.
        dtype: the dtype of the computation; parameters, softmax, the last norm and logits stay
            float32.

    Example:
        >>> model = GPT(vocab=50, width=16, depth=1, heads=2)
        >>> tokens = jnp.zeros((1, 8), jnp.int32)
        >>> variables = jax.jit(model.init)(jax.random.key(0), tokens)
        >>> jax.jit(model.apply)(variables, tokens).shape
        (1, 8, 16)
        >>> jax.jit(lambda v: model.apply(v, tokens, method="logits"))(variables).shape
        (1, 8, 50)

    Reference: Attention Is All You Need, with norms in front of the layers as in Language Models
    are Unsupervised Multitask Learners; embedding dropout of Regularizing and Optimizing LSTM
    Language Models (AWD-LSTM), section 4.3; SwiGLU of GLU Variants Improve Transformer, eq. 6.
    """

    vocab: int
    width: int = 384
    depth: int = 12
    heads: int = 8
    mlp_ratio: float = 4.0
    positions: str = "sinusoidal"
    rotary_base: float = 10_000.0
    max_length: int = 1024
    bias_free: bool = False
    qk_norm: bool = False
    rms_norm: bool = False
    swiglu: bool = False
    dropout: float = 0.0
    embedding: str = "normal"
    embedding_std: float = 0.0
    tied: bool = True
    output_bias: bool = True
    embedding_dropout: float = 0.0
    dropout_of: str = "tokens"
    base: str = "timm"
    scan: bool = False
    remat: bool = False
    dtype: Any = jnp.float32

    traits: ClassVar[Traits] = Traits(
        rules=RULES,
        rotary=_rotary,
        sharding=TRANSFORMER_SHARDING,
        no_decay=r"(bias|scale|embedding)$",
        output=_output,
    )

    @nn.compact
    def __call__(self, tokens: jax.Array, train: bool = False) -> jax.Array:
        """Hidden states float32 [B, N, D] of tokens int32 [B, N]; "dropout" rng as in `ViT`."""
        length = tokens.shape[1]
        self._check(length)
        initial = nn.initializers.normal(self.embedding_std or 0.01)
        if self.embedding == "uniform":
            initial = functools.partial(jax.random.uniform, minval=-0.1, maxval=0.1)
        embedding: Any = self.param("embedding", initial, (self.vocab, self.width))
        # `logits` alone uses them, but `init` traces this method.
        if self.output_bias:
            self.param("decoder_bias", nn.initializers.zeros, (self.vocab,))
        if not self.tied:
            self.param("unembedding", initial, embedding.shape)
        x = embedding[tokens]
        if self.dropout_of == "elements":
            x = Dropout()(x, self.embedding_dropout, train)
        elif train and self.embedding_dropout:
            x *= Dropout()(jnp.ones((self.vocab, 1)), self.embedding_dropout, train)[tokens]
        if self.positions == "learned":
            table: Any = self.param("pos_embed", POSITION, (1, self.max_length, self.width))
            x = add_table(x, table[:, :length])
        else:
            x = x * self.width**0.5
            if self.positions == "sinusoidal":
                x += sincos_1d(length, self.width)
        x = Dropout()(x.astype(self.dtype), self.dropout, train)
        rotary = self.rotary_base if self.positions == "rotary" else 0.0
        x = stack(Block, self, x, train=train, rotary=rotary)
        return _norm("norm", self, jnp.float32)(x)

    def logits(self, tokens: jax.Array, train: bool = False) -> jax.Array:
        """Logits float32 [B, N, V] of the next tokens."""
        hidden = self(tokens, train)
        embedding, bias = _output(self.variables["params"])
        return hidden @ embedding.T + bias

    def _check(self, length: int) -> None:
        check_heads(self)
        check_choices(
            self,
            positions=("sinusoidal", "learned", "rotary"),
            embedding=("normal", "uniform"),
            dropout_of=("tokens", "elements"),
        )
        check_rates(self, "dropout", "embedding_dropout")
        if self.embedding == "uniform" and self.embedding_std:
            raise InputError(
                f"embedding_std {self.embedding_std} is of a normal embedding, this one is uniform"
            )
        if self.positions == "learned" and length > self.max_length:
            raise InputError(f"{length} tokens are more than the {self.max_length} positions")


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    heads: int
    mlp_ratio: float
    base: str
    train: bool
    dropout: float
    rotary: float
    bias_free: bool
    qk_norm: bool
    rms_norm: bool
    swiglu: bool
    dtype: Any

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, None]:
        """Activations [B, N, D] and nothing: the form of a scan's body."""
        attention = Attention(
            **shared(Attention, self, num_heads=self.heads, qkv_bias=not self.bias_free),
            **base_init(self.base).of(x.shape[-1]),
            causal=True,
            name="attention",
        )
        mlp = MLP(self.mlp_ratio, self.base, self.dtype, gated=self.swiglu, name="mlp")
        norm1, norm2 = (_norm(name, self, self.dtype) for name in ("norm1", "norm2"))
        x += Dropout()(attention(norm1(x)), self.dropout, self.train)
        return by_example(x + Dropout()(mlp(norm2(x)), self.dropout, self.train)), None


def _norm(name: str, module: GPT | Block, dtype: Any) -> Any:
    norm: Any = nn.RMSNorm if module.rms_norm else LayerNorm
    return norm(epsilon=1e-5, dtype=dtype, name=name)
