"""Small networks that start with the products of a trained one: what docs/trained.md asks.

Each arm trains at its own best learning rate, as in papers/league.py. Every row is trained as it
stands, scaled down to what one CPU core trains in seconds.
"""

from papers.record import over_rates

_MLP = ("default", "anti", "correlated", "profile")
_BOTH = (*_MLP, "norm_matched_mimetic", "mimetic", "mimetic_anti")
_LADDER = ("2.5e-4", "5e-4", "1e-3", "2e-3", "4e-3", "8e-3", "1.6e-2", "3.2e-2")
_SMALL = "scaled down:"


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
    "text": over_rates(
        f"{_SMALL} Python's documentation by characters, GPT 64/4, 200 steps",
        "configs/trained.py",
        "test bits/char",
        _LADDER,
        ("2e-3", "4e-3", "8e-3"),
        arguments="task=text",
        arms=(*_BOTH, "norm_matched_strong", "strong"),
        seeds=5,
    ),
}
