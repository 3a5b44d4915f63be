"""Rules of attention and of MLPs from the names of their layers, and those of stock Flax."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import converted
from mimetic_jax.rules.layout import GROUPED
from mimetic_jax.rules.rule import ATTENTION, Rule

QKV = ATTENTION[:3]

CROSS_ATTENTION = (
    r"(?i:cross_?att|cross_mha|(?:src|context|memory)_att|encoder_attn"
    r"|enc_?dec_?att|encoder_decoder_att|decoder_encoder_att|xattn"
    r"|(?:^|[/.])(?:cross(?:_?(?:block|layer|module))?|enc_?dec)(?:_?\d+)?[/.]"
    r"|map_?head|att(?:n|ention|entive)?_?pool)"
)
"""Common names of attention whose queries come from other tokens than its keys, pooling among them.
The papers have studied self-attention alone."""


def left_out(expression: str) -> tuple[Rule, ...]:
    """The rule by which leaves whose path has this expression stay; none if it is empty."""
    return (Rule(f".*(?:{expression}).*", ()),) if expression else ()


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
    """Make the rules of one kind of attention, with its biases, from the names of its four layers.

    Args:
        query: name of the layer of queries, a regular expression like all names.
        key: that of keys.
        value: that of values.
        out: that of the last layer.
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
        kernel: name of the kernel in a layer; "" if the layer is its kernel.
        bias: name of the bias in a layer.
        undivided: whether the model doesn't divide logits by √K, as T5.
        within: as in `Rule`.
        exclude: regular expression of paths that are left out: by default those with a common
            name of cross-attention.

    Returns:
        Rules for `rewrite`, `plan`, `blocks` and `fit`; add `mlp_rules` for the MLP and
        others for the position.

    Raises:
        InputError: for an argument that the others leave without a use, such as `grouped` without
            `fused`, or `axis` without `stacked`.

    Example:
        >>> for rule in attention_rules(fused="qkv", out="proj", flat=True, exclude=""):
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

    layers: dict[str, tuple[Any, str]] = {
        query: ("query", "h k"),
        key: ("key", "g k"),
        value: ("value", "g k"),
    }
    orders = {"grouped": grouped, "by_head": by_head}
    names = {role: name != role for name, (role, _) in layers.items()}
    if idle := [name for name, given in (names if fused else orders).items() if given]:
        where = f"with fused={fused!r}" if fused else "without fused=…"
        raise InputError(f"attention_rules {where} does not use {idle[0]}: leave it out")
    if grouped and by_head:
        raise InputError(
            "grouped and by_head are two orders of the heads in one kernel: pass one of them"
        )
    if fused:
        axes = f"{GROUPED} k" if grouped else "h three k" if by_head else "three h k"
        layers = {fused: (QKV, axes)}

    rule = functools.partial(Rule, within=within)
    each = [(name, r, axes, "query" in r and undivided) for name, (r, axes) in layers.items()]
    return (
        *left_out(exclude),
        *(
            rule(_leaf(name, kernel), roles, layout("d", heads(axes)), form=form)
            for name, roles, axes, form in each
        ),
        rule(_leaf(out, kernel), "out", layout(heads("h k"), "d")),
        *(
            rule(f"{name}/{bias}", biases_of(roles), layout(heads(axes)), form=form)
            for name, roles, axes, form in each
        ),
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
    """Make the rules of an MLP of two layers, with its biases, from the names of the layers.

    A gated MLP, (act(x W_gate) ∘ x W_first) W_second, has no single first layer, and constants
    meant for two layers don't transfer to it: its rules are `read_only`.

    Args:
        first: name of the first layer, a regular expression like all names.
        second: that of the second.
        gate: the name of a third layer, whose output is activated and multiplies that of `first`.
        transposed: whether kernels are stored output first, as in PyTorch and Equinox.
        stacked: whether layers are stacked, as by `nn.scan`.
        axis: along which they are: `variable_axes` of `nn.scan`.
        kernel: name of the kernel in a layer; "" if the layer is its kernel.
        bias: name of the bias in a layer.
        within: as in `Rule`.
        exclude: as for `attention_rules`.

    Returns:
        Rules for `rewrite`, `plan`, `blocks` and `fit`.

    Example:
        >>> for rule in mlp_rules(first="up", second="down", exclude=""):
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
    return left_out(exclude) + tuple(
        Rule(
            path,
            role,
            _with_layers(axes.split()[:: -1 if transposed else 1], stacked, axis),
            within=within,
            beside=_leaf(gate, kernel) if gate else "",
            read_only=bool(gate),
        )
        for path, role, axes in leaves
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
    """Make the rules of a decoder like Llama: all that `PositionalHeads` and `check` need of one.

    By default they are Hugging Face's names in PyTorch. A name that the model lacks describes
    nothing.

    Args:
        query: as for `attention_rules`.
        key: likewise.
        value: likewise.
        out: likewise.
        gate: name of the first layer of the gated MLP (act(x W_gate) ∘ x W_up) W_down.
        up: that of W_up.
        down: that of W_down.
        attention_norm: path of the gain of the norm before attention, in a layer.
        mlp_norm: that of the norm before the MLP.
        query_norm: that of a norm over a head's columns, beside query.
        key_norm: that beside key.
        embedding: as for `embedding_rules`.
        unembedding: likewise.
        flat: as for `attention_rules`.
        transposed: likewise.
        stacked: likewise.
        axis: likewise.
        kernel: likewise.
        bias: likewise.

    Returns:
        Rules for `rewrite`, `plan`, `check` and `fit`.

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
        *embedding_rules(embedding, unembedding, transposed=transposed, bias=bias),
        *(Rule(path, role, _with_layers((axes,), stacked, axis)) for path, role, axes in norms),
    )


