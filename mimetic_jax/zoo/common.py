"""Common names of layers: those of libraries of layers, and of models of one's own.

Here a module of attention or of an MLP is known, not the layer that it is in: so norms aren't
folded. What stands for query, key and value in one kernel counts only where its order is the custom
of all that have the name.
"""

from typing import Any

from mimetic_jax.rules.flax import FLAX, common_mlps
from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import QKV, attention_rules, biases_of, embedding_rules
from mimetic_jax.zoo.family import Family
from mimetic_jax.zoo.storage import TOWERS, only_beside

_APART = (
    ("q_proj", "k_proj", "v_proj", "(?:o|out)_proj"),
    ("to_q", "to_k", "to_v", "to_(?:out|o)(?:/0)?"),
    ("wq", "wk", "wv", "wo"),
    ("query_proj", "key_proj", "value_proj", "(?:out|output)_proj"),
    ("query", "key", "value", "out"),
)
"""Names of four layers of attention."""
_FUSED = (("to_qkv", "to_out(?:/0)?", ""), ("c_attn", "c_proj", "!c_attn/bias"))
"""Names of a layer with query, key and value one after the other, of the last one, and what must
be absent if kernels are called weight: with a bias, c_attn is GPTBigCode's as well, which holds one
head after the other."""
_MLPS = (
    *(("fc1", "fc2"), ("linear1", "linear2"), ("lin1", "lin2"), ("up_proj", "down_proj")),
    *(("c_fc", "c_proj"), ("up", "down"), ("0", "2"), ("0", "3"), ("wi", "wo")),
)
GATED = (
    *(("up_proj", "down_proj", "gate_proj"), ("up", "down", "gate")),
    *(("w3", "w2", "w1"), ("w_up", "w_down", "w_gate")),
)
"""Names of the layers of MLPs: the first, the second, and the gate."""


def _attention(kernel: str, *, transposed: bool) -> list[Rule]:
    """Of one name of kernels: apart, with heads flattened or apart, or fused with flattened heads,
    whose number of axes tells; stacked where it tells, too."""
    storage: dict[str, Any] = {"kernel": kernel, "transposed": transposed, "exclude": ""}
    # Flattened heads in stacked layers have as many axes as heads that are apart in one layer.
    forms: list[dict[str, Any]] = [{"flat": True}]
    forms += [{"flat": True, "stacked": True}] if transposed else [{}, {"stacked": True}]
    rules: list[Rule] = []
    for query, key, value, out in _APART:
        names: dict[str, Any] = {"query": query, "key": key, "value": value, "out": out}
        for form in forms:
            rules += only_beside(
                attention_rules(**names, **storage, **form), f"{query}/{kernel}", f"{key}/{kernel}"
            )
    for fused, out, absent in _FUSED:
        layers = attention_rules(fused=fused, out=out, flat=True, **storage)
        rules += only_beside(layers, f"{fused}/{kernel}", absent if transposed else "")
    return rules


IN_PROJ = (
    Rule(r"[^/.]+/(?:in_proj_(?:weight|bias)|out_proj/(?:weight|bias))", (), beside="probe"),
    Rule("in_proj_weight", QKV, "(three h k) d"),
    Rule("in_proj_bias", biases_of(QKV), "(three h k)"),
    Rule("out_proj/weight", "out", "d (h k)", beside="in_proj_weight"),
    Rule("out_proj/bias", "out_bias", "d", beside="in_proj_weight"),
)
"""torch.nn.MultiheadAttention, and pooling by it from a learned probe."""

_OUT_FIRST: dict[str, Any] = {"kernel": "weight", "transposed": True}
_TIMM = attention_rules(fused="attn/qkv", out="attn/proj", flat=True, exclude="", **_OUT_FIRST)

UNDIVIDED = (
    r"(?:^|[/.])(?:relative_attention_bias|relpos_bias|pre_mlp_layer_norm)[/.]"
    r"|pre_(?:self_)?attention_layer_norm|wi_0/kernel|(?:^|[/.])attn[/.]attention[/.]"
)
"""Leaves of T5, GPT-Neo, MaxText and their kin, which have common names and don't divide logits."""

COMMON = Family(
    (
        *TOWERS,
        Rule("in_proj/.*", (), beside="A_log"),  # of Mamba
        Rule("multihead_attn/.*", (), beside="self_attn/in_proj_weight"),  # torch.nn's decoders
        *common_mlps(GATED),
        *common_mlps(GATED, **_OUT_FIRST),
        *FLAX,
        *_attention("kernel", transposed=False),
        *_attention("weight", transposed=True),
        *IN_PROJ,
        *_TIMM,
        Rule("attn/relative_position_bias_table", "relative_bias", "r h"),
        *common_mlps((("fc1", "fc2"), ("lin1", "lin2"))),
        *common_mlps(_MLPS, **_OUT_FIRST),
        *embedding_rules(
            "(?:(?:tok(?:ens?)?_?)?emb(?:ed(?:d(?:ing|er))?s?)?|embed_tokens|wte)/weight",
            "(?:lm_?head|unembed(?:ding)?)/weight",
            transposed=True,
            exclude="",
        ),
        Rule("(?:patch_embed(?:ding)?(?:/proj)?|conv_proj)/weight", "patch", "d c u v"),
        Rule("(?:wpe|pos(?:ition)?_embed(?:ding)?s?)/(?:weight|embedding)", "position", "n d"),
    ),
    harmless=r"(?i)(?:^|[/._])(?:\w*norm\w*|ln(?:_\w+)?)(?:[/.]|$)|rotary|rope|inv_freq|freqs"
    r"|(?:^|[/.])(?:bias_(?:[kv]|mask)|attn_mask|mask|sinks?)$"
    r"|(?:^|[/.])(?:self_)?att(?:n|ention)[/.](?:masked_|key_)?bias$"
    r"|(?:^|[/.])(?:w1|\w*gate\w*)[/.]b(?:ias)?$"
    r"|(?:^|[/.])rel(?:ative)?_(?:pos|coords|attention_bias|indices|position)"
    r"|distance_embedding|gating_param|pos_proj[/.]|(?:^|[/._])(?:drop|rngs|cache)",
    # Stages of MaxViT and others hold one head after the other by names of timm's ViT.
    absent=UNDIVIDED + r"|(?:^|[/.])stages[/.](?:.*[/.])?attn[/.]qkv[/.]"
    r"|cpe1[/.]",
    by_layer=False,
)
"""Common names of one's own models, and the layers of Flax, Equinox and torch.nn.

Apart: query, key, value, out; q_proj … o_proj; to_q … to_out; wq … wo; query_proj … output_proj.
Fused: to_qkv with to_out, c_attn with c_proj, PyTorch's attn.qkv with attn.proj, and
torch.nn.MultiheadAttention. Leaves called kernel are stored (in, out), with heads apart or
flattened, those called weight (out, in), as torch.nn and Equinox do. Flattened heads need
`num_heads`. MLPs are fc1 and fc2, linear1 and linear2, up and down and others, with a gate or
without.
"""
