"""Do a model's layers have the structure? A number per product, before or after training."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Unpack

import numpy as np

from mimetic_jax.base.errors import InputError, blaming
from mimetic_jax.base.table import Listing, aligned, paragraph
from mimetic_jax.rules import paths
from mimetic_jax.schemes.block import Context
from mimetic_jax.trained.aim import LayerAim, aims_table, from_positions
from mimetic_jax.trained.pairs import LayerNorms, LayerPairs, Pair, layer_pairs
from mimetic_jax.trained.picture import alignments_figure, heads_figure
from mimetic_jax.trained.positional import HeadReader, LayerHeads, Turning, heads_table
from mimetic_jax.tree.around import surroundings
from mimetic_jax.tree.label import label
from mimetic_jax.tree.layers import views
from mimetic_jax.tree.options import TreeOptions, of_tree

_CLEAR = 4.0
"""An alignment counts as +I or -I beyond so many standard deviations of that of noise.

Of heads that are noise, one in 16,000 is beyond.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerCheck(LayerNorms):
    """How closely the products of one layer are aligned with the identity.

    Attributes:
        dim: D.
        query_key: the alignment of W_Q W_Kᵀ of each head, in [−1, 1]; empty without both kernels.
        value_out: the alignment of W_V W_out, None without both kernels.
        mlp: the alignment of W_1 W_2 of the MLP in the same block, likewise; of W_up W_down, if it
            is gated.
        means: the size of the means of W_1 over hidden units, one mean per input: their root mean
            square, divided by what independent entries give, σ(W_1) / √F. 1 is noise. None without
            an MLP, or if it is gated.
        gated: whether the MLP is gated.
        value_out_by_head: the alignment of W_V W_out of each head.
        folded: the roles of the norm scales and LayerScales that were folded in.
        negative: the share of negative entries of those scales, see `LayerNorms`.
        post_norm: whether a norm follows the sum, so that there is nothing to fold in.
        unknown: arrays of the layer that no rule describes.
    """

    dim: int
    query_key: tuple[float, ...]
    value_out: float | None
    mlp: float | None = None
    means: float | None = None
    gated: bool = False
    value_out_by_head: tuple[float, ...] = ()

    @property
    def noise(self) -> float:
        """The standard deviation of the alignment of independent noise: 1 / D."""
        return 1 / self.dim


class _Product(NamedTuple):
    """A product: its panel in the picture, what has it, its alignments in a layer, and the roles of
    what multiplies it."""

    title: str
    several: str
    alignments: Callable[[LayerCheck], Sequence[float]]
    folded: frozenset[str]


def _as_sequence(alignment: float | None, if_true: bool = True) -> Sequence[float]:
    return (alignment,) if if_true and alignment is not None else ()


_MLP = frozenset({"mlp_gain", "mlp_scale"})
_ATTENTION = frozenset({"attention_gain", "attention_scale"})
_PRODUCTS = {
    "W_Q W_Kᵀ": _Product(
        "$W_Q W_K^T$, each head", "heads", lambda x: x.query_key, frozenset({"attention_gain"})
    ),
    "W_V W_out": _Product(
        "$W_V W_{out}$", "layers", lambda x: _as_sequence(x.value_out), _ATTENTION
    ),
    "W_V W_out of a head": _Product(
        "", "heads", lambda x: x.value_out_by_head if _signs(x) else (), _ATTENTION
    ),
    "W_1 W_2": _Product("$W_1 W_2$", "layers", lambda x: _as_sequence(x.mlp, not x.gated), _MLP),
    "up·down": _Product(
        "$W_{up} W_{down}$", "layers", lambda x: _as_sequence(x.mlp, x.gated), _MLP
    ),
}


