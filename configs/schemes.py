"""The start that each scheme of attention gives, side by side: for `--mode=analyze --what=schemes`.

Papers: all three (no row of it; for looking, though the arms can be trained).
Command: python main.py --config=configs/schemes.py --mode=analyze --what=schemes
"""

from ml_collections import ConfigDict

from configs import arms
from configs.default import arguments, default
from mimetic_jax import schemes

SHOWN = (
    *("default", "sincos", "mimetic", "norm_matched", "shuffled", "polar", "same_noise"),
    *("language", "impulse", "impulse_paper", "zero", "zero_out", "t_fixup", "uniform"),
    *("conditioned", "orthogonal", "dct", "sinusoidal"),
)


def get_config(text: str = "") -> ConfigDict:
    """Arguments: data (digits, cifar10, cifar100), patch, width, heads."""
    args = arguments(text, data="digits", patch=1, width=192, heads=3)
    config = default()
    config.name = "schemes"
    config.data.name = args.data
    config.steps = 100
    config.model.depth = 2
    config.model.pool = "mean"
    for name in ("patch", "width", "heads"):
        config.model[name] = args[name]

    positions = schemes.SinCos()
    compared, others, _ = arms.vision(1.0, config.model.depth)
    every = compared | others
    every |= {
        name: {"scheme": (positions, scheme)}
        for name, scheme in {
            "same_noise": schemes.SameNoise(),
            "language": schemes.mimetic_language(),
            "zero_out": schemes.ZeroOut(),
        }.items()
    }
    every["impulse_paper"] = {"scheme": (schemes.Impulse.paper(),)}
    config.arms = arms.chosen("+".join(SHOWN), every)
    return config
