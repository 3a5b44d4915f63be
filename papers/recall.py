"""Copying and recall: where structure helps small networks, and where it hurts.

- Mimetic Initialization Helps State Space Models Learn to Recall (Trockman, Harutyunyan, Kolter,
  Kumar and Bhojanapalli, arXiv 2410.11135): its numbers are in figures that we don't have.

All tables ask questions of our own. Every arm is compared at its own best learning rate, chosen by
the tables of rates, which have seeds of their own.
"""

import itertools
from types import ModuleType
from typing import Any

from configs import copying, recall
from papers.record import Arguments, Figure, Row, Table

_END = {"eval.every": 0}
_OFTEN = {"eval.every": 20}
_INDUCTION = {"model": "gpt", "data": "induction", "length": 8, "vocabulary": 8, "steps": 1600}
_MAMBA, _GPT = {"model": "mamba"}, {"model": "gpt"}
_LARGE = {"batch": 128, "data.num_test": 1000}

_CONTROLS = ("default", "norm_matched", "shuffled")
_RATES = ("1e-3", "3e-3", "1e-2", "3e-2", "1e-1")
_GPT_RATES = ("3e-4", "1e-3", "3e-3", "1e-2")
_HALVES = ("query_key", "norm_matched_query_key", "value_out", "norm_matched_value_out")
_CONSTANTS = ("mimetic", "strong", "vision", "norm_matched_strong", "norm_matched_vision")
_DEFAULT_ALONE = "rates were searched for the default only, with one seed"
_PARTS = tuple(
    "_".join(parts)
    for count in range(1, 5)
    for parts in itertools.combinations(("a", "delta", "cb", "conv"), count)
)
_REFERENCE = {"model.embedding_std": 0.02}


def _rates(
    arguments: Arguments,
    *arms: str,
    rates: tuple[str, ...] = _RATES,
    of: str = "",
    doubt: str = "",
) -> tuple[Row, ...]:
    """A row per learning rate, of what is named before it."""
    return tuple(
        Row(f"{of}learning rate {rate}", {**arguments, "rate": float(rate)}, arms=arms, doubt=doubt)
        for rate in rates
    )


def _positions(*arms: str, rates: tuple[str, ...], doubt: str = "") -> tuple[Row, ...]:
    """Rows of transformers with other positions."""
    return tuple(
        row
        for positions in ("learned", "rotary")
        for row in _rates(
            {**_GPT, "positions": positions, "steps": 200},
            *arms,
            rates=rates,
            of=f"{positions} positions, ",
            doubt=doubt,
        )
    )


def _table(title: str, rows: tuple[Row, ...], config: ModuleType = copying, **fields: Any) -> Table:
    return Table(title, config, rows, "answers %", **fields)


TABLES = {
    "copying": _table(
        "copying 8 of 16 tokens, Mamba-2 of 2 layers, 240 steps: the head start, its controls and "
        "longer strings",
        _rates(_MAMBA, "mimetic", rates=("1e-2", "3e-2")),
        controls=_CONTROLS,
    ),
    "parts": _table(
        "copying, Mamba-2: the 16 combinations of A, Δ, W_C = W_B and the convolution's identity",
        _rates(
            _MAMBA,
            *_PARTS,
            rates=("3e-2",),
            doubt="the default's best rate, not searched for each combination",
        ),
        controls=("default", "norm_matched"),
    ),
    "state": _table(
        "copying, Mamba-2: does structure replace state?",
        tuple(
            Row(f"state size {size}", {**_MAMBA, "rate": 3e-2, "state": size}, arms=("mimetic",))
            for size in (16, 64, 128)
        ),
        controls=("default", "norm_matched"),
        doubt="the rate is the best at state size 32, not searched at others",
    ),
    "attention": _table(
        "copying by a transformer of 2 layers with sinusoidal positions: which constants, which "
        "half, and does structure hurt?",
        (
            *_rates(
                {**_GPT, "steps": 400},
                *(*_CONSTANTS, *_HALVES),
                rates=("1e-3", "3e-3"),
                of="8 tokens, ",
                doubt="rates were searched for default, mimetic and vision only, with one seed",
            ),
            *_rates(
                {**_GPT, "length": 16, "steps": 1000},
                *(*_CONSTANTS, *_HALVES),
                rates=("1e-3",),
                of="16 tokens, ",
                doubt="the rate is that of our first trial, not searched",
            ),
        ),
    ),
    "positions": _table(
        "copying 8 tokens by a transformer of 2 layers with learned or rotary positions: does "
        "structure hurt there too?",
        _positions(*_CONSTANTS, rates=("3e-3", "1e-2"), doubt=_DEFAULT_ALONE),
        fields=_OFTEN,
    ),
    "induction": _table(
        "induction, … a b … a → b, in 8 of 8 tokens by a transformer of 2 layers with sinusoidal "
        "positions",
        _rates(_INDUCTION, *_CONSTANTS, rates=("1e-3",), doubt=_DEFAULT_ALONE),
        config=recall,
        fields=_LARGE,
    ),
    "copying_rates": _table(
        "learning rates of copying, Mamba-2: their choice, at seeds 10 and 11",
        _rates(_MAMBA, "mimetic"),
        controls=_CONTROLS,
        fields=_END,
    ),
    "copying_rates_02": _table(
        "learning rates of copying, Mamba-2 with the reference's embeddings (standard deviation "
        ".02): their choice, at seeds 10 and 11",
        _rates(_MAMBA, "default", "mimetic"),
        controls=(),
        fields={**_END, **_REFERENCE},
    ),
    "copying_rates_gpt": _table(
        "learning rates of copying, a transformer of 2 layers with sinusoidal positions: their "
        "choice, at seed 10",
        _rates({**_GPT, "steps": 400}, "default", "mimetic", "vision", rates=_GPT_RATES),
        controls=(),
        fields=_OFTEN,
    ),
    "positions_rates": _table(
        "learning rates of copying, a transformer of 2 layers with learned or rotary positions: "
        "their choice, at seed 10",
        _positions("default", rates=("1e-3", "3e-3", "1e-2", "3e-2")),
        controls=(),
        fields={"eval.every": 10},
    ),
    "induction_rates": _table(
        "learning rates of induction, a transformer of 2 layers with sinusoidal positions: their "
        "choice, at seed 10",
        _rates(_INDUCTION, "default", rates=("3e-4", "1e-3", "3e-3")),
        config=recall,
        controls=(),
        fields={**_LARGE, "eval.every": 50},
    ),
}


_BY_RATE = {f"learning rate {rate}": float(rate) for rate in _RATES}

FIGURES = {
    "parts": Figure(
        "copying by the 16 combinations of the parts",
        "dots",
        {
            "numbers": {
                "answers %": "",
                "steps to 95 %": "goal",
                "16 tokens, answers %": "x2",
                "32 tokens, answers %": "x4",
            }
        },
        table="recall/parts",
    ),
    "over_rates": Figure(
        "copying over the learning rate, at the trained length and beyond",
        "sweep",
        {
            "label": "learning rate",
            "log": True,
            "panels": dict.fromkeys(("8 tokens, as trained", "16 tokens", "32 tokens"), _BY_RATE),
            "at": {"16 tokens": "x2", "32 tokens": "x4"},
        },
        table="recall/copying_rates",
    ),
}
