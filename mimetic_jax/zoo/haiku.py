"""Haiku."""

from mimetic_jax.rules.tables import attention_rules

HAIKU = attention_rules(out="linear", flat=True, kernel="w", bias="b")
"""Modules with `haiku.MultiHeadAttention`.

Parameters are {"…/multi_head_attention/query": {"w": …, "b": …}}; the output projection is the
module's linear. Weights are stored (in, out), query/w [D, H K] and linear/w [H K, D], with
flattened heads: give `num_heads`. Cross-attention is the same class: its name must identify it.
Other layers called linear, as in MLPs, have no value beside them and keep their initialization.

Read from: dm-haiku 0.0.17, haiku/_src/{attention,basic}.py.
"""
