"""Rules of attention and of MLPs from the names of their layers, and those of stock Flax."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from mimetic_jax.rules.layout import GROUPED
from mimetic_jax.rules.rule import ATTENTION, Rule

QKV = ATTENTION[:3]

CROSS_ATTENTION = (
    r"(?i:cross_?att|cross_mha|(?:src|context|memory)_att|encoder_attn"
    r"|enc_?dec_?att|encoder_decoder_att|decoder_encoder_att|xattn"
    r"|(?<![a-z_])(?:cross(?:_?(?:block|layer|module))?|enc_?dec)(?:_?\d+)?[/.]"
    r"|map_?head|att(?:n|ention|entive)?_?pool)"
)
"""Common names of attention whose queries come from other tokens than its keys, pooling among them.
The papers have studied self-attention alone."""


def attention_rules(
    *,
    query: str = "query",
    key: str = "key",
    value: str = "value",
    out: str = "out",
    fused: str = "",
    grouped: bool = False,
    by_head: bool = False,
    flat: bool = False,
    transposed: bool = False,
    stacked: bool = False,
    axis: Literal[0, 1] = 0,
    kernel: str = "kernel",
    bias: str = "bias",
    undivided: bool = False,
    within: str = "",
    exclude: str = CROSS_ATTENTION,
) -> tuple[Rule, ...]:
    """The rules of one kind of attention, with its biases, from the names of its four layers.

    Args:
        query, key, value, out: names of the layers, as regular expressions.
        fused: the name of one layer that holds query, key and value, in that order, instead of
            `query`, `key` and `value`.
        grouped: whether that layer holds its H query, G key and G value heads along one axis, as it
            must if there are fewer heads of key and value: give `num_heads` and `num_kv_heads`.
        by_head: whether that layer holds query, key and value of one head after the other, as
            GPT-NeoX does, instead of all heads of query before those of key.
        flat: whether kernels store heads flattened, [D, H K] and [H K, D], and `num_heads` tells
            them apart; otherwise [D, H, K] and [H, K, D].
        transposed: whether kernels are stored output first, as in PyTorch and Equinox.
        stacked: whether layers are stacked, as by `nn.scan`.
        axis: along which they are: `variable_axes` of `nn.scan`.
        kernel, bias: names of the leaves of a layer; "" if the layer is its kernel.
        undivided: whether the model doesn't divide logits by √K, as T5: see `Rule`.
        within, exclude: as in `Rule`. Leaves with a common name of cross-attention are left out
            unless another `exclude` is given.

    Returns:
        Rules for `rewrite`, `plan`, `blocks` and `fit`; add `mlp_rules` for the MLP and
        others for the position.

    Example:
        >>> for rule in attention_rules(fused="qkv", out="proj", flat=True):
        ...     print(rule.path, rule.layout)
        qkv/kernel d (three h k)
        proj/kernel (h k) d
        qkv/bias (three h k)
        proj/bias d
    """

    def layout(*axes: str) -> str:
        return _with_layers(axes[::-1] if transposed else axes, stacked, axis)

    def heads(axes: str) -> str:
        return f"({axes})" if flat else axes

    layers: dict[str, tuple[str | tuple[str, ...], str]] = {
        query: ("query", "h k"),
        key: ("key", "g k"),
        value: ("value", "g k"),
    }
    if fused:
        axes = f"{GROUPED} k" if grouped else "h three k" if by_head else "three h k"
        layers = {fused: (QKV, axes)}
    rule = functools.partial(Rule, within=within, exclude=exclude, undivided=undivided)
    named = layers.items()
    return (
        *(
            rule(_leaf(name, kernel), roles, layout("d", heads(axes)))
            for name, (roles, axes) in named
        ),
        rule(_leaf(out, kernel), "out", layout(heads("h k"), "d")),
        *(rule(f"{name}/{bias}", biases_of(r), layout(heads(axes))) for name, (r, axes) in named),
        rule(f"{out}/{bias}", "out_bias", layout("d")),
    )


def mlp_rules(
    *,
    first: str = "fc1",
    second: str = "fc2",
    gate: str = "",
    transposed: bool = False,
    stacked: bool = False,
    axis: Literal[0, 1] = 0,
    kernel: str = "kernel",
    bias: str = "bias",
    within: str = "",
    exclude: str = CROSS_ATTENTION,
) -> tuple[Rule, ...]:
    """The rules of an MLP of two layers, with its biases, from the names of the layers.

    A gated MLP, (act(x W_gate) ∘ x W_first) W_second, has no single first layer, and constants
    meant for two layers don't transfer to it: its rules are `read_only`.

    Args:
        first, second: names of the layers, as regular expressions.
        gate: the name of a third layer, whose output is activated and multiplies that of `first`.
        transposed: whether kernels are stored output first, as in PyTorch and Equinox.
        stacked: whether layers are stacked, as by `nn.scan`.
        axis: along which they are: `variable_axes` of `nn.scan`.
        kernel, bias: names of the leaves of a layer; "" if the layer is its kernel.
        within, exclude: as in `Rule`; the MLP of attention that `attention_rules` leaves out is
            left out, too.

    Returns:
        Rules for `rewrite`, `plan`, `blocks` and `fit`. One of the two layers without the other
        beside it is an error, as it is not an MLP: a classifier may have the same name.

    Example:
        >>> for rule in mlp_rules(first="up", second="down"):
        ...     print(rule.path, rule.role, rule.layout)
        up/kernel mlp_in d f
        up/bias mlp_in_bias f
        down/kernel mlp_out f d
        down/bias mlp_out_bias d
    """
    leaves = [
        (_leaf(first, kernel), "mlp_in", "d f"),
        (f"{first}/{bias}", "mlp_in_bias", "f"),
        (_leaf(second, kernel), "mlp_out", "f d"),
        (f"{second}/{bias}", "mlp_out_bias", "d"),
    ]
    if gate:
        leaves.append((_leaf(gate, kernel), "mlp_gate", "d f"))
    return tuple(
        Rule(
            path,
            role,
            _with_layers(axes.split()[:: -1 if transposed else 1], stacked, axis),
            within=within,
            exclude=exclude,
            partner="" if gate else "mlp_out" if role.startswith("mlp_in") else "mlp_in",
            beside=_leaf(gate, kernel) if gate else "",
            read_only=bool(gate),
        )
        for path, role, axes in leaves
    )


_MLP_NAMES = (
    *(("linear1", "linear2"), ("up", "down"), ("up_proj", "down_proj")),
    *(("wi", "wo"), ("c_fc", "c_proj")),
)
# Those of zoo.BIG_VISION are in a table of their own.
_MLP_MODULE = r"(^|/)(?!MlpBlock_\d)(?i:\w*mlp|feed_?forward|ffn?)(?i:_?(block|layer))?_?\d*$"
# The layers of an adapter are called up and down, too.
_NUMBERED_BLOCK = r"(^|/)(?!(?i:[^/]*adapt))[^/]*\d$"
_STACKED_BLOCKS = r"(?i:block|layer)s?$"
_STOCK_MODULES = (
    *("MultiHeadDotProductAttention_0", "MultiHeadAttention_0", "SelfAttention_0"),
    *("attention", "attn", "self_attention", "self_attn"),
)


def common_mlps(*, stacked: bool = False) -> tuple[Rule, ...]:
    """The rules of MLPs by common names of Flax's layers, each of which needs the other beside it.

    They are those of a module that is called an MLP or of a block. `Dense_0` and `Dense_1` are the
    names of any two layers: in a block they need attention beside them, and no `Dense_2`.
    """
    block = _STACKED_BLOCKS if stacked else _NUMBERED_BLOCK
    dense = ("Dense_0", "Dense_1")
    places = [
        *((names, f"{_MLP_MODULE}|{block}", ()) for names in _MLP_NAMES),
        (dense, _MLP_MODULE, ("!Dense_2/kernel",)),
        *((dense, block, (f"{name}/query/kernel", "!Dense_2/kernel")) for name in _STOCK_MODULES),
    ]
    return tuple(
        dataclasses.replace(
            rule, within=within, beside=(f"{first}/kernel", f"{second}/kernel", *others)
        )
        for (first, second), within, others in places
        for rule in mlp_rules(first=first, second=second, stacked=stacked)
    )


def llama_rules(
    *,
    query: str = "q_proj",
    key: str = "k_proj",
    value: str = "v_proj",
    out: str = "o_proj",
    gate: str = "gate_proj",
    up: str = "up_proj",
    down: str = "down_proj",
    attention_norm: str = "input_layernorm/weight",
    mlp_norm: str = "post_attention_layernorm/weight",
    query_norm: str = "q_norm/weight",
    key_norm: str = "k_norm/weight",
    embedding: str = "embed_tokens/weight",
    unembedding: str = "lm_head/weight",
    flat: bool = True,
    transposed: bool = True,
    stacked: bool = False,
    axis: Literal[0, 1] = 0,
    kernel: str = "weight",
    bias: str = "bias",
) -> tuple[Rule, ...]:
    """The rules of a decoder like Llama: all that `PositionalHeads` and `check` need of one.

    By default they are Hugging Face's names in PyTorch. A name that the model lacks describes
    nothing.

    Args:
        query, key, value, out: names of attention's layers, as for `attention_rules`.
        gate, up, down: those of the gated MLP, (act(x W_gate) ∘ x W_up) W_down.
        attention_norm, mlp_norm: paths of the gains of the norms before both, in a layer.
        query_norm, key_norm: those of norms over a head's columns, beside query and key.
        embedding, unembedding: as for `embedding_rules`.
        flat, transposed, stacked, axis, kernel, bias: as for `attention_rules`.

    Example:
        >>> rules = llama_rules(query="wq", key="wk", value="wv", out="wo", kernel="", flat=False)
        >>> [rule.layout for rule in rules if rule.path in ("wq", "wo")]
        ['h k d', 'd h k']
    """
    storage: dict[str, Any] = {"stacked": stacked, "axis": axis, "kernel": kernel, "bias": bias}
    norms = (
        (attention_norm, "attention_gain", "d"),
        (mlp_norm, "mlp_gain", "d"),
        (query_norm, "query_gain", "k"),
        (key_norm, "key_gain", "k"),
    )
    return (
        *attention_rules(
            query=query, key=key, value=value, out=out, flat=flat, transposed=transposed, **storage
        ),
        *mlp_rules(first=up, second=down, gate=gate, transposed=transposed, **storage),
        *embedding_rules(embedding, unembedding, transposed=transposed),
        *(Rule(path, role, _with_layers((axes,), stacked, axis)) for path, role, axes in norms),
    )


def embedding_rules(
    embedding: str = "",
    unembedding: str = "",
    *,
    transposed: bool = False,
    exclude: str = CROSS_ATTENTION,
) -> tuple[Rule, ...]:
    """The rules for the embedding of tokens, and for the output layer if it has its own kernel.

    Args:
        embedding, unembedding: paths of the two leaves, as regular expressions; "" for none.
        transposed: whether the output layer is stored output first, [T, D], as in PyTorch.
        exclude: as in `Rule`.

    Example:
        >>> [rule.layout for rule in embedding_rules("wte/embedding", "head/kernel")]
        ['t d', 'd t']
    """
    last = "t d" if transposed else "d t"
    leaves = ((embedding, "embedding", "t d"), (unembedding, "unembedding", last))
    return tuple(Rule(path, role, axes, exclude=exclude) for path, role, axes in leaves if path)


def _leaf(layer: str, kernel: str) -> str:
    """The path of a layer's kernel, which may be the layer itself."""
    return f"{layer}/{kernel}" if kernel else layer


