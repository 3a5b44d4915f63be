"""axlearn."""

from typing import Any

from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import (
    QKV,
    attention_rules,
    biases_of,
    embedding_rules,
    layer_names,
    mlp_rules,
    out_as_query,
)

_PROJECTIONS = (*(f"i_proj/(?:i_proj/)?{letter}" for letter in "qkv"), "o")


def _layers(fused: str, stack: str, path: str) -> tuple[Rule, ...]:
    within = f"{path}self_attention/attention$"
    options: dict[str, Any] = {"kernel": "weight", "stacked": bool(stack)}
    return (
        Rule("i_proj/(?:i_proj/)?qkv_proj/weight", QKV, f"{stack}{fused}", within=within),
        Rule(
            "i_proj/(?:i_proj/)?qkv_proj/bias",
            biases_of(QKV),
            f"{stack}{fused.replace('d ', '')}",
            within=within,
        ),
        *out_as_query(
            attention_rules(**layer_names("{}_proj", _PROJECTIONS), within=within, **options)
        ),
        *mlp_rules(first="linear1", second="linear2", within=f"{path}feed_forward$", **options),
    )


def _table(fused: str) -> tuple[Rule, ...]:
    tokens = embedding_rules("emb/token_emb/weight", "lm_head/weight", transposed=True)
    return (*_layers(fused, "l ", "repeat/layer/"), *_layers(fused, "", ""), *tokens)


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
