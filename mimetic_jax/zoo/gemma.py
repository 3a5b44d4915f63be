"""Gemma, in DeepMind's own library and in big_vision."""

from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import QKV, embedding_rules, mlp_rules
from mimetic_jax.zoo.family import Family

_LEAVES: tuple[tuple[str, str | tuple[str, ...], str], ...] = (
    ("attn/qkv_einsum/w", QKV, "three h d k"),
    ("attn/q_einsum/w", "query", "h d k"),
    ("attn/kv_einsum/w", ("key", "value"), "two h d k"),
    ("attn/attn_vec_einsum/w", "out", "h k d"),
)
_NORMS = (
    ("pre_attention_norm/scale", "attention_gain", "d"),
    ("pre_ffw_norm/scale", "mlp_gain", "d"),
    ("post_(?:attention|attn)_norm/scale", "attention_scale", "d"),
    ("post_ffw_norm/scale", "mlp_scale", "d"),
)


def _layer(stack: str, within: str) -> tuple[Rule, ...]:
    return (
        *(Rule(path, role, f"{stack}{axes}", within=within) for path, role, axes in _LEAVES),
        *(
            Rule(path, role, f"{stack}{axes}", within=within, form="1 + w")
            for path, role, axes in _NORMS
        ),
    )


GEMMA = Family(
    (
        *_layer("l ", "(?:^|/)layers$"),
        *_layer("", ""),
        *mlp_rules(first="mlp/up_proj", gate="mlp/gate_proj", second="mlp/down_proj", exclude=""),
        *embedding_rules("embedder/input_embedding", exclude=""),
    ),
    harmless=r"attn/_?(?:query|key)_norm/scale|mlp/(?:gating_einsum|linear)(?:/w)?$|drop",
    needs=r"attn_vec_einsum/w",
    absent=r"_einsum_1/|skip_scale|/k_einsum",
)
"""Gemma 1 to 3 of the gemma library and of tunix, and big_vision's Gemma (PaliGemma's llm).

Blocks are layer_N in gemma; in big_vision they are layers with `scan=True`, which stacks them along
axis 0, and layers/N without. If every query head has its own key and value, attn/qkv_einsum/w is
[3, H, D, K]; else attn/q_einsum/w is [H, D, K] and attn/kv_einsum/w [2, G, D, K].
attn/attn_vec_einsum/w is [H, K, D]. H·K need not be D. `num_heads` isn't needed. Positions are
rotary, the MLP is gated. Gemma 3 normalizes queries and keys before their product. PaliGemma's img
tower needs `BIG_VISION` too: rules=(*zoo.GEMMA, *zoo.BIG_VISION). Models add 1 to gains; Gemma 3n
and 4 are others.

>>> import jax, jax.numpy as jnp
>>> from mimetic_jax import rewrite, schemes
>>> shapes = {"q_einsum": (4, 16, 8), "kv_einsum": (2, 2, 16, 8), "attn_vec_einsum": (4, 8, 16)}
>>> attention = {name: {"w": jnp.zeros(shape)} for name, shape in shapes.items()}
>>> tree = {"layer_0": {"attn": attention}}
>>> tree = rewrite(jax.random.key(0), tree, schemes.Mimetic(), rules=GEMMA.rules)
>>> query, (keys, _) = (tree["layer_0"]["attn"][name]["w"] for name in ("q_einsum", "kv_einsum"))
>>> bool(jnp.trace(query[3] @ keys[1].T) > 3)
True

Read from: google-deepmind/gemma gemma/gm/nn/{_modules,_layers,_transformer}.py (7691fd4);
google-research/big_vision big_vision/models/ppp/gemma.py,
big_vision/models/proj/paligemma/paligemma.py (0127fb6).
"""
