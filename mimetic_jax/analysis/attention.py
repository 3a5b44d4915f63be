"""Attention maps of any of our models, as the model computes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.analysis import style
from mimetic_jax.analysis.capture import EXAMPLES, plain, snapshots
from mimetic_jax.base.errors import InputError
from mimetic_jax.models import Model
from mimetic_jax.models.attention import Attention
from mimetic_jax.models.windows import WindowAttention, in_windows
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.store.files import AnyPath

_LAYERS = (Attention, WindowAttention, nn.MultiHeadDotProductAttention)
_PER_CALL = 16


def attention_maps(
    model: Model, variables: Mapping[str, Any], inputs: jax.Array
) -> list[np.ndarray]:
    """Return what every head of every layer mixes, averaged over examples [B, …] as of a test.

    A_l,h[n, m] is the weight of token m in what head h gathers for token n. Attention is linear in
    the values: each layer is called with the identity beside them, and what it then gathers of the
    identity is its map. So masks, biases of positions, gates and convolutions are those of the
    model, whatever its form; its other activations don't change.

    Returns:
        [H, N, N] per layer, from input to output, in float32. Rows sum to 1, except with
        convolutions beside attention. In windows N = W² and the map is also averaged over windows.

    Example:
        >>> from mimetic_jax.models import Model
        >>> sizes = {"width": 8, "depth": 2, "heads": 2, "patch": 4, "num_classes": 3}
        >>> model, images = Model.of("vit", sizes), jnp.ones((1, 8, 8, 3))
        >>> variables, _ = jax.jit(model.init)(jax.random.key(0), images)
        >>> [layer.shape for layer in attention_maps(model, variables, images)]
        [(2, 5, 5), (2, 5, 5)]

    Reference: Mimetic Initialization of Self-Attention Layers, figures 2 and 8.
    """
    total: list[np.ndarray] = []
    # Equal parts, so that one compilation serves all.
    size = max(size for size in range(1, _PER_CALL + 1) if len(inputs) % size == 0)
    for maps in maps_by_example(model, variables, inputs.reshape(-1, size, *inputs.shape[1:])):
        summed = [layer.sum(axis=0) for layer in maps]
        total = [a + b for a, b in zip(total, summed, strict=True)] if total else summed
    return [array / len(inputs) for array in total]


def maps_by_example(
    model: Model, variables: Mapping[str, Any], parts: Iterable[jax.Array]
) -> Iterator[list[np.ndarray]]:
    """As `attention_maps` for each of some parts of examples, but [B, H, N, N] per layer."""
    model, variables = plain(model, variables)
    read = jax.jit(lambda variables, part: _maps(model, variables, part))
    for part in parts:
        try:
            maps = [np.asarray(layer) for layer in read(variables, part)]
        except jax.errors.UnexpectedTracerError:
            raise InputError(
                f"model {model.name} calls its attention inside nn.remat, nn.scan or nn.jit, where "
                "no map can be read"
            ) from None
        if not maps:
            raise InputError(f"model {model.name} has no attention layer whose map can be read")
        yield maps


def _maps(model: Model, variables: Mapping[str, Any], inputs: jax.Array) -> list[jax.Array]:
    """The map of every attention layer of a model of `plain`, by example."""
    maps: list[jax.Array] = []

    def watcher(
        call: Callable[..., Any], args: Any, kwargs: Any, context: nn.module.InterceptorContext
    ) -> Any:
        module = context.module
        layer = module.parent
        if _by_columns(module) and context.method_name == "attend":
            maps.append(_softmax(module, *args[:2]))
        if _by_columns(layer):
            return call(*args, **kwargs)
        if not isinstance(layer, _LAYERS) or context.method_name != "__call__":
            return call(*args, **kwargs)
        if module.name == "out":
            (mixed,) = args  # [..., N, H, K + N]
            head_dim = mixed.shape[-1] - _identity(layer, mixed).shape[-1]
            weights = mixed[..., head_dim:]
            if isinstance(layer, WindowAttention):
                weights = in_windows(weights, layer.window)
            weights = jnp.moveaxis(weights, -2, -3)  # [B, H, N, N], or [B, windows, H, N, N]
            maps.append(weights.mean(tuple(range(1, weights.ndim - 3))))
            return call(mixed[..., :head_dim], **kwargs)
        heads = call(*args, **kwargs)
        if module.name in ("query", "key", "value"):
            return _with_identity(heads, module.name, _identity(layer, heads))
        return heads

    with nn.intercept_methods(watcher):
        model(variables, inputs)
    return maps


def _by_columns(layer: object) -> TypeGuard[Attention]:
    """Whether query and key have columns that differ, so that none can be put beside them."""
    return isinstance(layer, Attention) and bool(layer.rotary or layer.qk_norm)


def _softmax(layer: Attention, query: jax.Array, key: jax.Array) -> jax.Array:
    """The map of queries and keys [B, N, H, K] as they enter `attend`."""
    query, key = layer.turned(query), layer.turned(key)
    logits = jnp.einsum("bnhk,bmhk->bhnm", query, key) / math.sqrt(query.shape[-1])
    if layer.causal:
        logits = jnp.where(jnp.tri(logits.shape[-1], dtype=bool), logits, -jnp.inf)
    return jax.nn.softmax(logits, axis=-1)


def _identity(layer: nn.Module, heads: jax.Array) -> np.ndarray:
    """A row of the identity for each token that others attend to: [N, 1, N], or [h, w, 1, N]."""
    *_, rows, columns, _, _ = heads.shape
    if not isinstance(layer, WindowAttention):
        return np.eye(columns)[:, None]
    side = layer.window
    window = np.eye(side**2).reshape(side, side, 1, side**2)
    return np.tile(window, (rows // side, columns // side, 1, 1))


def _with_identity(heads: jax.Array, name: str, identity: np.ndarray) -> jax.Array:
    """[..., N, H, K + N] from [..., N, H, K]: values beside the identity, queries beside zeros."""
    head_dim, count = heads.shape[-1], identity.shape[-1]
    if name == "value":
        rows = jnp.broadcast_to(identity.astype(heads.dtype), (*heads.shape[:-1], count))
        return jnp.concatenate([heads, rows], axis=-1)
    if name == "query":
        # Layers divide by the root of the width that they see, K + N instead of K.
        heads = heads * math.sqrt((head_dim + count) / head_dim)
    return jnp.pad(heads, [(0, 0)] * (heads.ndim - 1) + [(0, count)])


def analyze(comparison: Comparison, workdir: AnyPath) -> str:
    """Draw where first, middle and last layers of each arm look: WORKDIR/attention.png."""
    maps = {
        network.label: attention_maps(network.model, network.variables, network.inputs(EXAMPLES))
        for network in snapshots(comparison, workdir)
    }
    depth = min(map(len, maps.values()))
    written = draw(workdir / "attention", maps, sorted({1, (depth + 1) // 2, depth}))
    return f"attention maps drawn: {written[0]}"


def draw(
    path: AnyPath,
    maps: Mapping[str, Sequence[np.ndarray]],
    layers: Sequence[int],
) -> list[AnyPath]:
    """Draw maps averaged over heads: a column per label and a row per layer, one color scale.

    `maps` are [H, N, N] per label and layer, of `attention_maps`.

    Reference: Mimetic Initialization of Self-Attention Layers, figures 2 and 8.
    """
    drawn = {
        label: style.by_layer(layers, [layer.mean(0) for layer in every], label)
        for label, every in maps.items()
    }
    matrices = [matrix for group in drawn.values() for matrix in group.values()]
    top = style.limit(matrices)
    depth, columns = max(map(len, drawn.values())), len(drawn)
    rows: list[list[object]] = []
    with style.matrices(depth, columns, most=1.5, beside=0.9, above=0.7) as (figure, axes):
        for column, (label, group) in enumerate(drawn.items()):
            axes[0, column].set_title(label.replace(", ", "\n"))
            for row, (number, matrix) in enumerate(group.items()):
                image = style.positive(axes[row, column], matrix, top)
                if column == 0:
                    axes[row, 0].set_ylabel(f"layer {number}\nquery")
                rows += style.matrix_rows((label, number), matrix)
            axes[-1, column].set_xlabel("key")
        figure.colorbar(image, ax=axes, extend="max", shrink=0.8, label="attention", pad=0.01)
        if above := style.of_depth(list(group), min(map(len, maps.values()))):
            figure.suptitle(above)
        return style.write(figure, path, ["label", "layer", "query"], rows)
