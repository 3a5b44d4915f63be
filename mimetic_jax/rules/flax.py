"""Rules of stock Flax layers, Linen's and NNX's, and of our own models."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import attention_rules, embedding_rules, mlp_rules

_MLP_NAMES = (
    *(("linear1", "linear2"), ("up", "down"), ("up_proj", "down_proj")),
    *(("wi", "wo"), ("c_fc", "c_proj")),
)
MLP_MODULE = r"(^|/)(?!MlpBlock_\d)(?i:\w*mlp|feed_?forward|ffn?)(?i:_?(block|layer))?_?\d*$"
"""The path of a module that is called an MLP; those of big_vision have a family of their own."""
# The layers of an adapter are called up and down, too.
_NUMBERED_BLOCK = r"(^|/)(?!(?i:[^/]*adapt))[^/]*\d$"
_STACKED_BLOCKS = r"(?i:block|layer)s?$"
_STOCK_MODULES = (
    *("MultiHeadDotProductAttention_0", "MultiHeadAttention_0", "SelfAttention_0"),
    *("attention", "attn", "self_attention", "self_attn"),
)


def common_mlps(
    names: Iterable[tuple[str, ...]] = _MLP_NAMES, kernel: str = "kernel", **storage: Any
) -> tuple[Rule, ...]:
    """The rules of MLPs by common names of their layers, each of which needs the others beside it.

    They are those of a module that is called an MLP or of a block. Args: names of the first layer,
    the second, and of a gate; the name of kernels; `storage` are arguments of `mlp_rules`.
    """
    block = _STACKED_BLOCKS if storage.get("stacked") else _NUMBERED_BLOCK
    return tuple(
        dataclasses.replace(
            rule,
            within=MLP_MODULE if layers[0].isdecimal() else f"{MLP_MODULE}|{block}",
            beside=tuple(f"{layer}/{kernel}" for layer in layers),
        )
        for layers in names
        for rule in mlp_rules(
            first=layers[0],
            second=layers[1],
            gate="".join(layers[2:]),
            kernel=kernel,
            exclude="",
            **storage,
        )
    )


def _numbered_mlps(*, stacked: bool = False) -> tuple[Rule, ...]:
    """`Dense_0` and `Dense_1` are the names of any two layers: in a block they need attention
    beside them, and no `Dense_2`."""
    block = _STACKED_BLOCKS if stacked else _NUMBERED_BLOCK
    places = [
        (MLP_MODULE, ()),
        *((block, (f"{name}/query/kernel",)) for name in _STOCK_MODULES),
    ]
    return tuple(
        dataclasses.replace(
            rule,
            within=within,
            beside=("Dense_0/kernel", "Dense_1/kernel", "!Dense_2/kernel", *others),
        )
        for within, others in places
        for rule in mlp_rules(first="Dense_0", second="Dense_1", stacked=stacked, exclude="")
    )


def _within(blocks: str, rules: tuple[Rule, ...], stacked: bool = False) -> tuple[Rule, ...]:
    """The rules for these blocks alone; of stacked layers, if so."""
    layers = "l " if stacked else ""
    return tuple(
        dataclasses.replace(rule, within=blocks, layout=layers + rule.layout)
        if rule.roles
        else rule
        for rule in rules
    )


_LOGIT_BIASES = (
    Rule(r"relative_bias", "relative_bias", "r h"),
    Rule(r"shared_bias", "shared_bias", "u v"),
)
_QUERY_KEY_NORMS = (
    Rule(r"query_norm/scale", "query_gain", "k"),
    Rule(r"key_norm/scale", "key_gain", "k"),
)
_MIXERS = (
    Rule(r"token_mixing/fc1/kernel", "token_in", "n f"),
    Rule(r"token_mixing/fc1/bias", "token_in_bias", "f"),
    Rule(r"token_mixing/fc2/kernel", "token_out", "f n"),
    Rule(r"token_mixing/fc2/bias", "token_out_bias", "n"),
    Rule(r"depthwise/kernel", "depthwise", "u v 1 c"),
    Rule(r"depthwise/bias", "depthwise_bias", "c"),
)
_NORMS = (
    Rule(r"norm1/scale", "attention_gain", "d", beside="attention/query/kernel"),
    Rule(r"norm2/scale", "mlp_gain", "d", beside="mlp/fc1/kernel"),
    Rule(r"layer_scale", "attention_scale", "d", beside="attention/out/kernel"),
)
_SWIGLU = (
    *(
        dataclasses.replace(rule, beside="up/kernel")
        for rule in mlp_rules(first="up", gate="fc1", second="fc2", exclude="")
    ),
    Rule(r"fc1/bias", (), beside="up/kernel", read_only=True),
)
POOLING = tuple(
    Rule(rf"{module}(?:query|key|value|out)/(?:kernel|bias)", (), beside="probe")
    for module in ("", r"[^/.]+/")
)
"""Attention of stock names from a learned probe, beside it or in the same module."""

_TOKENS = (
    *embedding_rules(
        "(?:(?:tok(?:ens?)?_?)?embed(?:d(?:ing|er))?s?|embed_tokens|wte)/embedding",
        "(?:lm_?head|unembed(?:ding)?)/kernel",
    ),
    Rule(r"Embed_0/embedding", "embedding", "t d", beside="!Embed_1/embedding"),
)
"""The embedding of tokens by common names of an `nn.Embed`, and an output layer of its own."""

FLAX = (
    *POOLING,
    # Our models with `scan=True`.
    *attention_rules(stacked=True, within="blocks/attention$", exclude=""),
    *_within("blocks/attention$", (*_LOGIT_BIASES, *_QUERY_KEY_NORMS), stacked=True),
    *_within("blocks/mlp$", _SWIGLU, stacked=True),
    *_within(r"block_\d+/mlp$", _SWIGLU),
    *mlp_rules(stacked=True, within="blocks/mlp$", exclude=""),
    *_within("blocks$", _NORMS, stacked=True),
    *_within(r"block_\d+$", _NORMS),
    *_within("blocks$", _MIXERS, stacked=True),
    *_MIXERS,
    Rule("sum", (), beside=("fc1/kernel", "fc2/kernel")),  # b of b · sum(x), beside x W_1
    *attention_rules(),
    *attention_rules(stacked=True),
    *_QUERY_KEY_NORMS,
    *_LOGIT_BIASES,
    *(
        dataclasses.replace(rule, beside=("fc1/kernel", "fc2/kernel"))
        for stacked in (False, True)
        for rule in mlp_rules(stacked=stacked, exclude="")
    ),
    *common_mlps(),
    *common_mlps(stacked=True),
    *_numbered_mlps(),
    *_numbered_mlps(stacked=True),
    *(Rule(r"pos(ition)?_embed(ding)?", "position", layout) for layout in ("1 n d", "n d")),
    *(Rule(r"patch_embed(ding)?/kernel", "patch", axes) for axes in ("(u v c) d", "u v c d")),
    *_TOKENS,
)
"""Stock Flax attention, Linen and NNX, in layers apart or stacked along axis 0 as by `nn.scan`;
MLPs, token mixing, depthwise filters, relative position biases and position table of our models.

Kernels are [D, H, K] and out [H, K, D], with layers in front if they are stacked; the number of
axes tells. Layers along another axis raise an error.

Read from: flax 0.12.8, flax/linen/attention.py and flax/nnx/nn/attention.py.
"""
