"""Closed-form starts for today's models, and for models without skips: docs/today.md.

Each arm trains at its own best learning rate of factors of two, as in papers/league.py. Every row
is trained as it stands, scaled down to what one CPU core trains in seconds.
"""

from collections.abc import Mapping
from typing import Any

from configs import rotary, today
from papers.record import Table, again, over_rates

_LADDER = (
    *("3.125e-5", "6.25e-5", "1.25e-4", "2.5e-4", "5e-4", "1e-3", "2e-3", "4e-3", "8e-3"),
    *("1.6e-2", "3.2e-2", "6.4e-2", "1.28e-1", "2.56e-1"),
)
_LEADING = (
    *("default", "identity", "norm_matched_identity", "identity_copying"),
    *("norm_matched_identity_copying", "strong", "norm_matched_strong", "symmetric", "anti"),
)
_ALL = (
    *_LEADING,
    *("mimetic", "norm_matched_mimetic", "each", "norm_matched_each", "small", "identity_anti"),
    *("induction", "norm_matched_induction", "shift", "bigrams", "bigrams_shuffled"),
)
_AGAIN = ("default", "strong", "norm_matched_strong")
_TRIALS = tuple(range(100, 105))
_FEWER = _TRIALS[:3]
_MIDDLE, _HIGH = "4e-3 8e-3 1.6e-2", "8e-3 1.6e-2 3.2e-2"
_BITS, _ANSWERS = "test bits/char", "answers %"
_MUON = {"optimizer.name": "muon"}
_MODERN = "GPT with rotary positions, RMSNorm, SwiGLU and QK norm"
_IMAGES = (
    *("default", "closed", "norm_matched_closed"),
    *("skips_default", "skips_closed", "norm_matched_skips_closed"),
)


def _table(
    task: str,
    data: str,
    first: str,
    arms: tuple[str, ...] = _LEADING,
    sizes: Mapping[str, int] = {},
    **options: Any,
) -> Table:
    title, arguments = f"scaled down: {data}", {"task": task, **sizes}
    return over_rates(title, today, _LADDER, first.split(), arms, arguments, **options)


def _text(width: int, steps: int, first: str, by: str = "", **options: Any) -> Table:
    data = f"Python's documentation by characters, {_MODERN}, {width}/2, {steps} steps{by}"
    return _table(
        "text", data, first, _ALL, {"width": width, "steps": steps}, score=_BITS, **options
    )


def _images(depth: int, patch: int, steps: int, lower: str = "") -> Table:
    data = (
        f"10,000 images of CIFAR-10, {(32 // patch) ** 2} tokens, ViT 32/{depth} of 2 heads "
        f"without skip connections, mean pooling, {steps} steps of 32"
    )
    sizes = {"depth": depth, "patch": patch, "steps": steps}
    return _table("images", data, f"{lower} 1e-3 2e-3 4e-3", _IMAGES, sizes)


def _ptb(steps: int, arms: tuple[str, ...]) -> Table:
    data = f"Penn Treebank by characters, {_MODERN}, 32/2, {steps} steps"
    sizes = {} if steps == 200 else {"steps": steps}
    return _table("ptb", data, _HIGH, arms, sizes, score=_BITS)


_CONTROLS = ("norm_matched_positional", "random_phases", "random_distances")
_FEW = ("default", "positional", "norm_matched_positional")
_CIRCUITS = (
    *(*_FEW, "half", "norm_matched_half"),
    *("content", "circuit", "norm_matched_circuit"),
)
_HALF = ("default", "half", "norm_matched_half")
# Whether a circuit is found changes from one rate to the next, so that a climb along the rates can
# end before it: every arm tries all of them.
_FOUND = {"score": _ANSWERS, "first": "5e-4 1e-3 2e-3 4e-3 8e-3 1.6e-2"}
_BARE = ("default", "bare", "bare_positional", "norm_matched_bare_positional")


def _heads(
    task: str,
    data: str,
    arms: tuple[str, ...] = _FEW,
    steps: int = 200,
    score: str = _BITS,
    first: str = _MIDDLE,
    **options: Any,
) -> Table:
    """Heads that look at a distance, in models with rotary positions."""
    title = f"{data}, {_MODERN}, 64/2 of 4 heads, {steps:,} steps"
    options = {"score": score, "trials": _TRIALS, **options}
    return _table(task, title, first, arms, {"width": 64, "steps": steps}, **options)


