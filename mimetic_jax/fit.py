"""Read α and β off the attention of a parameter tree: the inverse of `schemes.Mimetic`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from mimetic_jax import paths
from mimetic_jax.errors import InputError, blaming
from mimetic_jax.host.cores import limited_blas
from mimetic_jax.pairs import Layer, Pair, attention_pairs
from mimetic_jax.rules import Rule
from mimetic_jax.schemes import Mimetic
from mimetic_jax.table import aligned
from mimetic_jax.weights.truncation import actual_constants, expected_singular_values

# Below this share of β, α is float rounding: α = 0 is another scheme, which truncates to the first
# K coordinates instead of random ones.
_ZERO_ALPHA = 1e-3

_CONSTANTS = ("alpha", "beta")


@dataclasses.dataclass(frozen=True)
class PairFit:
    """The constants of one product in one layer, W_Q W_Kᵀ (all its heads) or W_V W_out.

    Attributes:
        alpha, beta: α and β of the matrix αZ + βI of full rank whose best approximation shows the
            product's mean diagonal and norm.
        alpha_error, beta_error: standard errors. At least those of one draw of the scheme, which
            are α / √(2 D K) and α / √(D K) divided by the root of the number of heads drawn apart
            (exact at K = D, up to twice too large for small K); larger where heads differ more.
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
class LayerFit(Layer):
    """The constants of one attention layer.

    Attributes:
        query_key, value_out: of the pairs; None where the layer doesn't have both kernels.
    """

    query_key: PairFit | None
    value_out: PairFit | None


class Fit(tuple[LayerFit, ...]):
    """α and β of every attention layer; prints as a table followed by the scheme."""

    def __str__(self) -> str:
        try:
            scheme = self.scheme
        except InputError as error:
            return f"{self.table()}\n{error}"
        fields = [
            f"{name}={value}" for name, value in vars(scheme).items() if name.startswith(_CONSTANTS)
        ]
        return f"{self.table()}\nMimetic({', '.join(fields)})"

    def table(self) -> str:
        """A line per layer: α and β with standard errors, and the residual, per pair."""
        pairs = (("query_key", "qk"), ("value_out", "vo"))
        rows = [("layer", *(f"{n}_{p}" for _, p in pairs for n in ("α", "β", "residual")))]
        for layer in self:
            cells = [_cells(getattr(layer, pair)) for pair, _ in pairs]
            rows.append((layer.name, *cells[0], *cells[1]))
        return "\n".join(aligned(rows, str.rjust))

    @property
    def scheme(self) -> Mimetic:
        """The scheme that mimics the layers, with one α and β per layer and pair.

        A pair that no layer has, or that is zero in all of them, is None. Numbers have 4 digits.

        Raises:
            InputError: if the layers aren't of one kind, such as those of an encoder and a decoder,
                or if only some of them have a pair: no single scheme describes them.
        """
        kinds = {paths.family(layer.path): layer.path for layer in self}
        if len(kinds) > 1:
            raise InputError(
                f"no single scheme describes {' and '.join(sorted(kinds))}: fit them apart, with "
                "rules for one of them"
            )
        return Mimetic(**self._constants("query_key"), **self._constants("value_out"))

    @property
    def constant(self) -> Mimetic:
        """`scheme` with the mean over layers instead of one number per layer."""
        scheme = self.scheme
        means: dict[str, Any] = {
            field: float(f"{np.mean(values):.4g}")
            for field, values in vars(scheme).items()
            if field.startswith(_CONSTANTS) and values is not None
        }
        return dataclasses.replace(scheme, **means)

    def _constants(self, pair: str) -> dict[str, Any]:
        short = {"query_key": "qk", "value_out": "vo"}[pair]
        found = [getattr(layer, pair) for layer in self]
        if all(one is None or one.alpha == one.beta == 0 for one in found):
            return {f"alpha_{short}": None, f"beta_{short}": None}
        if None in found:
            missing = self[found.index(None)].name
            raise InputError(f"{missing} has no {pair.replace('_', ' and ')}, but other layers do")
        return {
            f"{field}_{short}": tuple(float(f"{getattr(one, field):.4g}") for one in found)
            for field in _CONSTANTS
        }


def fit(
    params: Any,
    *,
    num_heads: int | None = None,
    num_kv_heads: int | None = None,
    rules: Sequence[Rule] | None = None,
) -> Fit:
    """The mimetic initialization that trained attention looks like, layer by layer.

    `Mimetic(α, β)` gives W_Q W_Kᵀ = the best rank-K approximation of αZ + βI per head, and
    W_V W_out = αZ + βI per layer. Here α and β come from two numbers per product B, the mean of its
    diagonal tr B / D and its norm ‖B‖² / D, averaged over heads: they depend on neither the basis
    nor the coordinates that truncation kept. At full rank β is that mean and α² = ‖B‖² / D − β². A
    product of rank K < D shows less of both, and the law of truncation is inverted:
    `weights.truncation`. As the law is homogeneous, this is one curve in β / α for each K / D.

    β is not the diagonal: truncation keeps the directions in which the noise adds to the identity.
    Where training adds noise to the noiseless start of `mimetic_language`, the diagonal stays and β
    falls, because a smaller β with that α shows the same diagonal. A large residual says that the
    weights aren't a draw of any `Mimetic`.

    Heads that disagree still share one α and β, with large errors. Attention without the structure,
    such as a default initialization, has β = 0 within its error, and some α.

    Args:
        params: a parameter tree; layers may be stacked, kernels fused, heads grouped.
        num_heads: H, where kernels store heads flattened.
        num_kv_heads: G, likewise; H unless given.
        rules: what leaves are; unless given, stock Flax names or the table of `zoo` that fits.

    Returns:
        A tuple with a `LayerFit` per layer; its `scheme` is the `Mimetic` with these constants, and
        it prints as a table.

    Raises:
        InputError: as `blocks`; if the tree has no attention, or products aren't square or finite.

    Example:
        >>> import jax
        >>> from mimetic_jax.rewrite import rewrite
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
    for layer in attention_pairs(
        params, num_heads=num_heads, num_kv_heads=num_kv_heads, rules=rules
    ):
        with blaming(layer.name or "attention"):
            pairs = (_fitted(pair) if pair else None for pair in (layer.query_key, layer.value_out))
            layers.append(LayerFit(layer.path, layer.index, *pairs))
    if not layers:
        seen = [path for path, _ in paths.flatten(params)[0]]
        shown = ", ".join(seen[:8]) + (", …" if len(seen) > 8 else "")
        raise InputError(f"there is no attention to fit among the paths {shown or '(none)'}")
    return Fit(layers)


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
