"""T5X and flaxformer."""

from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import attention_rules, mlp_rules
from mimetic_jax.zoo.norms import gains, gated

_SCANNED = r"(?:encoder/encoder|decoder/decoder)"
_LAYER = r"layers_\d+"


def _layers(layer: str, *, stacked: bool, flat: bool) -> tuple[Rule, ...]:
    """The rules of the layers in these blocks, whose stack is along axis 1."""
    attention = attention_rules(
        flat=flat,
        undivided=True,
        stacked=stacked,
        axis=1,
        within=f"{layer}/(?:self_)?attention$",
    )
    within = f"(?:^|/){layer}$"
    kernels = ("mlp/wi_1/kernel", "mlp/wi_0/kernel", "mlp/wo/kernel")
    norms = gains(
        "pre_(?:self_)?attention_layer_norm/scale",
        "pre_mlp_layer_norm/scale",
        layout="d l" if stacked else "d",
        within=within,
    )
    return (
        # No bias: those of models with the same names elsewhere don't say how logits are divided.
        *(rule for rule in attention if rule.path.endswith("kernel")),
        *gated(*kernels, axis=1 if stacked else None, beside="mlp/wi_0/kernel", within=within),
        *mlp_rules(first="mlp/wi", second="mlp/wo", stacked=stacked, axis=1, within=within),
        *norms,
    )


def _table(*, flat: bool) -> tuple[Rule, ...]:
    return (
        *_layers(_SCANNED, stacked=True, flat=flat),
        *_layers(_LAYER, stacked=False, flat=flat),
        # What shows whose names these are.
        Rule(r"relpos_bias/rel_embedding", ()),
        Rule(r"pre_mlp_layer_norm/scale", ()),
    )


T5X: tuple[Rule, ...] = _table(flat=True)
"""T5X's T5, mT5, ByT5, UMT5 and decoder-only models, and flaxformer's.

Blocks are encoder/layers_N/attention and decoder/layers_N/self_attention; scanned ones
(scalable_t5) encoder/encoder/attention and decoder/decoder/self_attention, with layers along axis
1. Kernels have their heads flattened, [D, H K] and out [H K, D], or [D, L, H K]: give `num_heads`.
H·K need not be D. Logits aren't divided by √K, as T5X folds that into the query's own initializer,
and flaxformer does unless `rescale_logits`: so the query takes that factor. T5 1.0 has MLPs of two
layers, wi and wo; the others gated ones. Cross-attention, encoder_decoder_attention, keeps its
initialization.

Of flaxformer, parallel layers have one norm and multiply the sum of both outputs by 2^-0.5: nothing
is folded there. With `rescale_logits`, give dataclasses.replace(rule, undivided=False) for each
rule.

Read from: google-research/t5x t5x/examples/{t5,scalable_t5,decoder_only}/{layers,network}.py
(cc342d4); google/flaxformer flaxformer/architectures/t5/t5_architecture.py,
flaxformer/components/{dense,layer_norm}.py, flaxformer/components/attention/dense_attention.py
(399ea3a).
"""

FLAXFORMER: tuple[Rule, ...] = (
    # Fused kernels divide logits: flaxformer refuses to fold √K into their initializer.
    Rule(r"qkv_fused/kernel", ("query", "key", "value"), "d three h k", within=_LAYER),
    Rule(r"kv_fused/kernel", ("key", "value"), "d two h k", within=_LAYER),
    Rule(r"query/kernel", "query", "d h k", beside="kv_fused/kernel", within=_LAYER),
    Rule(r"out/kernel", "out", "h k d", beside="qkv_fused/kernel", within=_LAYER),
    Rule(r"out/kernel", "out", "h k d", beside="kv_fused/kernel", within=_LAYER),
    *_table(flat=False),
)
"""flaxformer with `split_head_kernel`, which keeps heads apart: [D, H, K], scanned [D, L, H, K].

As `T5X`, and `num_heads` isn't needed. qkv_fused, [D, 3, H, K], and kv_fused need `rescale_logits`
there, so the query beside them is stored as it is. Multi-query attention raises an error that gives
the layout of a key without an axis of heads, "d k".

Read from: the files of `T5X`.
"""
