"""Why the structure of trained transformers helps, and what else they share: docs/trained.md.

Each arm trains at its own best rate, as in papers/today.py. Every row is trained as it stands,
scaled down to what one CPU core trains in seconds.
"""

from types import ModuleType
from typing import Any

from configs import today, trained
from papers.record import NOTHING, Fields, Table, over_rates

_LADDER = ("5e-4", "1e-3", "2e-3", "4e-3", "8e-3", "1.6e-2", "3.2e-2", "6.4e-2")
_UNITS = ("default", "along", "against", "mixed", "permuted_mixed", "by_depth")
_GATES = ("gate_per_input", "norm_matched_gate_per_input")
_MODERN = "RMSNorm, SwiGLU and QK norm"
_ADDED = {"model.positions": "sinusoidal"}


def _exclusive(*starts: str) -> tuple[str, ...]:
    """The default, starts and their noise, each with and without exclusive attention."""
    arms = (*starts, *(f"exclusive_{start}" for start in starts))
    noise = (f"norm_matched_{arm}" for arm in arms)
    return ("default", "exclusive_default", *arms, *noise)


def _table(
    data: str, config: ModuleType, task: str, first: str, arms: tuple[str, ...], **options: Any
) -> Table:
    return over_rates(
        f"scaled down: {data}",
        config,
        _LADDER,
        first.split(),
        arms,
        {"task": task},
        trials=(100, 101, 102),
        **options,
    )


def _text(positions: str, first: str, arms: tuple[str, ...], fields: Fields = NOTHING) -> Table:
    data = f"Penn Treebank by characters, GPT 32/2 with {positions}, {_MODERN}, 200 steps"
    return _table(data, today, "ptb", first, arms, score="test bits/char", fields=fields)


TABLES = {
    "exclusive": _table(
        "Python's documentation by characters, GPT 64/4, 200 steps",
        *(trained, "text", "2e-3 4e-3 8e-3", _exclusive("strong", "strong_value_out")),
        score="test bits/char",
    ),
    "exclusive_digits": _table(
        "8x8 digits, 16 tokens, ViT 64/4, 100 steps",
        *(trained, "digits", "1e-3 2e-3 4e-3", _exclusive("mimetic")),
    ),
    "units": _text("rotary positions", "8e-3 1.6e-2 3.2e-2", (*_UNITS, *_GATES)),
    "units_added": _text("added positions", "4e-3 8e-3 1.6e-2", _UNITS, _ADDED),
}
