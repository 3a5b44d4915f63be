"""The league: which initialization to use, by every one of one line on the same small tasks.

Each arm trains at its own best learning rate: chosen at other seeds than those that are compared,
and by a validation split where the data has a test split. An arm tries three rates, of which the
middle one was the default's best, and further ones as long as its best is at an end. Networks are
small and trainings short: what one CPU core trains in seconds.
"""

from papers.record import Figure, Table, over_rates

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

_GPT = {
    "vision": "mimetic attention, with the constants for images",
    "strong": "mimetic attention for text with twice the -I in value/out: beta_vo=-0.4",
    "strong_mup": "the same with the rates of muP",
}

ENTRANTS = {
    **_ANY,
    **_ATTENTION,
    **_VIT,
    **_GPT,
    "complete_p": "CompleteP: muP, and the ends of branches start and learn as 1/L",
    "impulse_mean_shift": "impulse token mixing, and a mean in MLPs",
    "conv": "filters with the covariance of trained ones",
    "conv_mean_shift": "these filters, and a mean in MLPs",
}
"""What each arm is, in words."""

_STRUCTURED = {
    *("orthogonal", "sinusoidal", "idinit", "mean_shift", "zero", "dct", "conditioned", "mimetic"),
    *("polar", "mimetic_zero_mlp", "mimetic_mean_shift", "mimetic_mup", "language", "vision"),
    *("strong", "strong_mup", "impulse", "impulse_mean_shift", "conv", "conv_mean_shift"),
}
"""Those whose control is noise of their norms; entries of the others are independent already."""


def _of(*names: str) -> tuple[str, ...]:
    """Arms, then their controls."""
    return (*names, *(f"norm_matched_{name}" for name in names if name in _STRUCTURED))


LEADING = ("mimetic_mup", "mup", "mimetic", "mimetic_zero_mlp")
"""Those that train longer too: ahead on digits or text, without near copies of mimetic."""

_ARMS = {
    "vit": _of(*_ANY, *_ATTENTION, *_VIT),
    # An impulse takes as many positions as a head has channels, and the digits have half of them.
    "small_vit": _of(*_ANY, *_ATTENTION, "sincos", "language"),
    "gpt": _of(*_ANY, *_ATTENTION, *_GPT),
    "deep_gpt": _of(*_ANY, *_ATTENTION, *_GPT, "complete_p"),
    "mixer": _of(*_ANY, "impulse", "impulse_mean_shift"),
    "convnext": _of(*_ANY, "conv", "conv_mean_shift"),
    "leading": _of("default", *LEADING),
}


_Rates = tuple[str, ...]
_LADDER: _Rates = ("1e-4", "3e-4", "1e-3", "3e-3", "1e-2", "3e-2", "1e-1", "3e-1")
_LOW, _HIGH = _LADDER[2:5], _LADDER[3:6]


def _task(task: str, model: str, title: str, score: str, first: _Rates, seeds: int) -> Table:
    return over_rates(
        title,
        "configs/league.py",
        score,
        _LADDER,
        first,
        arguments=f"task={task}",
        arms=_ARMS[model],
        seeds=seeds,
        trials=(100,),
    )


_CIFAR = "5,000 images of CIFAR-10, 64 patches,"

_TASKS = (
    ("digits", "small_vit", "8x8 digits, 16 patches, ViT 64/2, 150 steps", "accuracy %", _HIGH, 8),
    ("text", "gpt", "Python's documentation, GPT 64/2, 400 steps", "test bits/char", _LOW, 5),
    ("deep", "deep_gpt", "Python's documentation, GPT 32/12, 400 steps", "test bits/char", _LOW, 5),
    ("copying", "gpt", "copying strings of 16, GPT 64/2, 60 steps", "answers %", _HIGH, 5),
    ("recall", "gpt", "recall of 4 pairs, GPT 64/2, 300 steps", "answers %", _LOW, 5),
    ("ptb", "gpt", "Penn Treebank by characters, GPT 64/2, 400 steps", "test bits/char", _LOW, 5),
    ("images", "vit", f"{_CIFAR} ViT 48/2, mean pooling, 160 steps", "accuracy %", _LOW, 5),
    ("token", "vit", f"{_CIFAR} ViT 48/2, class token, 160 steps", "accuracy %", _LOW, 5),
    ("mixer", "mixer", f"{_CIFAR} MLP-Mixer 48/2, 160 steps", "accuracy %", _HIGH, 5),
    ("convnext", "convnext", f"{_CIFAR} ConvNeXt 48/2, 160 steps", "accuracy %", _HIGH, 5),
)

_LONG = (
    (
        *("long_text", "leading", "Python's documentation, GPT 64/2, 2,000 steps"),
        *("test bits/char", _LOW, 5),
    ),
    (
        *("long_images", "leading", f"{_CIFAR} ViT 48/2, mean pooling, 20 epochs"),
        *("accuracy %", _LOW, 5),
    ),
)

LONG = {task[0]: _task(*task) for task in _LONG}
"""The same two tasks for longer, to see what is left of the gain."""

TABLES = {task[0]: _task(*task) for task in _TASKS} | LONG

FIGURES: dict[str, Figure] = {}
