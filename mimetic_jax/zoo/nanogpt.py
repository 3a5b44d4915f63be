"""nanoGPT and its ports: GPT-2's names with stock layers."""

from mimetic_jax.rules import Rule, attention_rules, mlp_rules


def _nanogpt(kernel: str, table: str, *, transposed: bool) -> tuple[Rule, ...]:
    return (
        *attention_rules(
            fused="attn/c_attn",
            out="attn/c_proj",
            flat=True,
            kernel=kernel,
            transposed=transposed,
        ),
        *mlp_rules(first="mlp/c_fc", second="mlp/c_proj", kernel=kernel, transposed=transposed),
        Rule(f"wpe/{table}", "position", "n d"),
    )


NANOGPT: tuple[Rule, ...] = _nanogpt("kernel", "embedding", transposed=False)
"""Ports of nanoGPT to Flax, whose layers are nn.Dense: c_attn/kernel is [D, 3 D].

The names are those of `HUGGING_FACE_GPT2`, which stores kernels the other way round; the shapes of
attention tell them apart. Give `num_heads`. Positions are wpe/embedding [N, D], for text:
`SinCos(axes=1)`.

Read from: jenkspt/gpt-jax model.py (031eb00).
"""

PYTORCH_NANOGPT: tuple[Rule, ...] = _nanogpt("weight", "weight", transposed=True)
"""nanoGPT in PyTorch, whose layers are nn.Linear: attn.c_attn.weight is [3 D, D].

The names are those of `PYTORCH_GPT2`, which stores weights the other way round; the shapes of
attention tell them apart. Give `num_heads`. Positions are wpe.weight [N, D].

Read from: karpathy/nanoGPT model.py (0011cd4).
"""
