"""The Flax form: functions `init(key, shape, dtype)` to pass to layers, and param pytrees.

Query and key are drawn jointly, and so are value and out, but a layer's `kernel_init` gets one
kernel at a time and doesn't know which. An unmodified layer can therefore only have a *fixed
gauge*: each kernel is a fixed basis plus independent noise, so that products are still aligned
with the identity: `mimetic_kernels` gives the two initializers of such a layer. For the joint draw
use `attention`, `rewrite`, or the layers in `linen` and `nnx`.

A kernel is a matrix from inputs to outputs. As in `jax.nn.initializers`, `in_axis` and `out_axis`
say which axes of an array of more dimensions are which: the query's of shape [D, H, K] has
in_axis=0 and out_axis=(1, 2), and out of shape [H, K, D] has in_axis=(0, 1) and out_axis=2. An axis
that is in neither is an InputError, and so are constants and shapes that don't fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn.initializers import Initializer

from mimetic_jax.base.errors import InputError, blaming
from mimetic_jax.base.typed import COUNT, Range, converted, shown
from mimetic_jax.schemes import Block, Context, Cooccurrence, MeanShift, Mimetic, Scheme
from mimetic_jax.schemes.base import named_if_traced
from mimetic_jax.tree.placement import constrained
from mimetic_jax.weights.attention import attention_sizes
from mimetic_jax.weights.checks import check_dtype, check_key, check_room, counts, in_dtype
from mimetic_jax.weights.counts import CONTEXTS

Axes: TypeAlias = int | Sequence[int]


class AttentionKernels(TypedDict):
    """The fields of Flax's attention layers that initialize its kernels."""

    kernel_init: Initializer
    out_kernel_init: Initializer


def attention(
    scheme: Scheme, *, use_bias: bool = True
) -> Callable[..., dict[str, dict[str, jax.Array]]]:
    """A function (key, dim, num_heads) → parameters of an attention layer, drawn jointly.

    Args:
        scheme: a scheme for query, key, value and out, such as `schemes.Mimetic()`.
        use_bias: whether the layer has biases, as the stock layer unless `use_bias=False`. Those
            that the scheme doesn't write are zero, Flax's default.

    Returns:
        init(key, dim, num_heads, *, head_dim=None, num_kv_heads=None, dtype=float32, layer=0,
        num_layers=1) → {"query": {"kernel": [D, H, K], "bias": [H, K]}, "key": …, "value": …,
        "out": …}: the parameters of the stock layer. Kernels that the scheme leaves as it finds
        them are missing. With a layer's `block_key` they equal the result of
        `rewrite`.

    Raises:
        InputError: if `scheme` isn't one scheme or writes none of these kernels; (when called) if
            it rejects the sizes, needs the kernels that it replaces, or skips the layer, as
            `Layers` outside of its range.

    Example:
        >>> import flax.linen as nn
        >>> params = attention(Mimetic())(jax.random.key(0), dim=16, num_heads=2)
        >>> layer = nn.MultiHeadDotProductAttention(num_heads=2)
        >>> layer.apply({"params": params}, jnp.ones((1, 4, 16))).shape
        (1, 4, 16)

    Reference: Mimetic Initialization of Self-Attention Layers, eqs. 2 and 5-7.
    """
    roles = ("query", "key", "value", "out")
    leaves = frozenset((*roles, *(f"{role}_bias" for role in roles if use_bias)))
    if not (isinstance(scheme, Scheme) and scheme.writes(leaves)):
        raise InputError(f"{shown(scheme)} is not a scheme that draws query, key, value or out")

    def init(
        key: jax.Array,
        dim: int,
        num_heads: int,
        *,
        head_dim: int | None = None,
        num_kv_heads: int | None = None,
        dtype: jax.typing.DTypeLike = jnp.float32,
        layer: int = 0,
        num_layers: int = 1,
    ) -> dict[str, dict[str, jax.Array]]:
        check_key(key)
        (num_layers,) = counts(num_layers=num_layers)
        layer = converted("layer", Annotated[int, Range(0, num_layers - 1)], layer)
        dtype = check_dtype(dtype, "dtype")
        dim, num_heads, width, groups = attention_sizes(dim, num_heads, head_dim, num_kv_heads)
        shapes: Mapping[str, tuple[int, ...]] = {
            "query": (dim, num_heads, width),
            "key": (dim, groups, width),
            "value": (dim, groups, width),
            "out": (num_heads, width, dim),
        }
        biases = {f"{role}_bias": shape[1:] for role, shape in shapes.items()}
        biases["out_bias"] = (dim,)
        block = Block({**shapes, **(biases if use_bias else {})}, _undrawn)
        if not scheme.covers(layer, num_layers):
            raise InputError(f"{shown(scheme)} skips layer {layer} of {num_layers}: use rewrite")
        drawn = scheme(key, block, Context(layer, num_layers))
        params: dict[str, dict[str, jax.Array]] = {}
        for role in roles:
            leaf = {}
            if role in drawn:
                leaf["kernel"] = in_dtype(role, drawn[role], dtype)
            if use_bias and (role in drawn or f"{role}_bias" in drawn):
                bias = drawn.get(f"{role}_bias", jnp.zeros(biases[f"{role}_bias"]))
                leaf["bias"] = in_dtype(f"{role}_bias", bias, dtype)
            if leaf:
                params[role] = leaf
        return params

    return init


