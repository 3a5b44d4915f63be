"""Read the constants of schemes off a parameter tree: the inverse of `rewrite`."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, Unpack

import numpy as np

from mimetic_jax.base.errors import InputError, blaming
from mimetic_jax.base.table import Listing, aligned
from mimetic_jax.host.cores import limited_blas
from mimetic_jax.rules import paths
from mimetic_jax.schemes import CorrelatedMLP, Interpolated, Mimetic, PositionalHeads, Scheme
from mimetic_jax.schemes.base import call_of
from mimetic_jax.trained.pairs import Layer, Pair, layer_pairs
from mimetic_jax.trained.positional import HeadReader, Turning, fitted, stands_out
from mimetic_jax.tree.label import label
from mimetic_jax.tree.layers import views
from mimetic_jax.tree.options import TreeOptions, of_tree
from mimetic_jax.tree.template import part_of, without
from mimetic_jax.weights.truncation import actual_constants, expected_singular_values

# Below this share of β, α is float rounding: α = 0 is another scheme, which truncates to the first
# K coordinates instead of random ones.
_ZERO_ALPHA = 1e-3

_CONSTANTS = ("alpha", "beta")
_PAIRS = {"query_key": "qk", "value_out": "vo"}
"""The products, and the ends of the names of their constants."""


@dataclasses.dataclass(frozen=True)
class PairFit:
    """The constants of one product in one layer, W_Q W_Kᵀ (all its heads) or W_V W_out.

    Attributes:
        alpha: α of the matrix αZ + βI of full rank whose best approximation has the product's mean
            diagonal and norm.
        beta: β of the same matrix.
        alpha_error: standard error of α. At least that of one draw of the scheme, α / √(2 D K)
            divided by the root of the number of heads drawn apart (exact at K = D, up to twice too
            large for small K); larger if heads differ more.
        beta_error: standard error of β, at least α / √(D K) divided likewise.
        residual: how far the product is from any draw of the scheme: the root of the summed squared
            differences between its singular values and the expected ones, over its Frobenius norm.
            By Mirsky's theorem this is the relative Frobenius distance to the nearest matrix with
            those singular values, in any basis.
    """

    alpha: float
    beta: float
    alpha_error: float
    beta_error: float
    residual: float


@dataclasses.dataclass(frozen=True)
class MLPFit:
    """The constant of one MLP.

    Attributes:
        rho: ρ of `CorrelatedMLP`: the correlation of the entries of W_1 and W_2ᵀ, both without
            their means over hidden units, which `MeanShift` may have moved.
        rho_error: its standard error, (1 − ρ²) / √(D F).
    """

    rho: float
    rho_error: float


@dataclasses.dataclass(frozen=True)
class LayerFit(Layer):
    """The constants of one layer.

    Attributes:
        query_key: the fit of query and key; None if the layer doesn't have both kernels.
        value_out: the fit of value and out, likewise.
        mlp: the fit of the MLP in the same block, likewise.
    """

    query_key: PairFit | None
    value_out: PairFit | None
    mlp: MLPFit | None = None


class Fit(Listing[LayerFit]):
    """The constants of every layer; prints as a table followed by the scheme.

    Attributes:
        rules: the name of the rules by which the layers were found, as `rules=` takes it.
        positional: the distances at which heads look, if rotary positions were given; None if no
            head looks at one.
        constant_parts: whether query and key of the first layer have parts that don't depend on the
            token, see `positional.stands_out`, and there is neither a table of positions nor were
            rotary ones given.
    """

    rules: str = "rules"
    positional: PositionalHeads | None = None
    constant_parts: bool = False

    def __str__(self) -> str:
        try:
            schemes = self.schemes
        except InputError as error:
            return f"{self.table()}\n{error}"
        lines = [self.table(), ", ".join(call_of(scheme, _CONSTANTS) for scheme in schemes)]
        if self.constant_parts:
            lines.append(
                "query and key have parts that don't depend on the token: with rotary positions "
                "heads may look at a distance by them, which fit reads if it is given the base"
            )
        return "\n".join(lines)

    def table(self) -> str:
        """Return a line per layer: α, β and ρ with standard errors, and residuals of the pairs."""
        head = ["layer", *(f"{n}_{p}" for p in _PAIRS.values() for n in ("α", "β", "residual"))]
        rows = [[*head, "ρ_mlp"]]
        for layer in self:
            cells = [cell for pair in _PAIRS for cell in _cells(getattr(layer, pair))]
            rho = _with_error(layer.mlp.rho, layer.mlp.rho_error, "+") if layer.mlp else ""
            rows.append([layer.name, *cells, rho])
        filled = [any(row[i] for row in rows[1:]) for i in range(len(rows[0]))]
        shown = [[cell for cell, kept in zip(row, filled, strict=True) if kept] for row in rows]
        return "\n".join(aligned(shown, str.rjust))

    @property
    def schemes(self) -> tuple[Scheme, ...]:
        """The schemes that mimic the layers: `scheme`, `CorrelatedMLP` if there are MLPs, and
        `positional` if heads look at distances.

        Raises:
            InputError: as `scheme`.
        """
        schemes: list[Scheme] = []
        if any(layer.query_key or layer.value_out for layer in self):
            schemes.append(self.scheme)
        if rhos := [layer.mlp.rho for layer in self if layer.mlp]:
            schemes.append(CorrelatedMLP(_interpolated(rhos)))
        if self.positional:
            schemes.append(self.positional)
        return tuple(schemes)

    @property
    def scheme(self) -> Mimetic:
        """The scheme that mimics attention, with α and β by depth for each pair.

        It serves networks of any depth: `Interpolated`. A pair that no layer has, or that is zero
        in all of them, is None. Numbers have 4 digits.

        Raises:
            InputError: if the layers aren't of one kind, such as those of an encoder and a decoder,
                or if only some of them have a pair: no single scheme describes them.
        """
        attention = [layer for layer in self if layer.query_key or layer.value_out]
        kinds = {paths.family(layer.path): layer.path for layer in attention}
        if len(kinds) > 1:
            first, *others = sorted(kinds)
            parts = (part_of(kinds[other], kinds[first]) for other in others)
            left_out = without(self.rules, *parts, keep=True)
            raise InputError(
                f"no single scheme describes {' and '.join(sorted(kinds))}: to fit {first} alone, "
                f"leave the rest out with {left_out}"
            )
        return Mimetic(
            **{name: x for pair in _PAIRS for name, x in _constants_of(pair, attention).items()}
        )

    @property
    def constant(self) -> Mimetic:
        """`scheme` with the mean over layers instead of one number per layer."""
        scheme = self.scheme
        means: dict[str, Any] = {
            field: float(f"{np.mean(value.values):.4g}")
            if isinstance(value, Interpolated)
            else value
            for field, value in vars(scheme).items()
            if field.startswith(_CONSTANTS)
        }
        return dataclasses.replace(scheme, **means)


def _constants_of(pair: str, layers: Sequence[LayerFit]) -> dict[str, Any]:
    short = _PAIRS[pair]
    fits = [getattr(layer, pair) for layer in layers]
    if all(pair_fit is None or pair_fit.alpha == pair_fit.beta == 0 for pair_fit in fits):
        return {f"alpha_{short}": None, f"beta_{short}": None}
    if None in fits:
        missing = layers[fits.index(None)].name
        raise InputError(f"{missing} has no {pair.replace('_', ' and ')}, but other layers do")
    return {
        f"{field}_{short}": _interpolated([getattr(pair_fit, field) for pair_fit in fits])
        for field in _CONSTANTS
    }


def _interpolated(values: Sequence[float]) -> Any:
    """With 4 digits; of one layer the number."""
    rounded = tuple(float(f"{value:.4g}") for value in values)
    return Interpolated(rounded) if len(rounded) > 1 else rounded[0]


def fit(
    params: Any,
    *,
    effective: bool = True,
    rotary: Turning | None = None,
    **options: Unpack[TreeOptions],
) -> Fit:
    """Estimate the initialization that trained weights look like, layer by layer.

    `Mimetic(α, β)` gives W_Q W_Kᵀ = the best rank-K approximation of αZ + βI per head, and
    W_V W_out = αZ + βI per layer. Here α and β come from two numbers per product B, the mean of its
    diagonal tr B / D and its norm ‖B‖² / D, averaged over heads: they depend on neither the basis
    nor the coordinates that truncation kept. At full rank β is that mean and α² = ‖B‖² / D − β². A
    product of rank K < D shows less of both, and the law of truncation is inverted:
    `weights.truncation`. As the law is homogeneous, this is one curve in β / α for each K / D.

    β is not the diagonal: truncation keeps the directions in which the noise adds to the identity.
    If training adds noise to the noiseless start of `mimetic_language`, the diagonal stays and β
    falls, because a smaller β with that α shows the same diagonal. A large residual says that the
    weights aren't a draw of any `Mimetic`.

    The products are those that the activations meet, with the gain of the norm before the layer and
    the LayerScale after it: see `check`. A fresh network has gains of 1, so that a scheme with the
    constants that were read gives it these products. Of an MLP ρ is the correlation of its layers.

    Heads that disagree still share one α and β, with large errors. Attention without the structure,
    such as a default initialization, has β = 0 within its error, and some α.

    Args:
        params: a parameter tree; layers may be stacked, kernels fused, heads grouped.
        effective: as in `check`.
        rotary: as in `check`: also read the distances at which heads look, see
            `trained.positional.fitted`.
        **options: num_heads, num_kv_heads and rules, as for `plan`.

    Returns:
        A tuple with a `LayerFit` per layer; its `schemes` have these constants, and it prints as a
        table.

    Raises:
        InputError: as `blocks`; if the tree has neither attention nor an MLP, or products aren't
            square or finite.

    Example:
        >>> import jax
        >>> from mimetic_jax.tree.rewrite import rewrite
        >>> from mimetic_jax.schemes.mimetic import mimetic_language
        >>> shapes = {"query": (48, 3, 16), "key": (48, 3, 16), "value": (48, 3, 16)}
        >>> shapes["out"] = (3, 16, 48)
        >>> params = {name: {"kernel": np.zeros(shape)} for name, shape in shapes.items()}
        >>> layer, = fit(rewrite(jax.random.key(0), {"attention": params}, mimetic_language()))
        >>> layer.query_key.alpha, round(layer.query_key.beta, 3)
        (0.0, 0.5)

    Reference: Mimetic Initialization of Self-Attention Layers, eqs. 1-7 and figure 3.
    """
    layers = []
    tree = label(params, **of_tree(options))
    for layer in layer_pairs(tree, views(tree), effective=effective):
        with blaming(layer.name or "attention"):
            query_key, value_out = (
                _fitted(pair) if pair else None for pair in (layer.query_key, layer.value_out)
            )
            mlp = _fitted_mlp(layer.mlp) if layer.mlp else None
            layers.append(LayerFit(layer.path, layer.index, query_key, value_out, mlp))
    if not layers:
        shown = ", ".join(tree.paths[:8]) + (", …" if len(tree.paths) > 8 else "")
        raise InputError(f"there is no attention or MLP to fit among the paths {shown or '(none)'}")
    positional, every = None, views(tree, read_only=True)
    known = rotary is not None or any("position" in roles for roles in tree.blocks.values())
    attention = (x for x in layer_pairs(tree, every, effective=effective) if x.query_key)
    constant_parts = not known and any(map(stands_out, itertools.islice(attention, 1)))
    if rotary is not None:
        reader = HeadReader(tree, every, rotary)
        heads = [reader.read(layer) for layer in layer_pairs(tree, every, effective=effective)]
        turns = list(dict.fromkeys(filter(None, reader.turns)))
        if len(turns) > 1 or None in reader.turns:
            raise InputError(
                "The layers have different rotary positions, which one PositionalHeads cannot "
                "express. Call fit without rotary=."
            )
        if turns:
            positional = fitted([layer for layer in heads if layer], turns[0])
    return Fit(
        layers, rules=tree.name_of_rules, positional=positional, constant_parts=constant_parts
    )


def _fitted(pair: Pair) -> PairFit:
    left, right, draws = pair.left, pair.right, pair.draws
    pair.check_finite()
    dim, rank = left.shape[1], min(left.shape[1:])
    diagonals = np.einsum("hdk,hdk->h", left, right) / dim
    with limited_blas():
        # Singular values of the product, at the cost of K columns instead of D.
        triangles: Any = [np.linalg.qr(factor, mode="r") for factor in (left, right)]
        cores = triangles[0] @ triangles[1].swapaxes(1, 2)
        values = np.linalg.svd(cores, compute_uv=False)[:, :rank]
    powers = np.square(values).sum(axis=1) / dim
    alpha, beta = _constants(diagonals.mean(), powers.mean(), rank / dim)
    if powers.mean() == 0:
        return PairFit(0.0, 0.0, 0.0, 0.0, 0.0)
    errors = np.array([alpha / math.sqrt(2 * dim * rank), alpha / math.sqrt(dim * rank)])
    if draws > 1:
        each = [
            _constants(diagonal, power, rank / dim)
            for diagonal, power in zip(diagonals, powers, strict=True)
        ]
        groups = np.reshape(each, (draws, -1, 2)).mean(axis=1)
        errors = np.maximum(errors, groups.std(axis=0, ddof=1))
    alpha_error, beta_error = errors / math.sqrt(draws)
    distances = values - expected_singular_values(alpha, beta, dim, rank)
    residual = math.sqrt(np.square(distances).mean() / np.square(values).mean())
    return PairFit(alpha, beta, float(alpha_error), float(beta_error), residual)


def _fitted_mlp(pair: Pair) -> MLPFit:
    pair.check_finite()
    first, second = (
        factor[0] - factor[0].mean(axis=1, keepdims=True) for factor in (pair.left, pair.right)
    )
    norms = np.linalg.norm(first) * np.linalg.norm(second)
    rho = float(np.sum(first * second) / norms) if norms else 0.0
    return MLPFit(rho, (1 - rho**2) / math.sqrt(first.size))


def _constants(diagonal: float, power: float, fraction: float) -> tuple[float, float]:
    """α and β from tr B / D and ‖B‖² / D."""
    alpha, beta = actual_constants(math.sqrt(max(power - diagonal**2, 0)), diagonal, fraction)
    return (0.0 if alpha < _ZERO_ALPHA * abs(beta) else alpha), beta


def _cells(pair: PairFit | None) -> Iterable[str]:
    if pair is None:
        return "", "", ""
    return (
        _with_error(pair.alpha, pair.alpha_error, ""),
        _with_error(pair.beta, pair.beta_error, "+"),
        f"{pair.residual:.2f}",
    )


def _with_error(value: float, error: float, sign: str) -> str:
    return f"{value:{sign}z.4f} ± {error:.4f}"
