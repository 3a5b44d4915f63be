"""Small networks that start with the products of a trained one: what docs/trained.md asks.

Each arm trains at its own best learning rate, as in papers/league.py. Every row is trained as it
stands, scaled down to what one CPU core trains in seconds.
"""

from typing import Any

from configs import trained
from papers.record import NOTHING, Arguments, Table, again, over_rates

_MLP = ("default", "anti", "correlated", "profile")
_BOTH = (
    *(*_MLP, "norm_matched_mimetic", "mimetic"),
    *("norm_matched_mimetic_anti", "mimetic_anti"),
)
_PERMUTED = ("permuted_mimetic",)
_STRONG = ("norm_matched_strong", "permuted_strong", "strong")
_LADDER = ("2.5e-4", "5e-4", "1e-3", "2e-3", "4e-3", "8e-3", "1.6e-2", "3.2e-2")
_ACCURACY, _BITS = "accuracy %", "test bits/char"
_TASKS = {
    "images": (
        "10,000 images of CIFAR-10, 64 tokens, ViT 48/4 of 2 heads, mean pooling",
        *(_ACCURACY, ("5e-4", "1e-3", "2e-3")),
    ),
    "digits": ("8x8 digits, 16 tokens, ViT 64/4", _ACCURACY, ("1e-3", "2e-3", "4e-3")),
    "text": ("Python's documentation by characters, GPT 64/4", _BITS, ("2e-3", "4e-3", "8e-3")),
    "ptb": ("Penn Treebank by characters, GPT 64/4", _BITS, ("2e-3", "4e-3", "8e-3")),
}
"""Data and model, score, and the rates that every arm tries."""


def _table(
    task: str, length: str, arms: tuple[str, ...], arguments: Arguments = NOTHING, **options: Any
) -> Table:
    data, score, first = _TASKS[task]
    return over_rates(
        f"scaled down: {data}, {length}",
        trained,
        _LADDER,
        first,
        arms,
        {"task": task, **arguments},
        score=score,
        **options,
    )


_TEXTS = {
    "text": _table("text", "200 steps", (*_BOTH, *_PERMUTED, *_STRONG)),
    "ptb": _table("ptb", "200 steps", (*_MLP[:3], *_STRONG)),
}

TABLES = {
    **_TEXTS,
    **{f"{text}_again": again(of, ("default", *_STRONG)) for text, of in _TEXTS.items()},
    "images": _table(
        "images",
        "one epoch",
        (
            *(*_MLP, "norm_matched_mimetic", "mimetic", "norm_matched_fit", "fit"),
            *("fit_profile", "selection"),
        ),
        {"teacher": "FILE.npz"},
        trials=(100,),
        needs="a file (FILE.npz) of DINOv2's ViT-S/14",
    ),
    "digits": _table("digits", "100 steps", (*_BOTH, *_PERMUTED), trials=(100,)),
    "long_digits": _table("digits", "400 steps", _MLP, {"steps": 400}),
    "long_images": _table("images", "4 epochs", _MLP, {"steps": 624}),
    "long": _table("text", "800 steps", _MLP[:3], {"steps": 800}),
}
