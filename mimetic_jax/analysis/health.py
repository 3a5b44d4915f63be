"""How a network starts: the sizes of activations, attention, logits and the first gradient."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.analysis.attention import map_watcher
from mimetic_jax.analysis.capture import Network, Watcher, chunks, plain
from mimetic_jax.models import Model
from mimetic_jax.table import aligned
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.state import order_key, stream
from mimetic_jax.train.start import initial_state
from mimetic_jax.train.store.places import AnyPath

_PER_CALL = 16  # examples at a time
_EXAMPLES = 64
_MIXING = ("attention", "token_mixing", "depthwise")
_MLP = ("mlp", "pointwise")
_DEAD = -4.0  # below it a GELU and its slope are smaller than 1e-3
_STUCK = 0.99


@dataclasses.dataclass(frozen=True)
class Health:
    """Numbers of a network on some examples.

    Attributes:
        logits: standard deviation of the logits of an example or token, averaged.
        layers: the numbers of each block by its path (of an attention layer, where there are no
            blocks), each only where the model has such a thing:
            "input": root mean square of what enters, all tokens and channels together;
            "mixing", "mlp": likewise of what the branch that mixes tokens and the MLP return;
            "entropy": of attention, mean over heads and rows, in nats;
            "tokens": N, so that log N is the entropy of even attention;
            "stuck": share of rows with more than .99 of their attention on one token;
            "dead": share of the MLP's hidden units that are below −4 before the GELU everywhere.
    """

    logits: float
    layers: Mapping[str, Mapping[str, float]]


def health(model: Model, variables: Mapping[str, Any], inputs: jax.Array) -> Health:
    """Measure a network without dropout, in float32, whatever its fields.

    Args:
        model: any; blocks are found by their names block_0, block_1 ….
        variables: "params" and the model's other collections.
        inputs: examples as the model is tested on them, [B, …].

    Example:
        >>> sizes = {"width": 8, "depth": 2, "heads": 2, "patch": 4, "num_classes": 3}
        >>> model, images = Model.of("vit", sizes), jnp.ones((2, 8, 8, 3))
        >>> found = health(model, model.init(jax.random.key(0), images)[0], images)
        >>> list(found.layers), found.layers["block_0"]["tokens"]
        (['block_0', 'block_1'], 5.0)
    """
    model, variables = plain(model, variables)
    measured = jax.jit(lambda variables, part: _measured(model, variables, part))
    parts = [jax.device_get(measured(variables, part)) for part in chunks(inputs, _PER_CALL)]
    layers = {
        path: {name: _joined(name, [layers[path][name] for _, layers in parts]) for name in first}
        for path, first in parts[0][1].items()
    }
    return Health(float(np.mean([spread for spread, _ in parts])), layers)


def _joined(name: str, parts: Sequence[np.ndarray]) -> float:
    """A number of all examples from those of equal parts."""
    if name == "dead":
        return float(np.all(parts, axis=0).mean())
    mean = float(np.mean(parts))
    return math.sqrt(mean) if name in ("input", "mixing", "mlp") else mean


def _measured(
    model: Model, variables: Mapping[str, Any], inputs: jax.Array
) -> tuple[jax.Array, dict[str, dict[str, jax.Array]]]:
    """The spread of logits, and per layer mean squares, entropies and masks of dead units."""
    layers: dict[str, dict[str, jax.Array]] = {}

    def keep_map(layer: nn.Module, maps: jax.Array) -> None:
        layers.setdefault(_block(layer), {}).update(_attention(maps))

    with nn.intercept_methods(map_watcher(keep_map)), nn.intercept_methods(_sizes(layers)):
        output = model(variables, inputs)[0]
    if model.traits.output is not None:
        embedding, bias = model.traits.output(variables["params"])
        output = output @ embedding.T + bias
    return output.std(axis=-1).mean(), layers


def _sizes(layers: dict[str, dict[str, jax.Array]]) -> Watcher:
    """A watcher that adds the sizes of activations to the numbers of each block."""

    def watcher(
        call: Callable[..., Any], args: Any, kwargs: Any, context: nn.module.InterceptorContext
    ) -> Any:
        module, name = context.module, context.module.name or ""
        if context.method_name != "__call__":
            return call(*args, **kwargs)
        if re.fullmatch(r"block_\d+", name):
            layers.setdefault(_block(module), {})["input"] = jnp.mean(jnp.square(args[0]))
        result = call(*args, **kwargs)
        parent = getattr(module.parent, "name", None) or ""
        if re.fullmatch(r"block_\d+", parent) and name in (*_MIXING, *_MLP):
            kind = "mixing" if name in _MIXING else "mlp"
            layers[_block(module)][kind] = jnp.mean(jnp.square(result))
        if name == "fc1" and parent == "mlp":
            everywhere = tuple(range(result.ndim - 1))
            layers.setdefault(_block(module), {})["dead"] = (result < _DEAD).all(axis=everywhere)
        return result

    return watcher


def _attention(maps: jax.Array) -> dict[str, jax.Array]:
    """Numbers of maps [..., N, N]; with convolutions beside attention, of their shares."""
    weights = jnp.abs(maps)
    weights /= weights.sum(axis=-1, keepdims=True)
    entropy = -jax.scipy.special.xlogy(weights, weights).sum(axis=-1)
    return {
        "entropy": entropy.mean(),
        "tokens": jnp.float32(maps.shape[-1]),
        "stuck": (weights.max(axis=-1) > _STUCK).mean(),
    }


def _block(module: nn.Module) -> str:
    """The path of the block that a module is in, or else the module's own."""
    path = module.path
    ends = [end for end, name in enumerate(path, 1) if re.fullmatch(r"block_\d+", name)]
    return "/".join(path[: ends[-1]] if ends else path)


