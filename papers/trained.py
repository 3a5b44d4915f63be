"""Small networks that start with the products of a trained one: what docs/trained.md asks.

Each arm trains at its own best learning rate, as in papers/league.py. Every row is trained as it
stands, scaled down to what one CPU core trains in seconds.
"""

from papers.record import Table, over_rates

_MLP = ("default", "anti", "correlated", "profile")
_BOTH = (
    *(*_MLP, "norm_matched_mimetic", "mimetic"),
    *("norm_matched_mimetic_anti", "mimetic_anti"),
)
_LADDER = ("2.5e-4", "5e-4", "1e-3", "2e-3", "4e-3", "8e-3", "1.6e-2", "3.2e-2")
_SMALL = "scaled down:"
_TEXTS = {"text": "Python's documentation by characters", "ptb": "Penn Treebank by characters"}


def _text(task: str, steps: int, arms: tuple[str, ...]) -> Table:
    arguments = f"task={task}" + f",steps={steps}" * (steps != 200)
    return over_rates(
        f"{_SMALL} {_TEXTS[task]}, GPT 64/4, {steps} steps",
        "configs/trained.py",
        "test bits/char",
        _LADDER,
        ("2e-3", "4e-3", "8e-3"),
        arguments=arguments,
        arms=arms,
        seeds=5,
    )


TABLES = {
    "images": over_rates(
        f"{_SMALL} 10,000 images of CIFAR-10, 64 tokens, ViT 48/4 of 2 heads, mean pooling, one "
        "epoch",
        "configs/trained.py",
        "accuracy %",
        _LADDER,
        ("5e-4", "1e-3", "2e-3"),
        arguments="task=images,teacher=FILE.npz",
        arms=(
            *(*_MLP, "norm_matched_mimetic", "mimetic", "norm_matched_fit", "fit"),
            *("fit_profile", "selection"),
        ),
        seeds=5,
        trials=(100,),
        needs="a file (FILE.npz) of DINOv2's ViT-S/14",
    ),
    "digits": over_rates(
        f"{_SMALL} 8x8 digits, 16 tokens, ViT 64/4, 100 steps",
        "configs/trained.py",
        "accuracy %",
        _LADDER,
        ("1e-3", "2e-3", "4e-3"),
        arguments="task=digits",
        arms=_BOTH,
        seeds=5,
        trials=(100,),
    ),
    "long_digits": over_rates(
        f"{_SMALL} 8x8 digits, 16 tokens, ViT 64/4, 400 steps",
        "configs/trained.py",
        "accuracy %",
        _LADDER,
        ("1e-3", "2e-3", "4e-3"),
        arguments="task=digits,steps=400",
        arms=_MLP,
        seeds=5,
    ),
    "long_images": over_rates(
        f"{_SMALL} 10,000 images of CIFAR-10, 64 tokens, ViT 48/4 of 2 heads, mean pooling, 4 "
        "epochs",
        "configs/trained.py",
        "accuracy %",
        _LADDER,
        ("5e-4", "1e-3", "2e-3"),
        arguments="task=images,steps=624",
        arms=_MLP,
        seeds=5,
    ),
    "text": _text("text", 200, (*_BOTH, "norm_matched_strong", "strong")),
    "long": _text("text", 800, _MLP[:3]),
    "ptb": _text("ptb", 200, _MLP[:3]),
}
