"""Mimetic initialization of an attention layer, W_Q W_Kᵀ ≈ αZ + βI, W_V W_out ≈ αZ + βI.

Trockman and Kolter, Mimetic Initialization of Self-Attention Layers, arXiv:2305.09828.
"""

import torch


@torch.no_grad()
def mimetic_(
    query,
    key,
    value,
    out,
    num_heads,
    num_kv_heads=None,
    *,
    alpha_qk=0.7,
    beta_qk=0.7,
    alpha_vo=0.4,
    beta_vo=-0.4,
    control=False,
    generator=None,
):
    """Fill the weights of four `nn.Linear`, in place; set their biases to zero.

    A weight that holds query, key and value one after the other, as in timm and nanoGPT:
    `mimetic_(*attn.qkv.weight.chunk(3), attn.proj.weight, attn.num_heads)`.

    Args:
        query, key, value, out: weights of shapes [H K, D], [G K, D], [G K, D] and [D, H K], with
            H K = D.
        num_heads: H.
        num_kv_heads: G, the heads of key and value; H unless given.
        alpha_qk, beta_qk: noise and identity of W_Q W_Kᵀ, in each head.
        alpha_vo, beta_vo: noise and identity of W_V W_out.
        control: independent noise of the same norms instead: what is gained with it is no gain of
            the structure.
        generator: a `torch.Generator` of the CPU.
    """
    num_kv_heads = num_kv_heads or num_heads
    dim = query.shape[1]
    width, group = dim // num_heads, num_heads // num_kv_heads

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def factors(alpha, beta, rank):
        noise = normal(dim, dim) / dim**0.5
        u, s, vt = torch.linalg.svd(alpha * noise + beta * torch.eye(dim, dtype=torch.float64))
        root = s[:rank].sqrt()
        return (u[:, :rank] * root).T, (vt[:rank].T * root).T

    pairs = [factors(alpha_qk, beta_qk, width) for _ in range(num_kv_heads)]
    queries, keys = (torch.stack(side) for side in zip(*pairs, strict=True))
    values, outs = factors(alpha_vo, beta_vo, num_kv_heads * width)
    outs = outs.reshape(num_kv_heads, width, dim).repeat_interleave(group, 0) / group
    weights = (
        (query, queries.repeat_interleave(group, 0).reshape(dim, dim)),
        (key, keys.reshape(-1, dim)),
        (value, values),
        (out, outs.reshape(dim, dim).T),
    )
    for weight, new in weights:
        noise = normal(*new.shape) if control else new
        weight.copy_(noise * new.norm() / noise.norm())
