"""The league: which initialization to use, by every one of one line on the same small tasks.

Each arm trains at its own best of three learning rates: chosen at other seeds than those that are
compared, and by a validation split where the data has a test split. The middle rate is the best of
the default. Networks are small and trainings short: what one CPU core trains in seconds.
"""

from papers.record import Figure, Row, Table

_ANY = {
    "default": "Flax: normal of fan_in^-1/2",
    "torch": "PyTorch: uniform of (3 fan_in)^-1/2, biases too",
    "normal": "normal of .02: BERT, timm's ViTs",
    "gpt2": "GPT-2: normal of .02, over sqrt(2L) where branches end",
    "small": "small: normal of fan_in^-.8",
    "spectral": "spectral: fan_in^-1/2 min(1, sqrt(fan_out/fan_in))",
    "speedrun": "modded-nanogpt: branches end in zero, the rest uniform of 1/2 D^-1/2",
    "zero_outputs": "branches end in zero, as in Fixup",
    "mup": "muP: learning rates of hidden kernels fall as 1/D",
    "orthogonal": "orthogonal kernels",
    "sinusoidal": "sinusoidal kernels",
    "idinit": "IDInit: padded identities",
    "mean_shift": "a mean in the first layer of MLPs",
}
_ATTENTION = {
    "zero_out": "attention ends in zero",
    "uniform": "attention uniform of 1/2 D^-1/2",
    "t_fixup": "T-Fixup",
    "zero": "ZerO on attention",
    "dct": "keys are cosines",
    "conditioned": "conditioned attention",
    "mimetic": "mimetic attention, with the constants for this kind of data",
    "polar": "mimetic attention with equal singular values",
    "mimetic_zero_mlp": "mimetic attention, MLPs end in zero",
    "mimetic_mean_shift": "mimetic attention, and a mean in MLPs",
    "mimetic_mup": "mimetic attention with the rates of muP",
}
_VIT = {
    "sincos": "positions of sines and cosines alone",
    "language": "mimetic attention, with the constants for text",
    "impulse": "impulse attention",
}

ENTRANTS = {
    **_ANY,
    **_ATTENTION,
    **_VIT,
    "vision": "mimetic attention, with the constants for images",
    "impulse_mean_shift": "impulse token mixing, and a mean in MLPs",
    "conv": "filters with the covariance of trained ones",
    "conv_mean_shift": "these filters, and a mean in MLPs",
}
"""What each arm is, in words."""

_STRUCTURED = {
    *("orthogonal", "sinusoidal", "idinit", "mean_shift", "zero", "dct", "conditioned", "mimetic"),
    *("polar", "mimetic_zero_mlp", "mimetic_mean_shift", "mimetic_mup", "language", "vision"),
    *("impulse", "impulse_mean_shift", "conv", "conv_mean_shift"),
}
"""Those whose control is noise of their norms; entries of the others are independent already."""


def _of(*names: str) -> tuple[str, ...]:
    """Arms, then their controls."""
    return (*names, *(f"norm_matched_{name}" for name in names if name in _STRUCTURED))


_ARMS = {
    "vit": _of(*_ANY, *_ATTENTION, *_VIT),
    "gpt": _of(*_ANY, *_ATTENTION, "vision"),
    "mixer": _of(*_ANY, "impulse", "impulse_mean_shift"),
    "convnext": _of(*_ANY, "conv", "conv_mean_shift"),
}


def _task(
    task: str,
    model: str,
    title: str,
    score: str,
    rates: tuple[str, str, str],
    seeds: int,
    trial_flags: tuple[str, ...] = (),
) -> Table:
    rows = tuple(
        Row(
            f"learning rate {rate}",
            f"task={task}",
            arms=_ARMS[model],
            flags=(f"--config.optimizer.learning_rate={rate}",),
        )
        for rate in rates
    )
    return Table(
        title,
        "",
        "configs/league.py",
        score,
        rows,
        controls=(),
        higher=score != "test bits/char",
        seeds=tuple(range(seeds)),
        trials=(100,),
        trial_flags=trial_flags,
    )


_HELD_OUT = ("--config.data.held_out=0.2",)
_CIFAR = "5,000 images of CIFAR-10"

TABLES = {
    "digits": _task(
        *("digits", "vit", "8x8 digits, 16 patches, ViT 64/2, mean pooling, 150 steps"),
        *("accuracy %", ("1e-3", "3e-3", "1e-2"), 8, _HELD_OUT),
    ),
    "text": _task(
        *("text", "gpt", "Python's documentation by characters, GPT 64/2, 200 steps"),
        *("test bits/char", ("1e-3", "3e-3", "1e-2"), 5),
    ),
    "copying": _task(
        *("copying", "gpt", "copying strings of 8, GPT 64/2, 300 steps"),
        *("answers %", ("1e-3", "3e-3", "1e-2"), 5),
    ),
    "recall": _task(
        *("recall", "gpt", "associative recall of 4 pairs, GPT 64/2, 300 steps"),
        *("answers %", ("1e-3", "3e-3", "1e-2"), 5),
    ),
    "ptb": _task(
        *("ptb", "gpt", "Penn Treebank by characters, GPT 64/2, 200 steps"),
        *("test bits/char", ("1e-3", "3e-3", "1e-2"), 5),
    ),
    "images": _task(
        *("images", "vit", f"{_CIFAR}, 64 patches, ViT 64/3, mean pooling, 160 steps"),
        *("accuracy %", ("1e-3", "3e-3", "1e-2"), 5, _HELD_OUT),
    ),
    "token": _task(
        *("token", "vit", f"{_CIFAR}, 64 patches, ViT 64/3, class token, 160 steps"),
        *("accuracy %", ("1e-3", "3e-3", "1e-2"), 5, _HELD_OUT),
    ),
    "mixer": _task(
        *("mixer", "mixer", f"{_CIFAR}, 64 patches, MLP-Mixer 64/3, 160 steps"),
        *("accuracy %", ("1e-3", "3e-3", "1e-2"), 5, _HELD_OUT),
    ),
    "convnext": _task(
        *("convnext", "convnext", f"{_CIFAR}, 64 patches, ConvNeXt 48/3, 160 steps"),
        *("accuracy %", ("1e-3", "3e-3", "1e-2"), 5, _HELD_OUT),
    ),
}

FIGURES: dict[str, Figure] = {
    "forest": Figure(
        "gain over the default of every initialization, with 95 % intervals", "", "forest"
    ),
}
