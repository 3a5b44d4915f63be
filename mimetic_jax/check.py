"""Do a model's layers have the structure? A number per head, before or after training."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np

from mimetic_jax.errors import InputError, blaming
from mimetic_jax.extras import need
from mimetic_jax.pairs import Layer, Pair, attention_pairs, values
from mimetic_jax.rewrite import blocks
from mimetic_jax.rules import Rule
from mimetic_jax.schemes import Block
from mimetic_jax.table import aligned

_CLEAR = 4.0
"""Standard errors of noise beyond which a alignment counts: one head in 16,000 of noise has it."""

_TICKS = 16
"""Most layers that a picture names: of more, every second or third one."""


@dataclasses.dataclass(frozen=True)
class LayerCheck(Layer):
    """How closely the products of one attention layer are aligned with the identity.

    Attributes:
        dim: D.
        query_key: the alignment of W_Q W_Kᵀ of each head, in [-1, 1]; empty without both kernels.
        value_out: the alignment of W_V W_out, None without both kernels.
    """

    dim: int
    query_key: tuple[float, ...]
    value_out: float | None

    @property
    def noise(self) -> float:
        """The standard deviation of the alignment of independent noise: 1 / D."""
        return 1 / self.dim


@dataclasses.dataclass(frozen=True)
class StateSpaceCheck(Layer):
    """How far a state space layer is from one that forgets nothing and reads by content.

    Attributes:
        dim: D.
        read_write: the alignment of W_C W_Bᵀ, in [-1, 1].
        decay: the smallest and the largest −A of its heads; None without A_log.
        step: the smallest and the largest Δ of its heads at an input of 0, likewise.
    """

    dim: int
    read_write: float
    decay: tuple[float, float] | None
    step: tuple[float, float] | None

    @property
    def noise(self) -> float:
        """The standard deviation of the alignment of independent noise: 1 / D."""
        return 1 / self.dim


class Check(tuple[LayerCheck, ...]):
    """The alignments of all attention layers; prints as a table with a sentence about each pair.

    Attributes:
        state_spaces: of the state space layers, which have a table of their own.
    """

    state_spaces: tuple[StateSpaceCheck, ...]

    def __new__(
        cls, layers: Iterable[LayerCheck], state_spaces: Iterable[StateSpaceCheck] = ()
    ) -> Self:
        found = super().__new__(cls, layers)
        found.state_spaces = tuple(state_spaces)
        return found

    def __str__(self) -> str:
        tables = [self._attention()] if self else []
        return "\n".join([*tables, *([self._state_spaces()] if self.state_spaces else [])])

    def _state_spaces(self) -> str:
        rows = [("layer", "W_C W_Bᵀ", "noise", "-A by head", "Δ by head")]
        for layer in self.state_spaces:
            alignment, noise = f"{layer.read_write:+.3f}", f"± {layer.noise:.3f}"
            rows.append((layer.name, alignment, noise, _range(layer.decay), _range(layer.step)))
        alignments = _counted([(layer.read_write, layer.noise) for layer in self.state_spaces])
        return "\n".join([*aligned(rows), f"W_C W_Bᵀ {alignments} layers"])

    def _attention(self) -> str:
        rows = [("layer", "W_Q W_Kᵀ by head", "W_V W_out", "noise")]
        for layer in self:
            heads = " ".join(f"{alignment:+.3f}" for alignment in layer.query_key)
            value_out = "" if layer.value_out is None else f"{layer.value_out:+.3f}"
            rows.append((layer.name, heads, value_out, f"± {layer.noise:.3f}"))
        return "\n".join([*aligned(rows, wrapped=1), *self._says()])

    def _says(self) -> list[str]:
        heads = [(alignment, layer.noise) for layer in self for alignment in layer.query_key]
        layers = [(x.value_out, x.noise) for x in self if x.value_out is not None]
        return [
            *([f"W_Q W_Kᵀ {_counted(heads)} heads"] if heads else []),
            *([f"W_V W_out {_counted(layers)} layers"] if layers else []),
        ]

    def plot(self) -> Any:
        """A figure of the alignments by layer, a point for each head; needs matplotlib.

        Returns:
            A matplotlib figure, which a notebook shows; or save it with `savefig(path)`.

        Raises:
            InputError: if matplotlib isn't installed.
        """
        need("drawing", "plot")
        from matplotlib.figure import Figure

        class Picture(Figure):
            """Notebooks show a plain `Figure` only after pyplot has drawn one."""

            def _repr_png_(self) -> bytes:
                file = io.BytesIO()
                self.savefig(file, format="png")
                return file.getvalue()

        figure = Picture(figsize=(6.4, 3.2), layout="constrained")
        axes = figure.subplots(1, 2, sharey=True)
        depth = np.arange(len(self))
        at = [(i, alignment) for i, layer in enumerate(self) for alignment in layer.query_key]
        one = [(i, x.value_out) for i, x in enumerate(self) if x.value_out is not None]
        titles = ("$W_Q W_K^T$, each head", "$W_V W_{out}$")
        for panel, points, title in zip(axes, (at, one), titles, strict=True):
            noise = _CLEAR * np.array([layer.noise for layer in self])
            panel.fill_between(depth, -noise, noise, color="0.85", label=f"noise, {_CLEAR:g} sd")
            if points:
                panel.plot(*zip(*points, strict=True), "o", markersize=3)
            panel.set_title(title)
            shown = depth[:: -(-len(self) // _TICKS)]
            names = [self[i].name for i in shown]
            panel.set_xticks(shown, names, rotation=45, ha="right", rotation_mode="anchor")
            panel.set_xlabel("layer")
        axes[0].set_ylabel("alignment with the identity")
        axes[0].legend()
        return figure


def check(
    params: Any,
    *,
    num_heads: int | None = None,
    num_kv_heads: int | None = None,
    rules: Sequence[Rule] | None = None,
) -> Check:
    """How closely the attention and state space layers of a tree are aligned with the identity.

    The alignment of a product B [D, D] is its cosine with the identity,

        tr B / (‖B‖ √D),

    0 ± 1/D for independent noise and at most √(K/D) in size for a product of rank K. Mimetic
    initialization and trained vision transformers have W_Q W_Kᵀ with a positive alignment and
    W_V W_out with a negative one. `fit` says which constants α and β such a product has. Of a
    state space layer it is W_C W_Bᵀ, over all groups, with its A and Δ beside it:
    `schemes.MimeticSSM`.

    Args:
        params: a parameter tree, before or after training; layers may be stacked, kernels fused,
            heads grouped.
        num_heads: H, where kernels store heads flattened.
        num_kv_heads: G, likewise; H unless given.
        rules: what leaves are; unless given, stock Flax names or the table of `zoo` that fits.

    Returns:
        A tuple with a `LayerCheck` per attention layer, which prints as a table; `plot` draws it.
        Its `state_spaces` has a `StateSpaceCheck` per state space layer.

    Raises:
        InputError: as `blocks`; or if the tree has neither, or products aren't square or
            finite.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import flax.linen as nn
        >>> from mimetic_jax import rewrite, schemes
        >>> layer = nn.MultiHeadDotProductAttention(num_heads=2)
        >>> params = {"layer_0": layer.init(jax.random.key(0), jnp.ones((1, 4, 64)))["params"]}
        >>> print(check(params))
        layer    W_Q W_Kᵀ by head  W_V W_out  noise
        layer_0  -0.010 +0.002     +0.005     ± 0.016
        W_Q W_Kᵀ aligned with +I in 0, with -I in 0 of 2 heads
        W_V W_out aligned with +I in 0, with -I in 0 of 1 layers
        >>> print(check(rewrite(jax.random.key(1), params, schemes.Mimetic())))
        layer    W_Q W_Kᵀ by head  W_V W_out  noise
        layer_0  +0.572 +0.576     -0.712     ± 0.016
        W_Q W_Kᵀ aligned with +I in 2, with -I in 0 of 2 heads
        W_V W_out aligned with +I in 0, with -I in 1 of 1 layers

    Reference: Mimetic Initialization of Self-Attention Layers, section 3 and figure 1.
    """
    layers = []
    for layer in attention_pairs(
        params, num_heads=num_heads, num_kv_heads=num_kv_heads, rules=rules
    ):
        pairs = layer.query_key, layer.value_out
        dim = next(pair.left.shape[1] for pair in pairs if pair)
        with blaming(layer.name or "attention"):
            query_key, value_out = (_alignments(pair) if pair else () for pair in pairs)
        one_out = value_out[0] if value_out else None
        layers.append(LayerCheck(layer.path, layer.index, dim, query_key, one_out))
    state_spaces = [
        _state_space(path, index, block)
        for path, index, block in blocks(
            params, num_heads=num_heads, num_kv_heads=num_kv_heads, rules=rules
        )
        if {"ssm_b", "ssm_c"} <= block.keys()
    ]
    if not (layers or state_spaces):
        raise InputError(
            "the tree has no attention with a query and key, or value and out, and no state space "
            "layer"
        )
    return Check(layers, state_spaces)


def _state_space(path: str, index: int | None, block: Block) -> StateSpaceCheck:
    written, read = (values(block, role) for role in ("ssm_b", "ssm_c"))
    log_decay, bias = (
        values(block, role) if role in block else None for role in ("ssm_a", "ssm_dt_bias")
    )
    with blaming(path):
        (alignment,) = _alignments(Pair(read[None], written[None], 1))
    decay = None if log_decay is None else _ends(np.exp(log_decay))
    step = None if bias is None else _ends(np.logaddexp(0, bias))  # softplus
    return StateSpaceCheck(path, index, len(read), alignment, decay, step)


def _ends(values: np.ndarray) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def _range(ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f"{ends[0]:.2g} to {ends[1]:.2g}"


def _alignments(pair: Pair) -> tuple[float, ...]:
    pair.check_finite()
    return tuple(map(_alignment, pair.left, pair.right))


def _alignment(left_DxR: np.ndarray, right_DxR: np.ndarray) -> float:
    """The cosine of the product left rightᵀ with the identity; 0 of a product that is 0."""
    # ‖left rightᵀ‖² = tr(leftᵀ left · rightᵀ right) costs R columns instead of D.
    square = np.sum((left_DxR.T @ left_DxR) * (right_DxR.T @ right_DxR))
    if square == 0:
        return 0.0
    return float(np.sum(left_DxR * right_DxR) / np.sqrt(max(square, 0.0) * len(left_DxR)))


def _counted(alignments: Sequence[tuple[float, float]]) -> str:
    up, down = (sum(sign * x > _CLEAR * noise for x, noise in alignments) for sign in (1, -1))
    return f"aligned with +I in {up}, with -I in {down} of {len(alignments)}"