def identity_gauge(
    scheme: Mimetic | None = None,
    *,
    out: bool = False,
    in_axis: Axes = -2,
    out_axis: Axes = -1,
) -> Initializer:
    """Kernels for *unmodified* Flax attention: a fixed basis plus independent noise.

    **Give both**, `kernel_init=identity_gauge()` and `out_kernel_init=identity_gauge(out=True)`, or
    call `mimetic_kernels`, which returns them together. With `kernel_init` alone the layer uses it
    for out, too, and W_V W_out leans to +β_qk I instead of β_vo I: +0.7 instead of −0.4, the wrong
    sign. An initializer sees only a shape and can't know. Nor can it know of fewer heads of key and
    value than of query, whose products would lean to other coordinates than I: there use
    `mimetic_jax.rewrite` or `nnx.initialize`.

    kernel = √β_qk I + a Z for query, key and value; out = (β_vo / √β_qk) I + b Z. Thus
    W_V W_out ≈ α_vo Z + β_vo I as in the joint draw, and W_Q W_Kᵀ of head h is close to β_qk I on
    the head's own K coordinates: its mean diagonal is β_qk K / D (0.233 at D = 192, K = 64, where
    the joint draw's singular vectors reach 0.395). Noise a and b give the products the
    off-diagonal variance of αZ: a² = √(α_qk² + β_qk²) − β_qk and
    b² = (α_vo² − a² β_vo² / β_qk) / (β_qk + a²), at least 0.

    Args:
        scheme: has α and β, which must be numbers with β_qk > 0; defaults to `Mimetic()`.
        out: whether this is for the output projection (`out_kernel_init`), [H·K, D].
        in_axis: axis or axes of the kernel that are inputs, as in `jax.nn.initializers`.
        out_axis: axis or axes of the kernel that are outputs.

    Returns:
        An initializer `init(key, shape, dtype)`.

    Raises:
        InputError: for constants that depend on depth; when called, for shapes that don't fit.

    Example:
        >>> value, out = (identity_gauge(out=out)(jax.random.key(out), (64, 64)) for out in (0, 1))
        >>> f"{(value @ out).diagonal().mean():.1f}"
        '-0.4'
        >>> query = identity_gauge(in_axis=0, out_axis=(1, 2))
        >>> query(jax.random.key(0), (64, 4, 16)).shape
        (64, 4, 16)

    Reference: ours; "the same low-rank matrix" is an idea of the self-attention paper, section 3,
    and the gauge is that of a GPT speed run (W_V = √β I, W_out = −√β I).
    """
    constants = _mimetic(scheme)
    with blaming("the identity gauge"), named_if_traced(constants):
        alpha_qk, beta_qk, alpha_vo, beta_vo = (
            float(converted(name, float, getattr(constants, name)))
            for name in ("alpha_qk", "beta_qk", "alpha_vo", "beta_vo")
        )
    if not beta_qk > 0:
        raise InputError(f"the identity gauge needs beta_qk > 0, not {beta_qk}")
    noise = math.sqrt(math.hypot(alpha_qk, beta_qk) - beta_qk)
    basis = math.sqrt(beta_qk)
    if out:
        variance = max(alpha_vo**2 - noise**2 * beta_vo**2 / beta_qk, 0.0)
        noise, basis = math.sqrt(variance / (beta_qk + noise**2)), beta_vo / basis

    def draw(key: jax.Array, shape: tuple[int, int]) -> jax.Array:
        dim = shape[1] if out else shape[0]
        drawn = jax.random.normal(key, shape, jnp.float32) * (noise / math.sqrt(dim))
        return drawn + basis * jnp.eye(*shape)

    return _of_matrices(draw, in_axis, out_axis)


