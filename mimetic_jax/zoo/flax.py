"""Stacked layers of stock Flax attention."""

from mimetic_jax.rules.tables import TOKENS, attention_rules, common_mlps, mlp_rules

FLAX_STACKED = (
    *attention_rules(stacked=True),
    *mlp_rules(stacked=True),
    *common_mlps(stacked=True),
    *TOKENS,
)
"""Stock Flax attention in layers that `nn.scan`, `nn.vmap`, `nnx.scan` or `nnx.vmap` stack.

Kernels are [L, D, H, K] and out [L, H, K, D], with layers along axis 0; the number of axes tells
them from single layers. Layers along another axis raise an error.

Read from: flax 0.12.8, flax/linen/attention.py and flax/nnx/nn/attention.py.
"""
