"""Small networks that start with the products of a trained one: what docs/trained.md asks.

Each arm trains at its own best learning rate, as in papers/league.py. Every row is trained as it
stands, scaled down to what one CPU core trains in seconds.
"""

from papers.record import Figure, Row, Table

ENTRANTS = {
    "anti": "W_1 W_2 of MLPs leans to -I, rho = -.5, beside the default's attention",
    "correlated": "the same with rho = +.5: the control",
    "profile": "rho by relative depth as in DINOv2's ViT-S",
    "mimetic_anti": "mimetic attention, and rho = -.5 in MLPs",
    "fit": "attention with alpha and beta by relative depth as in DINOv2's ViT-S",
    "fit_profile": "the same, and its rho in MLPs",
    "selection": "evenly spaced weights of DINOv2's first layers, LayerScale folded in",
}
"""What each arm is, in words, beside those of the league."""

_MLP = ("default", "anti", "correlated", "profile")
_LADDER = ("2.5e-4", "5e-4", "1e-3", "2e-3", "4e-3", "8e-3", "1.6e-2", "3.2e-2")
_SMALL = "scaled down:"


def _task(
    task: str, title: str, score: str, lowest: str, *more: str, seeds: int = 5, needs: str = ""
) -> Table:
    at = _LADDER.index(lowest)
    return Table(
        title,
        "",
        "configs/trained.py",
        score,
        tuple(
            Row(
                f"learning rate {rate}",
                f"task={task}" + ",teacher=FILE.npz" * bool(needs),
                arms=(*_MLP, *more),
                flags=(f"--config.optimizer.learning_rate={rate}",),
                needs=needs,
            )
            for rate in _LADDER
        ),
        controls=(),
        higher=score == "accuracy %",
        seeds=tuple(range(seeds)),
        trials=(100,),
        first=(at, at + 1, at + 2),
        trial_flags=("--config.data.held_out=0.2",) if score == "accuracy %" else (),
    )


TABLES = {
    "images": _task(
        "images",
        f"{_SMALL} 10,000 images of CIFAR-10, 64 tokens, ViT 48/4 of 2 heads, mean pooling, one "
        "epoch",
        "accuracy %",
        "1e-3",
        *("norm_matched_mimetic", "mimetic", "fit", "fit_profile", "selection"),
        seeds=3,
        needs="a file (FILE.npz) of DINOv2's ViT-S/14",
    ),
    "digits": _task(
        "digits",
        f"{_SMALL} 8x8 digits, 16 tokens, ViT 64/4, 100 steps",
        "accuracy %",
        "2e-3",
        *("mimetic", "mimetic_anti"),
    ),
    "text": _task(
        "text",
        f"{_SMALL} Python's documentation by characters, GPT 64/4, 200 steps",
        "test bits/char",
        "4e-3",
    ),
}

FIGURES: dict[str, Figure] = {}