class Check(Listing[LayerCheck]):
    """The alignments of all layers; prints as a table with a sentence about each product.

    Attributes:
        note: what was folded into the products, in words; "" if there is nothing to fold.
        positional: the distances at which heads look, if rotary positions were given.
        aims: where heads look by the position embedding alone, if the tree has one of a grid.
    """

    note: str = ""
    positional: tuple[LayerHeads, ...] = ()
    aims: tuple[LayerAim, ...] = ()

    def __str__(self) -> str:
        tables = [self._attention()] if self else []
        tables += [heads_table(self.positional)] if self.positional else []
        tables += [aims_table(self.aims)] if self.aims else []
        return "\n".join(tables)

    def outside_of_noise(self) -> tuple[int, int]:
        """Count the products of attention that are aligned with ±I, and all of them."""
        clear = [
            abs(alignment) > _CLEAR * layer.noise
            for layer in self
            for alignment in (*layer.query_key, *_as_sequence(layer.value_out))
        ]
        return sum(clear), len(clear)

    def _attention(self) -> str:
        def cells(product: str) -> list[str]:
            layers = map(_PRODUCTS[product].alignments, self)
            return [" ".join(f"{cosine:+.3f}" for cosine in cosines) for cosines in layers]

        columns = {
            "layer": [layer.name for layer in self],
            "W_Q W_Kᵀ by head": cells("W_Q W_Kᵀ"),
            "W_V W_out": cells("W_V W_out"),
            "heads": [_signs(layer) for layer in self],
            "W_1 W_2": cells("W_1 W_2"),
            "W_1 means": ["" if x.means is None else f"{x.means:.1f}" for x in self],
            "up·down": cells("up·down"),
        }
        one_width = len({layer.dim for layer in self}) == 1
        if not one_width:
            columns["noise"] = [f"± {layer.noise:.3f}" for layer in self]
        shown = {name: cells for name, cells in columns.items() if any(cells) or name == "layer"}
        rows = [tuple(shown), *zip(*shown.values(), strict=True)]
        wrapped = list(shown).index("W_Q W_Kᵀ by head") if "W_Q W_Kᵀ by head" in shown else None
        lines = aligned(rows, wrapped=wrapped)
        if one_width:
            lines.append(f"independent noise: ± {self[0].noise:.3f}")
        for name, product in _PRODUCTS.items():
            if cosines := [(x, layer.noise) for layer in self for x in product.alignments(layer)]:
                lines.append(f"{name} {_counted(cosines)} {product.several}")
        if self.note:
            lines.append(paragraph(self.note))
        return "\n".join(lines)

    def plot(self, beside: Check | None = None) -> Any:
        """Return a figure of the alignments by layer, a point for each head; needs matplotlib.

        Args:
            beside: another check of the same layers, drawn as rings: the kernels alone, or before
                training.

        Returns:
            A matplotlib figure, which a notebook shows; or save it with `savefig(path)`.

        Raises:
            InputError: if matplotlib isn't installed.
        """
        return alignments_figure(
            self._points(),
            _CLEAR * np.array([layer.noise for layer in self]),
            f"noise, {_CLEAR:g} sd",
            label="with gains and scales" if any(layer.folded for layer in self) else None,
            beside=beside._points() if beside else {},
            beside_label="the kernels alone" if beside and not beside.note else "beside",
        )

    def plot_heads(self) -> Any:
        """Return a figure of the distances at which heads look, by layer and head: `positional`.

        Returns:
            A matplotlib figure, as `plot`.

        Raises:
            InputError: if matplotlib isn't installed, or `check` was given no rotary positions.
        """
        return heads_figure(self.positional)

    def _points(self) -> dict[str, list[tuple[int, float]]]:
        """Number of the layer and alignment, by the title of their panel."""
        panels = {
            product.title: [
                (i, alignment)
                for i, layer in enumerate(self)
                for alignment in product.alignments(layer)
            ]
            for product in _PRODUCTS.values()
            if product.title
        }
        return {title: points for title, points in panels.items() if points}


