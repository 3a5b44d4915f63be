"""Mimetic initialization of an attention layer, W_Q W_Kᵀ ≈ αZ + βI, W_V W_out ≈ αZ + βI.

Trockman and Kolter, Mimetic Initialization of Self-Attention Layers, arXiv:2305.09828.
"""

import numpy as np


def mimetic(
    dim,
    num_heads,
    num_kv_heads=None,
    *,
    alpha_qk=0.7,
    beta_qk=0.7,
    alpha_vo=0.4,
    beta_vo=-0.4,
    control=False,
    random=None,
):
    """Query [D, H, K], key and value [D, G, K] and out [H, K, D], for x @ W; biases are zero.

    Args:
        dim: D.
        num_heads: H, which divides D.
        num_kv_heads: G, the heads of key and value; H unless given.
        alpha_qk, beta_qk: noise and identity of W_Q W_Kᵀ, in each head.
        alpha_vo, beta_vo: noise and identity of W_V W_out.
        control: independent noise of the same norms instead: what is gained with it is no gain of
            the structure.
        random: `numpy.random.default_rng(seed)`.
    """
    random = np.random.default_rng(0) if random is None else random
    num_kv_heads = num_kv_heads or num_heads
    width, group = dim // num_heads, num_heads // num_kv_heads

    def factors(alpha, beta, rank):
        noise = random.standard_normal((dim, dim)) / dim**0.5
        u, s, vt = np.linalg.svd(alpha * noise + beta * np.eye(dim))
        root = np.sqrt(s[:rank])
        return u[:, :rank] * root, vt[:rank].T * root

    pairs = [factors(alpha_qk, beta_qk, width) for _ in range(num_kv_heads)]
    query, key = (np.stack(side, axis=1) for side in zip(*pairs, strict=True))
    left, right = factors(alpha_vo, beta_vo, num_kv_heads * width)
    value = left.reshape(dim, num_kv_heads, width)
    out = right.T.reshape(num_kv_heads, width, dim) / group
    weights = np.repeat(query, group, axis=1), key, value, np.repeat(out, group, axis=0)
    if control:
        noises = [random.standard_normal(weight.shape) for weight in weights]
        pairs = zip(noises, weights, strict=True)
        weights = [n * np.linalg.norm(w) / np.linalg.norm(n) for n, w in pairs]
    return tuple(weight.astype(np.float32) for weight in weights)
