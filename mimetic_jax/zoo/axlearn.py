"""axlearn."""

import functools

from mimetic_jax.tree.rules import Rule
from mimetic_jax.tree.tables import QKV, biases_of, mlp_rules

_ATTENTION = "i_proj/(?:i_proj/)?"


def _stack(fused: str, stacked: bool) -> tuple[Rule, ...]:
    layers = "l " * stacked
    within = "repeat/layer/self_attention/attention$" if stacked else "self_attention/attention$"

    def rule(path: str, role: str | tuple[str, ...], layout: str) -> Rule:
        return Rule(path, role, f"{layers}{layout}", within=within)

    axes = fused.replace("d ", "")
    return (
        rule(f"{_ATTENTION}qkv_proj/weight", QKV, fused),
        rule(f"{_ATTENTION}qkv_proj/bias", biases_of(QKV), axes),
        *(
            rule(f"{_ATTENTION}{role[0]}_proj/{leaf}", f"{role}{suffix}", f"{layout}{heads} k")
            for role, heads in (("query", "h"), ("key", "g"), ("value", "g"))
            for leaf, suffix, layout in (("weight", "", "d "), ("bias", "_bias", ""))
        ),
        rule("o_proj/weight", "out", "d h k"),
        rule("o_proj/bias", "out_bias", "d"),
    )


def _table(fused: str) -> tuple[Rule, ...]:
    mlp = functools.partial(mlp_rules, first="linear1", second="linear2", kernel="weight")
    return (
        *_stack(fused, stacked=True),
        *_stack(fused, stacked=False),
        *mlp(stacked=True, within="repeat/layer/feed_forward$"),
        *mlp(within="feed_forward$"),
    )


AXLEARN: tuple[Rule, ...] = _table("three d h k")
"""axlearn's transformers with as many heads of key and value as of query, or separate projections.

Blocks are …/layerN/self_attention/attention, or …/repeat/layer/self_attention/attention with layers
stacked along axis 0. Projections are i_proj/qkv_proj/weight [3, D, H, K], or q_proj, k_proj and
v_proj [D, H, K]; within another i_proj with rotary positions. o_proj/weight is [D, H, K] too.
`num_heads` isn't needed. cross_attention keeps its initialization, and so does a gated MLP.

Read from: apple/axlearn axlearn/common/attention.py (34aed43).
"""

AXLEARN_GROUPED: tuple[Rule, ...] = _table("d (h+2g) k")
"""axlearn's transformers with fewer heads of key and value, in one projection.

As `AXLEARN`, but i_proj/qkv_proj/weight holds the heads of query, key and value along one axis,
[D, H + 2 G, K]: give `num_heads` and `num_kv_heads`.

Read from: apple/axlearn axlearn/common/attention.py (34aed43).
"""