def check(
    params: Any,
    *,
    effective: bool = True,
    rotary: Turning | None = None,
    **options: Unpack[TreeOptions],
) -> Check:
    """Measure how closely the products of a tree's layers are aligned with the identity.

    The alignment of a product B [D, D] is its cosine with the identity,

        tr B / (‖B‖ √D),

    0 ± 1/D for independent noise and at most √(K/D) in size for a product of rank K. Mimetic
    initialization and trained vision transformers have W_Q W_Kᵀ with a positive alignment and
    W_V W_out with a negative one. `fit` says which constants α and β such a product has. Of a
    gated MLP the product is W_up W_down. Beside each layer's W_V W_out, the sum over heads, the
    numbers of heads are printed whose own product leans to +I and to −I.

    Args:
        params: a parameter tree, before or after training; layers may be stacked, kernels fused,
            heads grouped.
        effective: whether products are those that the activations meet, with the gain γ of the norm
            before the layer and the scale λ after it (LayerScale, or a norm before the sum):
            diag(γ) W_Q W_Kᵀ diag(γ), diag(γ) W_V W_out diag(λ) and diag(γ) W_1 W_2 diag(λ), if
            the rules know γ and λ. The table ends with a line that says what was folded into each
            product and what the layers hold besides. False: of the kernels alone.
        rotary: positions of the model, or their base alone; a sequence, if attention layers
            differ, with None for those without positions: also read at which distance each head
            looks by the part of query and key that doesn't depend on the token, see
            `trained.positional.LayerHeads`.
        **options: num_heads, num_kv_heads and rules, as for `plan`.

    Returns:
        A tuple with a `LayerCheck` per layer, which prints as a table; `plot` draws it. If the tree
        has one position embedding of a square grid, a second table says where attention looks by
        positions alone: the share of rows whose largest weight is at the offset that most rows of
        their head have, the weight there, and at how many tokens a row looks (exp of its entropy).

    Raises:
        InputError: as `blocks`; or if the tree has neither, or products aren't square or
            finite.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import flax.linen as nn
        >>> from mimetic_jax import rewrite, schemes
        >>> layer = nn.MultiHeadDotProductAttention(num_heads=2)
        >>> params = {"layer_0": layer.init(jax.random.key(0), jnp.ones((1, 4, 64)))["params"]}
        >>> check(params)[0].value_out < 3 * check(params)[0].noise
        True
        >>> print(check(rewrite(jax.random.key(1), params, schemes.Mimetic())))
        layer    W_Q W_Kᵀ by head  W_V W_out  heads
        layer_0  +0.572 +0.576     -0.712     +0 -2
        independent noise: ± 0.016
        W_Q W_Kᵀ aligned with +I in 2, with -I in 0 of 2 heads
        W_V W_out aligned with +I in 0, with -I in 1 of 1 layers
        W_V W_out of a head aligned with +I in 0, with -I in 2 of 2 heads

    Reference: Mimetic Initialization of Self-Attention Layers, section 3 and figure 1.
    """
    tree = label(params, **of_tree(options))
    described = views(tree, read_only=True)
    reader = None if rotary is None else HeadReader(tree, described, rotary)
    around = surroundings(tree, Context())
    layers, heads, seen = [], [], []
    for layer in layer_pairs(tree, described, effective=effective):
        with blaming(layer.name or "attention"):
            layers.append(_checked(layer))
            if reader and (read := reader.read(layer)):
                heads.append(read)
            if found := _aim(layer, around):
                seen.append(found)
    if not layers:
        raise InputError(
            "the tree has no attention with a query and key, or value and out, and no MLP"
        )
    return Check(
        layers, note=_note(layers) if effective else "", positional=tuple(heads), aims=tuple(seen)
    )


def aims(
    params: Any,
    targets: Iterable[np.ndarray | None] = itertools.repeat(None),
    grid: tuple[int, int] | None = None,
    **options: Unpack[TreeOptions],
) -> tuple[LayerAim, ...]:
    """Return the `aims` of `check` alone, each against its targets where these are known.

    Targets are [H, N, N], or None, at least one for each layer with a query and key.
    """
    tree = label(params, **of_tree(options))
    around = surroundings(tree, Context(grid=grid))
    pairs = layer_pairs(tree, views(tree, read_only=True), effective=True)
    layers = (layer for layer in pairs if layer.query_key)
    read = (_aim(layer, around, wanted) for layer, wanted in zip(layers, targets, strict=False))
    return tuple(filter(None, read))


def _aim(layer: LayerPairs, around: Context, targets: np.ndarray | None = None) -> LayerAim | None:
    if around.position is None or around.grid is None:
        return None
    return from_positions(layer, around.position, around.grid, targets)


