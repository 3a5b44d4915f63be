"""Which mimetic initialization the attention of each arm looks like, before and after training."""

from __future__ import annotations

import textwrap

import jax

from mimetic_jax.analysis.capture import Network, networks
from mimetic_jax.errors import InputError
from mimetic_jax.fit import Fit, fit
from mimetic_jax.models.pretrained_attention import pretrained_attention
from mimetic_jax.rewrite import blocks
from mimetic_jax.train.arm import Arm
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.store.places import AnyPath

_FILES = (".npz", ".safetensors")


def analyze(comparison: Comparison, workdir: AnyPath) -> str:
    """A table of α, β and residuals with the scheme that they make, of each arm's first seed.

    Each arm has one at initialization and, where a run has a checkpoint, one after training. If
    arms start from a pretrained file, that file's own attention comes first, in its own sizes.
    """
    parts: dict[str, str] = {}
    for arm in comparison.arms.values():
        source = arm.config.init_from or ""
        if source.endswith(_FILES) and source not in parts:
            parts[source] = str(_of_file(source, arm))
    try:
        parts |= {n.label: _of_network(n) for n in networks(comparison, workdir, data=False)}
    except InputError as error:  # such as a GPT-2, which no model here starts from
        if not parts:
            raise
        parts["no arm starts from that file"] = str(error)
    return "\n".join(f"{label}\n{textwrap.indent(text, '  ')}" for label, text in parts.items())


def _of_network(network: Network) -> str:
    params = jax.device_get(network.variables["params"])
    try:
        return str(fit(params, rules=network.arm.program.rules))
    except InputError as error:  # other arms may have attention, or weights that are finite
        return f"model {network.model.name}: {error}"


def _of_file(path: str, arm: Arm) -> Fit:
    """The fit of a pretrained ViT or GPT-2 of any size, with heads as wide as the arm's."""
    views = blocks(arm.program.shapes.params, rules=arm.program.rules)
    widths = [block.shapes["query"][-1] for _, _, block in views if "query" in block.shapes]
    if not widths:
        raise InputError(f"model {arm.config.model.name} has no attention: {path} has nothing else")
    return fit(pretrained_attention(path, widths[0]))