def layer_names(pattern: str, names: Iterable[str] = ATTENTION) -> dict[str, Any]:
    """The names of the four layers, each in the place of {} in a pattern."""
    return {role: pattern.format(name) for role, name in zip(ATTENTION, names, strict=True)}


def only_beside(rules: tuple[Rule, ...], *leaves: str) -> tuple[Rule, ...]:
    """The rules for blocks that have other leaves, too, which tell whose names these are."""
    return tuple(dataclasses.replace(rule, beside=leaves) for rule in rules)


torch_attention = functools.partial(attention_rules, kernel="weight", flat=True, transposed=True)
torch_mlp = functools.partial(mlp_rules, kernel="weight", transposed=True)
"""As torch.nn.Linear stores layers."""


def _with_layers(groups: Sequence[str], stacked: bool, axis: int) -> str:
    """A layout of these axes, with layers along one of them if they are stacked."""
    axes = re.findall(r"\([^)]*\)|\S+", " ".join(groups))
    return " ".join([*axes[:axis], "l", *axes[axis:]] if stacked else axes)


def biases_of(roles: str | tuple[str, ...]) -> str | tuple[str, ...]:
    """The roles of the biases of one kernel, or of several in one leaf."""
    if isinstance(roles, str):
        return f"{roles}_bias"
    return tuple(f"{role}_bias" for role in roles)