def mimetic_kernels(scheme: Mimetic | None = None) -> AttentionKernels:
    """Make both initializers of *unmodified* Flax attention, `identity_gauge` with and without out.

    Args:
        scheme: the constants; defaults to `Mimetic()`.

    Returns:
        A dictionary with `kernel_init` and `out_kernel_init`, keywords of
        `nn.MultiHeadDotProductAttention` and `nnx.MultiHeadAttention`.

    Raises:
        InputError: as `identity_gauge`.

    Example:
        >>> import flax.linen as nn
        >>> layer = nn.MultiHeadDotProductAttention(num_heads=2, **mimetic_kernels())
        >>> params = layer.init(jax.random.key(0), jnp.ones((1, 4, 64)))["params"]
        >>> value, out = params["value"]["kernel"], params["out"]["kernel"]
        >>> f"{(value.reshape(64, 64) @ out.reshape(64, 64)).diagonal().mean():.1f}"
        '-0.4'
    """
    return {
        "kernel_init": identity_gauge(scheme),
        "out_kernel_init": identity_gauge(scheme, out=True),
    }


def mean_shift(
    b: float = 0.5,
    *,
    base: Initializer | None = None,
    per_input: bool = False,
    in_axis: Axes = -2,
    out_axis: Axes = -1,
) -> Initializer:
    """A kernel for the first layer of an MLP: a base draw with a mean that isn't zero.

    kernel = W + b s, W drawn by `base` and s the standard deviation of its entries; with
    `per_input`, W + b s z_n for each input n, z normal.

    Args:
        b: the mean in standard deviations of the kernel, of either sign (≥ 0 with `per_input`).
        base: initializer of W; defaults to Flax's, LeCun normal.
        per_input: a random mean per input (eq. 1) instead of one for the kernel (eq. 2). After a
            LayerNorm only this form changes the output at initialization: see
            `weights.mean_shift`.
        in_axis: axis or axes of the kernel that are inputs, as in `jax.nn.initializers`.
        out_axis: axis or axes of the kernel that are outputs.

    Returns:
        An initializer `init(key, shape, dtype)`.

    Raises:
        InputError: if b is out of its range; when called, for shapes that don't fit.

    Example:
        >>> import flax.linen as nn
        >>> layer = nn.Dense(64, kernel_init=mean_shift(0.5))
        >>> kernel = layer.init(jax.random.key(0), jnp.ones((1, 256)))["params"]["kernel"]
        >>> f"{kernel.mean() / kernel.std():.1f}"
        '0.5'

    Reference: Mimetic Initialization of MLPs, eqs. 1 and 2.
    """
    scheme = MeanShift(b, per_input)
    draw_base = _base(base, jax.nn.initializers.lecun_normal())

    def draw(key: jax.Array, shape: tuple[int, int]) -> jax.Array:
        kernel = draw_base(key, shape)
        shift_key = jax.random.fold_in(key, 1)
        return scheme(shift_key, Block.of({"mlp_in": kernel}), Context())["mlp_in"]

    return _of_matrices(draw, in_axis, out_axis)


