"""The start that each scheme of attention gives, side by side: for `--mode=analyze --what=schemes`.

Papers: all three (no row of it; for looking, though the arms can be trained).
Command: python main.py --config=configs/schemes.py --mode=analyze --what=schemes
"""

from ml_collections import ConfigDict

from configs.default import arguments, default
from mimetic_jax import schemes


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

    positions, mimetic = schemes.SinCos(), schemes.Mimetic()
    config.arms = ConfigDict(
        {
            "default": {},
            "sincos": {"scheme": (positions,)},
            "mimetic": {"scheme": (positions, mimetic)},
            "norm_matched": {"scheme": (positions, schemes.NormMatched(mimetic))},
            "shuffled": {"scheme": (positions, schemes.Shuffled(mimetic))},
            "polar": {"scheme": (positions, schemes.Polar(mimetic))},
            "same_noise": {"scheme": (positions, schemes.SameNoise())},
            "language": {"scheme": (positions, schemes.mimetic_language())},
            "impulse": {"scheme": (schemes.Impulse(),)},
            "impulse_paper": {"scheme": (schemes.Impulse.paper(),)},
            "zero": {"scheme": (positions, schemes.Zero())},
            "zero_out": {"scheme": (positions, schemes.ZeroOut())},
            "t_fixup": {"scheme": (positions, schemes.TFixup())},
            "uniform": {"scheme": (positions, schemes.UniformAttention())},
            "conditioned": {"scheme": (positions, schemes.Conditioned())},
            "orthogonal": {"scheme": (positions, schemes.Orthogonal())},
            "dct": {"scheme": (positions, schemes.DCT())},
            "sinusoidal": {"scheme": (positions, schemes.Sinusoidal())},
        },
        sort_keys=False,
    )
    return config