def analyze(comparison: Comparison, workdir: AnyPath) -> str:
    """A table per arm of how its first seed starts, with loss and gradient of the first batch."""
    comparison.recognize(workdir)
    comparison.open()
    lines = []
    for name, arm in comparison.arms.items():
        seed = arm.config.seeds[0]
        state = initial_state(arm.program, arm.config, name, seed, comparison.say)
        network = Network(arm, "initial", state.variables)
        inputs = network.inputs(_EXAMPLES)
        found = health(network.model, network.variables, inputs)
        keys = stream(seed, "data"), stream(seed, "dropout")
        session = arm.program.feed.session(arm.data, order_key(keys[0]), 0, arm.program.steps)
        try:  # the step gives its loss and gradient; what it makes of the state is dropped
            _, first = arm.program.run_steps(state, session.arrays(), *keys, jnp.int32(1))
        finally:
            session.close()
        loss, gradient = (float(first[metric][0]) for metric in ("loss", "grad_norm"))
        lines += [
            f"{name} seed {seed}, initial: logits ± {found.logits:.3g} ({len(inputs)} test "
            f"examples), first batch: loss {loss:.4g}, gradient norm {gradient:.3g}",
            *_table(found.layers),
        ]
    return "\n".join(lines)


_COLUMNS: tuple[tuple[str, str, Callable[[Mapping[str, float]], str]], ...] = (
    ("input rms", "input", lambda layer: f"{layer['input']:.3g}"),
    ("mixing rms", "mixing", lambda layer: f"{layer['mixing']:.3g}"),
    ("mlp rms", "mlp", lambda layer: f"{layer['mlp']:.3g}"),
    ("entropy", "entropy", lambda layer: f"{layer['entropy']:.2f}"),
    # The entropy of a single token is 0, as log N is.
    ("/ log N", "tokens", lambda row: f"{row['entropy'] / (math.log(row['tokens']) or 1):.2f}"),
    ("stuck %", "stuck", lambda layer: f"{100 * layer['stuck']:.1f}"),
    ("dead %", "dead", lambda layer: f"{100 * layer['dead']:.1f}"),
)


def _table(layers: Mapping[str, Mapping[str, float]]) -> list[str]:
    """A line per layer; cells without a number are empty."""
    if not layers:
        return ["  no blocks named block_0, block_1 … and no attention in this model"]
    rows = [("layer", *(title for title, _, _ in _COLUMNS))]
    for path, layer in layers.items():
        rows.append((path, *(show(layer) if name in layer else "" for _, name, show in _COLUMNS)))
    return [f"   {line}" for line in aligned(rows, str.rjust)]
