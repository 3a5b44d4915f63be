"""The league: which initialization to use, by every one of one line on the same small tasks.

Each arm trains at its own best learning rate: chosen at other seeds than those that are compared,
and by a validation split if the data has a test split. An arm tries three rates, of which the
middle one was the default's best, and further ones as long as its best is at an end. Networks are
small and trainings short: what one CPU core trains in seconds.
"""

from configs import arms as every
from configs import league
from papers.record import over_rates

_ON_IMAGES, _ON_SEQUENCES = (
    tuple(every.chosen(every.ALL, every.league(kind, every.BASE_WIDTH))) for kind in ("vit", "gpt")
)
"""All arms, then their controls."""

# An impulse takes as many positions as a head has channels, and the digits have half of them.
_ON_DIGITS = tuple(arm for arm in _ON_IMAGES if not arm.endswith("impulse"))
_LEADING = (
    *("default", "mimetic_mup", "mup", "mimetic", "mimetic_zero_mlp"),
    *(f"norm_matched_{arm}" for arm in ("mimetic_mup", "mimetic", "mimetic_zero_mlp")),
)
"""Those ahead on digits or text, without near copies of mimetic."""

_LADDER = ("1e-4", "3e-4", "1e-3", "3e-3", "1e-2", "3e-2", "1e-1", "3e-1")
_LOW, _HIGH = _LADDER[2:5], _LADDER[3:6]

_PYTHON = "Python's documentation, GPT 64/2,"
_CIFAR = "5,000 images of CIFAR-10, 64 patches, ViT 48/2, mean pooling,"
_BITS, _ACCURACY, _ANSWERS = "test bits/char", "accuracy %", "answers %"

_TASKS = {
    "digits": (_ON_DIGITS, "8x8 digits, 16 patches, ViT 64/2, 150 steps", _ACCURACY, _HIGH, 8),
    "text": (_ON_SEQUENCES, f"{_PYTHON} 400 steps", _BITS, _LOW, 5),
    "copying": (_ON_SEQUENCES, "copying strings of 16, GPT 64/2, 60 steps", _ANSWERS, _HIGH, 5),
    "recall": (_ON_SEQUENCES, "recall of 4 pairs, GPT 64/2, 300 steps", _ANSWERS, _LOW, 5),
    "ptb": (_ON_SEQUENCES, "Penn Treebank by characters, GPT 64/2, 400 steps", _BITS, _LOW, 5),
    "images": (_ON_IMAGES, f"{_CIFAR} 160 steps", _ACCURACY, _LOW, 5),
    "long_text": (_LEADING, f"{_PYTHON} 2,000 steps", _BITS, _LOW, 5),
    "long_images": (_LEADING, f"{_CIFAR} 20 epochs", _ACCURACY, _LOW, 5),
}

LONG = ("league/long_text", "league/long_images")
"""Two of the tasks for longer, to see what is left of the gain: beside the league's own table."""

TABLES = {
    task: over_rates(
        title,
        league,
        _LADDER,
        first,
        arms,
        {"task": task},
        score=score,
        seeds=seeds,
        trials=(100,),
    )
    for task, (arms, title, score, first, seeds) in _TASKS.items()
}