def _within(blocks: str, rules: tuple[Rule, ...], stacked: bool = False) -> tuple[Rule, ...]:
    """The rules for these blocks alone; of stacked layers, if so."""
    layers = "l " if stacked else ""
    return tuple(
        dataclasses.replace(rule, within=blocks, layout=layers + rule.layout) for rule in rules
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
        dataclasses.replace(rule, beside="up/kernel", exclude="")
        for rule in mlp_rules(first="up", gate="fc1", second="fc2")
    ),
    Rule(r"fc1/bias", (), beside="up/kernel", read_only=True),
)
POOLING = tuple(
    Rule(rf"{module}(?:query|key|value|out)/(?:kernel|bias)", (), beside="probe")
    for module in ("", r"[^/.]+/")
)
"""Attention of stock names from a learned probe, beside it or in the same module."""

TOKENS = (
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
    *mlp_rules(stacked=True, within="blocks/mlp$"),
    *_within("blocks$", _NORMS, stacked=True),
    *_within(r"block_\d+$", _NORMS),
    *_within("blocks$", _MIXERS, stacked=True),
    *_MIXERS,
    *attention_rules(),
    *_QUERY_KEY_NORMS,
    *_LOGIT_BIASES,
    *mlp_rules(),
    *common_mlps(),
    Rule(r"pos(ition)?_embed(ding)?", "position", "1 n d"),
    *(Rule(r"patch_embed(ding)?/kernel", "patch", axes) for axes in ("(u v c) d", "u v c d")),
    *TOKENS,
)
"""Stock Flax attention, Linen and NNX; MLPs, token mixing, depthwise filters, relative position
biases and position table of our own models."""
