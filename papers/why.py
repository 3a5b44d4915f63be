"""Why the structure of trained transformers helps, and what else they share: docs/trained.md.

Each arm trains at its own best rate, as in papers/today.py. Every row is trained as it stands,
scaled down to what one CPU core trains in seconds.
"""

from typing import Any

from papers.record import Table, over_rates

_LADDER = ("5e-4", "1e-3", "2e-3", "4e-3", "8e-3", "1.6e-2", "3.2e-2", "6.4e-2")
_UNITS = ("default", "along", "against", "mixed", "permuted_mixed", "by_depth")
_GATES = ("gate_per_input", "norm_matched_gate_per_input")
_PTB = "Penn Treebank by characters"
_ADDED = f"{_PTB}, GPT 64/2 with added positions, 200 steps"
_MODERN = f"{_PTB}, GPT with rotary positions, RMSNorm, SwiGLU and QK norm, 32/2, 200 steps"
_FEW = ("--config.model.depth=2", "--config.batch=16")


def _exclusive(start: str) -> tuple[str, ...]:
    """The default, a start and its noise, each with and without exclusive attention."""
    own = (*("default", start, f"norm_matched_{start}"), "exclusive_default")
    return (*own, f"exclusive_{start}", f"norm_matched_exclusive_{start}")


def _table(
    title: str, task: str, first: tuple[str, ...], arms: tuple[str, ...], **options: Any
) -> Table:
    return over_rates(
        f"scaled down: {title}",
        options.pop("config", "configs/trained.py"),
        "accuracy %" if task == "digits" else "test bits/char",
        _LADDER,
        first,
        arguments=f"task={task}",
        arms=arms,
        seeds=5,
        trials=(100, 101, 102),
        **options,
    )


_TEXT_RATES = ("4e-3", "8e-3", "1.6e-2")
TABLES = {
    "exclusive": _table(_ADDED, "ptb", _TEXT_RATES, _exclusive("strong"), flags=_FEW),
    "exclusive_digits": _table(
        "8x8 digits, 16 tokens, ViT 64/4, 100 steps",
        "digits",
        ("1e-3", "2e-3", "4e-3"),
        _exclusive("mimetic"),
    ),
    "units": _table(_ADDED, "ptb", _TEXT_RATES, _UNITS, flags=_FEW),
    "units_gated": _table(
        _MODERN,
        "ptb",
        ("8e-3", "1.6e-2", "3.2e-2"),
        (*_UNITS, *_GATES),
        config="configs/today.py",
    ),
}
