"""MaxText."""

from typing import Any

from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import attention_rules, embedding_rules, mlp_rules
from mimetic_jax.zoo.family import Family

_MODULES = r"(?:self_attention|attention|GptOssAttention)$"
_STACK = r"(?:^|/)layers(?:/layers_\d+|/global_layer)?"
_APART = r"layers_\d+"
_NORMS = (
    ("pre_self_attention(?:_layer)?_norm/scale", "attention_gain"),
    # Before the MLP, where no other norm is.
    ("post_self_attention_layer_norm/scale", "mlp_gain"),
    ("pre_ffw_norm/scale", "mlp_gain"),
    ("post_self_attention_norm/scale", "attention_scale"),
    ("post_ffw_norm/scale", "mlp_scale"),
)


def _layers(*, stacked: bool, undivided: bool, biases: bool) -> list[Rule]:
    """The rules of layers that `scan_layers` stacks along axis 1, or of layers apart."""
    layer = _STACK if stacked else _APART
    storage: dict[str, Any] = {"stacked": stacked, "axis": int(stacked), "exclude": ""}
    attention = attention_rules(**storage, undivided=undivided, within=f"{layer}/{_MODULES}")
    after = "post_mlp_layer_norm/scale"  # of OLMo 3, whose norms all come after
    return [
        *(rule for rule in attention if biases or rule.path.endswith("kernel")),
        *mlp_rules(
            first="mlp/wi_1", gate="mlp/wi_0", second="mlp/wo", within=f"{layer}$", **storage
        ),
        *(
            Rule(
                name,
                role,
                "d l" if stacked else "d",
                within=f"{layer}$",
                beside=beside,
            )
            for name, role, beside in (
                ("post_self_attention_layer_norm/scale", "attention_scale", after),
                (after, "mlp_scale", after),
                *((name, role, "") for name, role in _NORMS),
            )
        ),
    ]


def _family(*, undivided: bool) -> tuple[Rule, ...]:
    return (
        *_layers(stacked=True, undivided=undivided, biases=not undivided),
        *_layers(stacked=False, undivided=undivided, biases=not undivided),
        Rule(r"position_embedder/embedding", "position", "n d"),
        *embedding_rules("token_embedder/embedding", "logits_dense/kernel", exclude=""),
    )


_HARMLESS = r"MoeBlock_0/|GptOssMlp/|dropout|rngs"
MAXTEXT = Family(
    (*_family(undivided=False), Rule("sinks", ())),
    harmless=rf"{_HARMLESS}|(?:query|key)_norm/scale",
    needs=r"(?:self_attention|attention)/(?:query|key)_norm/scale"
    r"|self_attention/query/bias|GptOssAttention/sinks",
    absent=r"self_attention_(?:local|global|vision)/|(?:^|/)local_layers/",
)
"""MaxText's Qwen 2 and 3, Gemma 3, OLMo 3 and gpt-oss, which divide logits by √K or normalize
queries.

`scan_layers` (the default) stacks layers along axis 1 of a leaf, `param_scan_axis`: under
decoder/layers, query is [D, L, H, K] and out [H, L, K, D]; models that scan over groups of layers
(Gemma 3, OLMo 3, gpt-oss) have one stack per position in the group, decoder/layers/layers_N.
Without scan, blocks are decoder/layers_N. Another `param_scan_axis` raises an error. `num_heads`
isn't needed. Linen and NNX trees have the same names. MLPs are gated or mixtures of experts.

`fused_qkv` is refused: it stores H + 2 G heads along one axis, and each shard of that axis holds
heads of query, key and value, so that their order depends on the mesh. If heads aren't sharded (no
tensor parallelism), put a rule in front and give `num_heads` and `num_kv_heads`:

>>> from mimetic_jax import Rule
>>> qkv = ("query", "key", "value")
>>> layout = "d l (h+2g) k"
>>> rules = (Rule("qkv_proj/kernel", qkv, layout, within="self_attention$"), *MAXTEXT.rules)

Read from: AI-Hypercomputer/maxtext src/maxtext/layers/{attentions,linears,embeddings,decoders,
nnx_decoders,nnx_scan}.py, src/maxtext/models/{llama2,mistral,mixtral,gemma,gemma3,qwen2,qwen3,
olmo3,gpt_oss}.py, src/maxtext/configs/base.yml,
src/maxtext/checkpoint_conversion/utils/param_mapping.py (e591f30).
"""

MAXTEXT_LLAMA = Family(
    _family(undivided=True),
    harmless=_HARMLESS,
    needs=r"mlp/wi_0/kernel|MoeBlock_0/gate/kernel",
    absent=rf"{MAXTEXT.absent}|{MAXTEXT.needs}",
    note="the query takes 1/√K, as the model doesn't divide logits by √K",
)
"""MaxText's Llama 2 and 3, Mistral, Mixtral and Gemma 1, stored as `MAXTEXT`.

They have neither biases nor normalized queries, and don't divide logits by √K, because MaxText's
own initializer folds that into the query. So the query takes that factor here.

Read from: the files of `MAXTEXT`.
"""