_PYTHON = "Python's documentation by characters"
_HEADS = {
    "heads": _heads("text", _PYTHON, (*_FEW[:2], *_CONTROLS, "half", "content", "circuit")),
    "heads_bare": _heads("text", f"{_PYTHON}, no biases", _BARE),
    "heads_long": _heads("text", _PYTHON, (*_FEW, "half", "norm_matched_half"), 800, trials=_FEWER),
    "heads_longer": _heads("text", _PYTHON, steps=3200, trials=_FEWER),
    "heads_ptb": _heads("ptb", "Penn Treebank by characters"),
    "heads_words": _heads("words", "Penn Treebank by words", score="perplexity"),
    "heads_muon": _heads("text", f"{_PYTHON}, Muon", fields=_MUON),
    "heads_recall": _heads("recall", "recall of 4 pairs", _CIRCUITS, 400, **_FOUND),
    "heads_induction": _heads("induction", "induction", _CIRCUITS, 400, **_FOUND),
    "heads_recall_long": _heads(
        "recall", "recall of 4 pairs", _HALF, 1600, trials=_FEWER, **_FOUND
    ),
    "heads_vision": _table(
        "vision",
        "10,000 images of CIFAR-10, 64 tokens, ViT 64/4 of 4 heads with rotary positions, mean "
        "pooling, two epochs",
        "1e-3 2e-3 4e-3",
        (*_FEW, "mimetic", "sincos"),
        {"width": 64, "depth": 4, "steps": 312},
        trials=_FEWER,
    ),
}

_LARGE = (
    *("default", "half", "norm_matched_half"),
    *("positional", "norm_matched_positional"),
)


def _large(
    text: str, data: str, steps: int, first: str, arms: tuple[str, ...] = _LARGE[:3]
) -> Table:
    return over_rates(
        f"{data} by characters, GPT 384/12 with rotary positions, RMSNorm and SwiGLU, {steps:,} "
        "steps of 32 x 512",
        rotary,
        _LADDER[2:9],
        first.split(),
        arms,
        {"text": text, "steps": steps},
        score=_BITS,
        seeds=3,
        trials=(100,),
    )


_SOURCE = "100 MB of Python source out of wheels"
_TEXTS = {
    "text": _text(32, 200, _HIGH),
    # Of two trials the default's best rate was 4e-3, which the compared seeds don't bear out.
    "wide": _text(64, 200, _MIDDLE, trials=_TRIALS),
    "long": _text(32, 800, _HIGH),
    "wide_long": _text(64, 800, _MIDDLE),
    "muon": _text(32, 200, _MIDDLE, ", Muon", fields=_MUON),
    "ptb": _ptb(200, _LEADING),
    "ptb_long": _ptb(800, _AGAIN),
}

TABLES = {
    **_TEXTS,
    **_HEADS,
    "wide_again": again(_TEXTS["wide"], _AGAIN),
    "ptb_again": again(_TEXTS["ptb"], _AGAIN),
    "large": _large("source", _SOURCE, 1000, "1e-3 2e-3 4e-3", _LARGE),
    "large_long": _large("source", _SOURCE, 4000, "1e-3 2e-3"),
    "large_wikitext": _large("wikitext", "WikiText-2", 1000, "1e-3 2e-3"),
    "skipless": _images(6, 8, 156),
    "skipless_64": _images(6, 4, 156),
    # Of twelve layers without skips, the default learns nothing at 1e-3 and more.
    "skipless_long": _images(12, 4, 624, "2.5e-4 5e-4"),
    "copying": _table(
        "copying", f"copying strings of 8, {_MODERN}, 32/2, 200 steps", _MIDDLE, score=_ANSWERS
    ),
    "recall": _table(
        *("recall", f"recall of 4 pairs, {_MODERN}, 32/2, 400 steps", _MIDDLE),
        sizes={"steps": 400},
        score=_ANSWERS,
    ),
}

GRIDS = {
    "today_heads": tuple(_HEADS),
    "today_large": ("large", "large_long"),
    "today": ("text", "wide", "long", "wide_long"),
    "today_elsewhere": ("wide_again", "ptb", "ptb_again", "ptb_long", "muon"),
    "today_skipless": ("skipless", "skipless_64", "skipless_long"),
}
"""Which tables docs/today.md and docs/results.md show as one."""