def from_counts(
    counts: Any,
    *,
    smoothing: float = 0.75,
    contexts: int = CONTEXTS,
    std: float | None = None,
    base: Initializer | None = None,
) -> Initializer:
    """Embeddings of tokens from how often they stand near each other in your text.

    √D σ · normalized(U_i S^½) Q, the rows of `weights.from_counts`, at the root mean square σ;
    tokens that the text lacks have the rows of `base`, of that size.

    Args:
        counts: [V, V] of `weights.cooccurrence`; V is that of the layer, padding included.
        smoothing: the power of the neighbors' frequencies.
        contexts: the number of most frequent tokens whose counts are used.
        std: σ; defaults to that of `base`. If positions are added to the embedding, or the output
            layer is the embedding, these need another scale, too: `schemes.Cooccurrence` sets it.
        base: the initializer that is replaced; defaults to Flax's for `nn.Embed`, normal with
            the variance 1/D.

    Returns:
        init(key, (V, D), dtype), for `embedding_init` of `nn.Embed` and `nnx.Embed`.

    Raises:
        InputError: (when called) if counts aren't [V, V] for the shape [V, D].

    Example:
        >>> import flax.linen as nn
        >>> from mimetic_jax import weights
        >>> text = [0, 1, 2, 3] * 50 + [4, 1, 2, 3] * 50  # 0 and 4 have the same neighbors
        >>> counts = weights.cooccurrence(text, vocab=5, window=1)
        >>> layer = nn.Embed(5, 16, embedding_init=from_counts(counts))
        >>> rows = layer.init(jax.random.key(0), jnp.zeros(1, int))["params"]["embedding"]
        >>> bool(rows[0] @ rows[4] > 2 * rows[0] @ rows[1])
        True

    Reference: Neural Word Embedding as Implicit Matrix Factorization (Levy and Goldberg 2014).
    """
    scheme = Cooccurrence(smoothing=smoothing, contexts=contexts, std=std)
    draw_base = _base(
        base, jax.nn.initializers.variance_scaling(1.0, "fan_in", "normal", out_axis=0)
    )

    def init(key: jax.Array, shape: Any, dtype: Any = None, out_sharding: Any = None) -> jax.Array:
        check_key(key)
        dtype = check_dtype(jnp.float32 if dtype is None else dtype, "dtype")
        shape = converted("the shape of an embedding", Annotated[tuple[int, int], COUNT], shape)
        base_key, key = jax.random.split(key)
        block = Block.of({"embedding": draw_base(base_key, shape)})
        drawn = scheme(key, block, Context(counts=counts))["embedding"]
        array = in_dtype("the embedding", drawn, dtype)
        return array if out_sharding is None else constrained(array, out_sharding)

    return init


def _base(
    given: Initializer | None, default: Initializer
) -> Callable[[jax.Array, Sequence[int]], jax.Array]:
    """The initializer that is given or the default one, after a check; its draws are checked."""
    base = default if given is None else converted("base", Callable, given)

    def draw(key: jax.Array, shape: Sequence[int]) -> jax.Array:
        array = base(key, shape, jnp.float32)
        if np.shape(array) != tuple(shape):
            raise InputError(
                f"base returns an array of shape {np.shape(array)} for the shape {tuple(shape)}"
            )
        return array

    return draw


def _undrawn(role: str) -> jax.Array:
    raise InputError(f"the scheme starts from the existing {role}, and there is none: use rewrite")


def _mimetic(scheme: Mimetic | None) -> Mimetic:
    if scheme is not None and not isinstance(scheme, Mimetic):
        raise InputError(f"{shown(scheme)} is not a Mimetic")
    return scheme or Mimetic()


def _of_matrices(
    draw: Callable[[jax.Array, tuple[int, int]], jax.Array], in_axis: Axes, out_axis: Axes
) -> Initializer:
    """An initializer of kernels, by their axes, from a draw of a matrix in float32."""
    given = {"in_axis": in_axis, "out_axis": out_axis}

    def init(key: jax.Array, shape: Any, dtype: Any = None, out_sharding: Any = None) -> jax.Array:
        check_key(key)
        dtype = check_dtype(jnp.float32 if dtype is None else dtype, "dtype")
        shape = converted("the shape of a kernel", Annotated[tuple[int, ...], COUNT], shape)
        inputs, outputs = _axes(shape, given)
        rows, columns = (math.prod(shape[axis] for axis in axes) for axes in (inputs, outputs))
        check_room((2, rows, columns))
        order = (*inputs, *outputs)
        stored = [shape[axis] for axis in order]
        array = draw(key, (rows, columns)).reshape(stored).transpose(np.argsort(order))
        array = in_dtype("the kernel", array, dtype)
        return array if out_sharding is None else constrained(array, out_sharding)

    return init


def _axes(shape: tuple[int, ...], given: Mapping[str, Axes]) -> list[tuple[int, ...]]:
    """The axes of a kernel's inputs and of its outputs, counted from the first."""
    found = []
    for name, axes in given.items():
        several = axes if isinstance(axes, Sequence) else (axes,)
        within = Annotated[tuple[int, ...], Range(-len(shape), len(shape) - 1)]
        text = f"{name} of a kernel of shape {shape}"
        found.append(tuple(axis % len(shape) for axis in converted(text, within, several)))
    order = [axis for axes in found for axis in axes]
    if sorted(order) != list(range(len(shape))) or not all(found):
        named = ", ".join(f"{name}={axes}" for name, axes in given.items())
        raise InputError(
            f"{named} are not the axes of a kernel of shape {shape}, each once: one of shape "
            "(width, heads, head width) has in_axis=0 and out_axis=(1, 2)"
        )
    return found
