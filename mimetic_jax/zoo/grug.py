"""marin's grug."""

from mimetic_jax.rules.rule import Rule
from mimetic_jax.zoo.norms import gains


def _block(stack: str, within: str) -> tuple[Rule, ...]:
    kernels = (
        ("attn/w_q", "query", "d (h k)"),
        ("attn/w_k", "key", "d (g k)"),
        ("attn/w_v", "value", "d (g k)"),
        ("attn/w_o", "out", "(h k) d"),
        ("mlp/mlp_up", "mlp_in", "d f"),
        ("mlp/mlp_down", "mlp_out", "f d"),
    )
    return (
        *(Rule(path, role, f"{stack}{layout}", within=within) for path, role, layout in kernels),
        *gains("rms_attn/weight", "rms_mlp/weight", layout=f"{stack}d", within=within),
    )


GRUG: tuple[Rule, ...] = (*_block("l ", "stacked$"), *_block("", ""))
"""marin's grug: Equinox modules whose attributes are the kernels, attn/w_q and not attn/w_q/kernel.

Blocks are blocks/N, or blocks/stacked with layers along axis 0 (array_stacked). Kernels are stored
(in, out) with flattened heads: give `num_heads`, and `num_kv_heads` if heads are grouped. H·K
need not be D. Positions are rotary; the MLP is two layers, mlp_up and mlp_down. The model that
comes back is a model again. Variants of experiments/grug with other attributes need rules of their
own.

Read from: marin-community/marin experiments/grug/base/model.py (02788a1),
experiments/grug/array_stacked/model.py (8821baa).
"""
