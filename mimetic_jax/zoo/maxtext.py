"""MaxText."""

import functools
from collections.abc import Callable

from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import attention_rules, embedding_rules, layer_names, mlp_rules
from mimetic_jax.zoo.norms import gains, scales

# A lookbehind has a fixed width, hence one for each name of the module. Lookbehinds keep that name
# in the block's path, since a layer of Gemma 2 has two attentions, local and global.
_ATTENTION = r"(?:(?<=self_attention/)|(?<=self_attention_local/)|(?<=self_attention_global/))"
_SCANNED = (
    r"(?:(?<=layers/self_attention/)|(?<=layers/self_attention_local/)"
    r"|(?<=layers/self_attention_global/)|(?<=layers/layers_\d/self_attention/)"
    r"|(?<=layers/global_layer/self_attention/)|(?<=layers/local_layers/self_attention/))"
)
# Those of OLMo 3 and gpt-oss, whose layers without scan are layers_N.
_OTHERS = r"(?:(?<=layers_\d/attention/)|(?<=layers_\d\d/attention/)|(?<=GptOssAttention/))"
_OTHERS_SCANNED = r"(?:(?<=layers/layers_\d/attention/)|(?<=layers/layers_\d/GptOssAttention/))"


_EMBEDDINGS = (
    Rule(r"position_embedder/embedding", "position", "n d"),
    *embedding_rules("token_embedder/embedding", "logits_dense/kernel"),
)


def _attention(
    scanned: str = _SCANNED, apart: str = _ATTENTION, *, undivided: bool = False, fused: str = ""
) -> tuple[Rule, ...]:
    """The rules of stacked layers, and those of layers apart."""
    rules: list[Rule] = []
    for module, stacked in ((scanned, True), (apart, False)):
        rules += attention_rules(
            **layer_names(f"{module}{{}}"),
            fused=fused and f"{module}{fused}",
            undivided=undivided,
            stacked=stacked,
            axis=1,
            exclude="",
        )
    return tuple(rules)


_STACK = r"(?:^|/)layers(?:/layers_\d)?$"


def _norms(made: Callable[..., tuple[Rule, ...]], *names: str) -> tuple[Rule, ...]:
    """`gains` or `scales`; a stack has its layers along axis 1."""
    stacked = made(*names, layout="d l", within=_STACK)
    return *stacked, *made(*names, within=r"layers_\d+$")


# Those of Gemma 2's pairs of layers stand beside two attentions, and are left out.
_NORMS = (
    *_norms(  # OLMo 3
        scales,
        "post_self_attention_layer_norm/scale",
        "post_mlp_layer_norm/scale",
        "post_mlp_layer_norm/scale",
    ),
    *_norms(gains, "pre_self_attention_layer_norm/scale", "post_self_attention_layer_norm/scale"),
    *_norms(gains, "pre_self_attention_norm/scale", "pre_ffw_norm/scale"),
    *_norms(scales, "post_self_attention_norm/scale", "post_ffw_norm/scale"),
)
_mlp = functools.partial(mlp_rules, first="mlp/wi_1", gate="mlp/wi_0", second="mlp/wo")
_MLP = (
    *_mlp(stacked=True, axis=1, within=_STACK),
    *_mlp(),
)

MAXTEXT: tuple[Rule, ...] = (
    # Global layers of Gemma 4, in which the key is the value.
    Rule(f"{_ATTENTION}out/kernel", (), beside=("key/kernel", "!value/kernel")),
    *_attention(),
    *_attention(_OTHERS_SCANNED, _OTHERS),
    *_EMBEDDINGS,
    *_MLP,
    *_NORMS,
    # What shows that a model is none of `MAXTEXT_LLAMA`.
    Rule(f"(?:{_ATTENTION}|{_OTHERS})(?:(?:query|key)_norm/scale|sinks)", ()),
    Rule(r"Llama4MoEBlock_0/.*", ()),
)
"""MaxText's Qwen 2 and 3, Gemma 3, Llama 4, OLMo 3 and gpt-oss, which divide logits by √K or
normalize queries.

`scan_layers` (the default) stacks layers along axis 1 of a leaf, `param_scan_axis`: under
decoder/layers, query is [D, L, H, K] and out [H, L, K, D]; models that scan over groups of layers
(Gemma 3, Llama 4, OLMo 3, gpt-oss) have one stack per position in the group,
decoder/layers/layers_N. Gemma 4 stacks the local layers of a group once more: the error says how to
draw them. Without scan, blocks are decoder/layers_N. Another `param_scan_axis` raises an error.
`num_heads` isn't needed. Linen and NNX trees have the same names. MLPs are gated or mixtures of
experts.

`fused_qkv` raises an error: it stores H + 2 G heads along one axis, and each shard of that axis
holds heads of query, key and value, so that their order depends on the mesh. If heads aren't
sharded (no tensor parallelism), put a rule in front and give `num_heads` and `num_kv_heads`:

>>> from mimetic_jax import Rule
>>> qkv = ("query", "key", "value")
>>> rules = (Rule("(?<=self_attention/)qkv_proj/kernel", qkv, "d l (h+2g) k"), *MAXTEXT)

Read from: AI-Hypercomputer/maxtext src/maxtext/layers/{attentions,linears,embeddings,decoders,
nnx_decoders,nnx_scan}.py, src/maxtext/models/{llama2,mistral,mixtral,gemma,gemma2,gemma3,qwen2,
qwen3,llama4,olmo3,gpt_oss}.py, src/maxtext/configs/base.yml,
src/maxtext/checkpoint_conversion/utils/param_mapping.py (e591f30).
"""

MAXTEXT_LLAMA: tuple[Rule, ...] = (
    *(rule for rule in _attention(undivided=True) if rule.path.endswith("kernel")),
    *_EMBEDDINGS,
    *_MLP,
    *_NORMS,
    # What shows that a model is not stock Flax's; those of `MAXTEXT` have more marks of their own.
    Rule(r"mlp\w*/wi_0/kernel", ()),
    Rule(r"MoeBlock_0/gate/kernel", ()),
)
"""MaxText's Llama 2 and 3, Mistral, Mixtral, Gemma 1 and 2, stored as `MAXTEXT`.

They have neither biases nor normalized queries, and don't divide logits by √K, because MaxText's
own initializer folds that into the query. So the query takes that factor here. Gemma 2 has two
attentions a layer, self_attention_local and self_attention_global.

If the attention alone is given, without its MLP, this table and `MAXTEXT` fit equally well: the
error asks for one of them.

Read from: the files of `MAXTEXT`.
"""
