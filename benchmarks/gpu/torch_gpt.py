"""`models.GPT` in PyTorch, as a PyTorch user would write it. Importing this needs PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class MLP(nn.Module):
    """fc2(gelu(fc1(x)))."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(functional.gelu(self.fc1(x)))


class CausalAttention(nn.Module):
    """Attention to earlier tokens, fused."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """x + attention(norm1(x)), then x + mlp(norm2(x))."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.mlp = CausalAttention(width, heads), MLP(width, 4 * width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(self.attention(self.norm1(x)))
        return x + self.drop(self.mlp(self.norm2(x)))


class GPT(nn.Module):
    """A decoder with sinusoidal positions and an output tied to the embedding.

    It drops single elements, and by `embedding_dropout` whole tokens of the vocabulary, one draw
    per call.
    """

    def __init__(
        self,
        vocab: int,
        width: int,
        depth: int,
        heads: int,
        length: int,
        dropout: float,
        embedding_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        nn.init.normal_(self.embedding.weight, std=0.01)
        self.decoder_bias = nn.Parameter(torch.zeros(vocab))
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(depth)))
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(dropout)
        self.embedding_dropout = embedding_dropout
        self.register_buffer("positions", _sinusoids(length, width), persistent=False)

    def forward(self, tokens: Tensor, last: int) -> Tensor:
        """Logits [B, last, V] of what follows the last tokens of each row."""
        x = self.embedding(tokens)
        if self.training and self.embedding_dropout:
            kept = functional.dropout(torch.ones_like(self.decoder_bias), self.embedding_dropout)
            x = x * kept[tokens].unsqueeze(-1)
        x = x * x.shape[-1] ** 0.5 + self.positions[: tokens.shape[1]]
        hidden = self.norm(self.blocks(self.drop(x)))[:, -last:]
        return functional.linear(hidden, self.embedding.weight, self.decoder_bias)

    def loss(self, windows: Tensor, valid: int) -> Tensor:
        """Mean cross-entropy of the last `valid` targets of windows [B, N + 1]."""
        logits = self(windows[:, :-1], valid)
        return functional.cross_entropy(logits.flatten(0, 1), windows[:, -valid:].flatten())


def _sinusoids(length: int, width: int) -> Tensor:
    """Sines and cosines, interleaved [N, D]."""
    frequencies = 10_000.0 ** (-2 * torch.arange((width + 1) // 2) / width)
    angles = torch.arange(length)[:, None] * frequencies
    return torch.stack([angles.sin(), angles.cos()], dim=-1).reshape(length, -1)[:, :width]