def embedding_rules(
    embedding: str = "",
    unembedding: str = "",
    *,
    transposed: bool = False,
    bias: str = "bias",
    exclude: str = CROSS_ATTENTION,
) -> tuple[Rule, ...]:
    """Make the rules for the embedding of tokens, and for an output layer with its own kernel.

    Args:
        embedding: path of the embedding, a regular expression; "" for none.
        unembedding: that of the output layer's kernel.
        transposed: whether the output layer is stored output first, [T, D], as in PyTorch.
        bias: name of the bias beside a kernel whose own name is kernel, weight or w; one elsewhere
            needs a rule of its own.
        exclude: as for `attention_rules`.

    Returns:
        Rules for `rewrite`, `plan` and `check`.

    Example:
        >>> [rule.layout for rule in embedding_rules("wte/embedding", "head/kernel", exclude="")]
        ['t d', 'd t', 't']
    """
    beside = re.fullmatch(r"([\w/.]+|\(\?:[\w/.|?]+\))/(?:kernel|weight|w)", unembedding)
    leaves = (
        (embedding, "embedding", "t d"),
        (unembedding, "unembedding", "t d" if transposed else "d t"),
        (f"{beside[1]}/{bias}" if beside else "", "unembedding_bias", "t"),
    )
    return left_out(exclude) + tuple(Rule(path, role, axes) for path, role, axes in leaves if path)


def _leaf(layer: str, kernel: str) -> str:
    """The path of a layer's kernel, which may be the layer itself."""
    return f"{layer}/{kernel}" if kernel else layer


def layer_names(pattern: str, names: Iterable[str] = ATTENTION) -> dict[str, Any]:
    """The names of the four layers, each in the place of {} in a pattern."""
    return {role: pattern.format(name) for role, name in zip(ATTENTION, names, strict=True)}


torch_attention = functools.partial(attention_rules, kernel="weight", flat=True, transposed=True)
torch_mlp = functools.partial(mlp_rules, kernel="weight", transposed=True)
"""As torch.nn.Linear stores layers."""


def _with_layers(groups: Sequence[str], stacked: bool, axis: int) -> str:
    """A layout of these axes, with layers along one of them if they are stacked."""
    axis = converted("axis", Literal[0, 1], axis)
    if axis and not stacked:
        raise InputError("axis=1 is of stacked layers: pass stacked=True, or leave axis out")
    axes = re.findall(r"\([^)]*\)|\S+", " ".join(groups))
    return " ".join([*axes[:axis], "l", *axes[axis:]] if stacked else axes)


def biases_of(roles: str | tuple[str, ...]) -> str | tuple[str, ...]:
    """The roles of the biases of one kernel, or of several in one leaf."""
    if isinstance(roles, str):
        return f"{roles}_bias"
    return tuple(f"{role}_bias" for role in roles)
