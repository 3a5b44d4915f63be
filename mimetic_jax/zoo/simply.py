"""simply."""

from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import attention_rules, layer_names, mlp_rules, out_as_query
from mimetic_jax.zoo.norms import gains, gated, scales

_ARRAY = "(?:/0)?"
"""An `AnnotatedArray` is a node of the tree with one leaf."""


def _table(*, plus_one: bool) -> tuple[Rule, ...]:
    gate = "ffn/ffn_0_gate/w"
    kernels = ("ffn/ffn_0/w", gate, "ffn/ffn_1/w")
    return (
        *out_as_query(
            attention_rules(
                **layer_names("{}_proj", "qkvo"),
                kernel=f"w{_ARRAY}",
                bias=f"b{_ARRAY}",
                within=r"(?:^|/)attn$",
            )
        ),
        *(
            rule
            for leaf in ("", "/0")
            for rule in gated(*(f"{name}{leaf}" for name in kernels), beside=f"{gate}{leaf}")
        ),
        *mlp_rules(first="ffn/ffn_0", second="ffn/ffn_1", kernel=f"w{_ARRAY}", bias=f"b{_ARRAY}"),
        *gains(f"pre_ln_0/scale{_ARRAY}", f"pre_ln_1/scale{_ARRAY}", plus_one=plus_one),
        *scales(f"post_ln_0/scale{_ARRAY}", f"post_ln_1/scale{_ARRAY}", plus_one=plus_one),
        Rule(f"post_skip_ln_[01]/scale{_ARRAY}", "post_norm", "d", plus_one=plus_one),
    )


SIMPLY: tuple[Rule, ...] = _table(plus_one=False)
"""simply's TransformerLM, as configured for Qwen and others whose gain is w.

Blocks are block_N/attn; q_proj/w, k_proj/w, v_proj/w and o_proj/w are all [D, H, K]: `num_heads`
isn't needed. H·K need not be D. Parameters may be simply's annotated arrays or the arrays in them.
Logits are divided by √K, by `query_scale` or by a per_dim_scale that contains it. The MLP, ffn_0
and ffn_1, is gated if there is an ffn_0_gate. Models with `norm_scale_plus_one`, which is the
default of `SimplyConfig`, are `SIMPLY_PLUS_ONE`: the tree doesn't tell.

Read from: google-deepmind/simply simply/model_lib.py, simply/utils/{module,common}.py (e14c061).
"""

SIMPLY_PLUS_ONE: tuple[Rule, ...] = _table(plus_one=True)
"""`SIMPLY` for models with `norm_scale_plus_one`, whose gain is 1 + w."""
