"""praxis."""

from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import QKV, attention_rules, biases_of, mlp_rules, out_as_query
from mimetic_jax.zoo.norms import gains, gated, scales

_FIRST, _GATE, _SECOND = (f"ff_layer/ffn_layer{name}" for name in ("1", "1_gate", "2"))


def _layer(stack: str, within: str) -> tuple[Rule, ...]:
    module = f"{within[:-1]}/self_attention$"
    hybrid = (
        rule
        for beside, adds in (("pre_layer_norm/bias", True), ("!pre_layer_norm/bias", False))
        for made, name in ((gains, "pre"), (scales, "post"))
        for rule in made(
            *(f"{layer}{name}_layer_norm/scale" for layer in ("", "ff_layer/")),
            beside,
            layout=f"{stack}d",
            within=within,
            plus_one=adds,
        )
    )
    kernels = (f"{name}/linear/w" for name in (_FIRST, _GATE, _SECOND))
    return (
        Rule("combined_qkv/w", QKV, f"{stack}three d h k", within=module),
        Rule("combined_qkv/b", biases_of(QKV), f"{stack}three h k", within=module),
        *out_as_query(
            attention_rules(out="post", kernel="w", bias="b", stacked=bool(stack), within=module)
        ),
        *gated(*kernels, axis=0 if stack else None, within=within, beside=f"{_GATE}/linear/w"),
        *mlp_rules(
            first=_FIRST,
            second=_SECOND,
            kernel="linear/w",
            bias="bias/b",
            stacked=bool(stack),
            within=within,
        ),
        *hybrid,
    )


PRAXIS: tuple[Rule, ...] = (
    *_layer("l ", r"(?:^|/)sub(?:/x_layers_\d+)?$"),
    *_layer("", r"(?:^|/)x_layers_\d+$"),
)
"""praxis and paxml: `Transformer` in `StackedTransformer` and `StackedTransformerRepeated`.

Blocks are …/x_layers_N/self_attention; repeated ones …/repeat/sub/x_layers_N, with layers along
axis 0. query, key, value and post are all [D, H, K], combined_qkv is [3, D, H, K]: `num_heads`
isn't needed. Logits are divided by √K (per_dim_scale contains it), unless
`internal_enable_query_scale` is off. cross_attention keeps its initialization, and so does a gated
MLP. With `attention_combine_dims` heads are flattened, which raises an error:
rules=attention_rules(out="post", kernel="w", bias="b", flat=True, …) fits but for post, whose rule
is Rule("post/w", "out", "d (h k)"); with `output_proj_use_nhd_shape` it is Rule("post/w", "out", "h
k d"), in front.

Only `norm_policy="primer_hybrid"` shows by its names where norms stand; "pre", the default, "post"
and "post_skip" share theirs, and nothing is folded: for "pre" with RmsNorm put
zoo.norms.gains("layer_norm/scale", "ff_layer/layer_norm/scale") in front, with plus_one=True for
LayerNorm, whose gain is 1 + w unless `direct_scale`.

Read from: google/praxis praxis/layers/{attentions,transformers,linears,normalizations,repeats}.py
(feeaff1).
"""
