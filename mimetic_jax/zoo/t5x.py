"""T5X."""

import functools

from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import attention_rules, embedding_rules, mlp_rules
from mimetic_jax.zoo.norms import gains

_SCANNED = r"(?:encoder/encoder|decoder/decoder)"
_LAYER = r"layers_\d+"


def _layers(layer: str, *, stacked: bool) -> tuple[Rule, ...]:
    """The rules of the layers in these blocks, whose stack is along axis 1."""
    attention = attention_rules(
        flat=True,
        undivided=True,
        stacked=stacked,
        axis=1,
        within=f"{layer}/(?:self_)?attention$",
    )
    within = f"(?:^|/){layer}$"
    mlp = functools.partial(mlp_rules, second="mlp/wo", stacked=stacked, axis=1, within=within)
    norms = gains(
        "pre_(?:self_)?attention_layer_norm/scale",
        "pre_mlp_layer_norm/scale",
        layout="d l" if stacked else "d",
        within=within,
    )
    return (
        # No bias: those of models with the same names elsewhere don't say how logits are divided.
        *(rule for rule in attention if rule.path.endswith("kernel")),
        *mlp(first="mlp/wi_1", gate="mlp/wi_0"),
        *mlp(first="mlp/wi"),
        *norms,
    )


T5X: tuple[Rule, ...] = (
    *_layers(_SCANNED, stacked=True),
    *_layers(_LAYER, stacked=False),
    *embedding_rules("token_embedder/embedding", "logits_dense/kernel"),
    # What shows whose names these are.
    Rule(r"relpos_bias/rel_embedding", ()),
    Rule(r"pre_mlp_layer_norm/scale", ()),
)
"""T5X's T5, mT5, ByT5, UMT5 and decoder-only models.

Blocks are encoder/layers_N/attention and decoder/layers_N/self_attention; scanned ones
(scalable_t5) encoder/encoder/attention and decoder/decoder/self_attention, with layers along axis
1. Kernels have their heads flattened, [D, H K] and out [H K, D], or [D, L, H K]: give `num_heads`.
H·K need not be D. Logits aren't divided by √K, as T5X folds that into the query's own initializer:
so the query takes that factor. T5 1.0 has MLPs of two layers, wi and wo; the others gated ones.
Cross-attention, encoder_decoder_attention, keeps its initialization.

Read from: google-research/t5x t5x/examples/{t5,scalable_t5,decoder_only}/{layers,network}.py
(cc342d4).
"""
