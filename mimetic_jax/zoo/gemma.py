"""Gemma, in DeepMind's own library and in big_vision."""

from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import QKV, embedding_rules
from mimetic_jax.zoo.norms import gains, scales


def _norms(*beside: str, plus_one: bool, layout: str = "d", within: str = "") -> tuple[Rule, ...]:
    first, second = ("pre_attention_norm/scale", "pre_ffw_norm/scale")
    after = ("post_(?:attention|attn)_norm/scale", "post_ffw_norm/scale")
    return (
        *gains(first, second, *beside, layout=layout, within=within, plus_one=plus_one),
        *scales(*after, *beside, layout=layout, within=within, plus_one=plus_one),
    )


_TOWERS = r"(?:^|/)(?:vision|audio)_encoder/"


def _gemma(suffix: str = "") -> tuple[Rule, ...]:
    leaves: tuple[tuple[str, str | tuple[str, ...], str], ...] = (
        ("qkv_einsum", QKV, "three h d k"),
        ("q_einsum", "query", "h d k"),
        ("kv_einsum", ("key", "value"), "two h d k"),
        ("attn_vec_einsum", "out", "h k d"),
    )
    return tuple(
        Rule(f"{layers}attn/{name}{suffix}/w", role, f"{stack}{layout}", exclude=_TOWERS)
        for layers, stack in (("(?<=layers/)", "l "), ("", ""))
        for name, role, layout in leaves
    )


_NORMS = (
    *_norms(plus_one=True, layout="l d", within="layers$"),
    *_norms("skip_scale", plus_one=False),
    *_norms(plus_one=True),
)

GEMMA: tuple[Rule, ...] = (
    # Global layers of Gemma 4, in which the key is the value.
    Rule("attn/attn_vec_einsum/w", (), beside="attn/k_einsum/w"),
    Rule("attn/k_einsum/w", "key", "g d k"),
    *_gemma(),
    *_NORMS,
    *embedding_rules("embedder/input_embedding"),
)
"""Gemma 2, 3 and 4 of the gemma library, and big_vision's Gemma (PaliGemma's llm).

Blocks are layer_N in gemma; in big_vision they are layers with `scan=True`, which stacks them along
axis 0, and layers/N without. If every query head has its own key and value, attn/qkv_einsum/w is
[3, H, D, K]; else attn/q_einsum/w is [H, D, K] and attn/kv_einsum/w [2, G, D, K].
attn/attn_vec_einsum/w is [H, K, D]. H·K need not be D. `num_heads` isn't needed. Positions are
rotary, the MLP is gated. Gemma 3 normalizes queries and keys before their product. Gemma 4
normalizes values too. In its global layers the key is the value (k_einsum): query and key are
written there, value and out in the others. Layers that take keys of another layer still have their
own, which are written and never used. Its vision and audio encoders keep their initialization.
PaliGemma's img tower needs `BIG_VISION` too: rules=(*GEMMA, *BIG_VISION). Models add 1 to gains;
Gemma 3n and 4 differ, of which Gemma 4 has a skip_scale and multiplies by its gains.

>>> import jax, jax.numpy as jnp
>>> from mimetic_jax import rewrite, schemes
>>> shapes = {"q_einsum": (4, 16, 8), "kv_einsum": (2, 2, 16, 8), "attn_vec_einsum": (4, 8, 16)}
>>> attention = {name: {"w": jnp.zeros(shape)} for name, shape in shapes.items()}
>>> tree = {"layer_0": {"attn": attention}}
>>> tree = rewrite(jax.random.key(0), tree, schemes.Mimetic(), rules=GEMMA)
>>> query, (keys, _) = (tree["layer_0"]["attn"][name]["w"] for name in ("q_einsum", "kv_einsum"))
>>> bool(jnp.trace(query[3] @ keys[1].T) > 3)
True

Read from: google-deepmind/gemma gemma/gm/nn/{_modules,_layers,_transformer}.py,
gemma/gm/nn/gemma4/{_modules,_layers,_transformer}.py (7691fd4);
google-research/big_vision big_vision/models/ppp/gemma.py,
big_vision/models/proj/paligemma/paligemma.py (0127fb6).
"""

OPENPI: tuple[Rule, ...] = (
    *_gemma("_1"),
    # What the policy takes from PaliGemma.
    Rule(r"attn/(?:qkv|q|kv|attn_vec)_einsum/w", (), beside="attn/attn_vec_einsum_1/w"),
    Rule(r"img/.*", (), within=r"PaliGemma$"),
    *gains(
        "pre_attention_norm_1/scale",
        "pre_ffw_norm_1/scale",
        layout="l d",
        within="layers$",
        plus_one=True,
    ),
)
"""openpi's policies (π₀): the action expert, which starts at random beside a trained PaliGemma.

Blocks are PaliGemma/llm/layers, stacked along axis 0. A layer has two attentions over the same
tokens, those of PaliGemma, attn/q_einsum/w as in `GEMMA`, and those of the expert,
attn/q_einsum_1/w. The expert's alone are described; PaliGemma's language model and image tower stay
unchanged. To write PaliGemma too, call `rewrite` again with rules=(*GEMMA, Rule(".*_1/w", ())).

Read from: Physical-Intelligence/openpi src/openpi/models/{gemma,pi0}.py (21b39ff).
"""