def _checked(layer: LayerPairs) -> LayerCheck:
    alignments = {name: _alignments(pair) for name, pair in layer.pairs.items()}
    (value_out,), (mlp,) = (alignments.get(name, (None,)) for name in ("value_out", "mlp"))
    return LayerCheck(
        **{field.name: getattr(layer, field.name) for field in dataclasses.fields(LayerNorms)},
        dim=next(pair.left.shape[1] for pair in layer.pairs.values()),
        query_key=alignments.get("query_key", ()),
        value_out=value_out,
        mlp=mlp,
        means=_standing_out(layer.mlp.left[0]) if layer.mlp and not layer.gated else None,
        gated=layer.gated,
        value_out_by_head=alignments.get("by_head", ()),
    )


def _standing_out(first_DxF: np.ndarray) -> float:
    """The size of the rows' means, where that of independent entries is 1."""
    spread = first_DxF.std(axis=1)
    means = first_DxF.mean(axis=1)[spread > 0] / spread[spread > 0]
    return float(np.sqrt(np.mean(means**2) * first_DxF.shape[1])) if len(means) else 0.0


def _note(layers: Sequence[LayerCheck]) -> str:
    """What was folded into each product, and what may be missing; "" if there is nothing."""
    alike: dict[str, list[str]] = {}
    for name, product in _PRODUCTS.items():
        folded = [layer.folded & product.folded for layer in layers if product.alignments(layer)]
        if folded and product.title:
            alike.setdefault(_folded(folded), []).append(name)
    unknown = paths.group_alike(path for layer in layers for path in layer.unknown)
    if alike.keys() == {_ALONE} and not (unknown or any(x.post_norm for x in layers)):
        return ""
    parts = [f"{', '.join(products)} {text}" for text, products in alike.items()]
    share = np.median([x.negative for x in layers] or [0.0])
    if share > _NEGATIVE:
        parts.append(
            f"{share:.0%} of the gains' entries are not above 0: if the model adds 1 to them, pass "
            "rules with form='1 + w', such as zoo.GEMMA_1"
        )
    if any(x.post_norm for x in layers):
        parts.append("norms come after the sum and multiply no product")
    if unknown:
        more = ", …" if len(unknown) > 4 else ""
        parts.append(f"unknown, not folded: {', '.join(map(paths.summary, unknown[:4]))}{more}")
    return "; ".join(parts)


_NEGATIVE = 0.1
"""The share of gains that are not above 0, in most layers, that no trained model without the 1 has
shown."""
_ALONE = "of the kernels alone"


def _folded(folded: Sequence[frozenset[str]]) -> str:
    """What was folded into a product: how many layers have a gain, and a scale."""
    parts = []
    for what, words in (("gain", "the norm's gain"), ("scale", "the scale after the layer")):
        count = sum(any(role.endswith(what) for role in roles) for roles in folded)
        few = f" in {count} of {len(folded)} layers" if count < len(folded) else ""
        parts += [f"{words}{few}"] if count else []
    return f"with {' and '.join(parts)}" if parts else _ALONE


def _alignments(pair: Pair) -> tuple[float, ...]:
    pair.check_finite()
    return tuple(map(_alignment, pair.left, pair.right))


def _alignment(left_DxR: np.ndarray, right_DxR: np.ndarray) -> float:
    """The cosine of the product left rightᵀ with the identity; 0 of a product that is 0."""
    dim, rank = left_DxR.shape
    if rank < dim:  # ‖left rightᵀ‖² = tr(leftᵀ left · rightᵀ right) costs R columns instead of D
        square = np.sum((left_DxR.T @ left_DxR) * (right_DxR.T @ right_DxR))
    else:
        square = np.sum(np.square(left_DxR @ right_DxR.T))
    if square <= 0:
        return 0.0
    return float(np.sum(left_DxR * right_DxR) / np.sqrt(square * dim))


def _signs(layer: LayerCheck) -> str:
    """How many heads lean to +I and to -I; "" of a single head, which is the layer."""
    heads, limit = np.array(layer.value_out_by_head), _CLEAR * layer.noise
    return f"+{(heads > limit).sum()} -{(heads < -limit).sum()}" if len(heads) > 1 else ""


def _counted(alignments: Sequence[tuple[float, float]]) -> str:
    up, down = (sum(sign * x > _CLEAR * noise for x, noise in alignments) for sign in (1, -1))
    return f"aligned with +I in {up}, with -I in {down} of {len(alignments)}"
