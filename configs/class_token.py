"""What a class token's initial size does to a comparison: token or mean pooling, clipped or not.

Paper: Mimetic Initialization of Self-Attention Layers (no row of it; a study of its setting).
Command:
    python main.py --config=configs/class_token.py --workdir=runs/class_token_digits
    python main.py --config=configs/class_token.py:data=cifar10 --config.data.dir=DIR \
        --workdir=runs/class_token_cifar10
Published: nothing. Found on digits, seeds 0 to 2, with clipping: for a token of 1e-6 norm_matched
    97.31 ± 0.89, mimetic 94.26 ± 1.97; of .02 97.50 ± 1.00, 96.57 ± 0.70; for mean pooling
    97.22 ± 0.83, 97.87 ± 0.16 (commit 2a0da21). The first LayerNorm divides by the token's standard
    deviation, so close to 0 the token's gradient decides how far all parameters move.
Digits train as in configs/digits_vit.py, whose rate and base are those of the best default arm.
    CIFAR-10 has 64 patches of 4×4 pixels, crops and flips; its rate was not searched.
"""

from ml_collections import ConfigDict

from configs import arms, digits_vit
from configs.default import arguments, default
from mimetic_jax.base.errors import unknown
from mimetic_jax.schemes import Mimetic, NormMatched, SinCos

POOLS = {
    "tiny": {"pool": "token", "token_std": 1e-6},
    "token": {"pool": "token", "token_std": 0.02},
    "mean": {"pool": "mean"},
}


def get_config(text: str = "") -> ConfigDict:
    """Arguments: data (digits, cifar10), steps (of CIFAR-10), init.

    `init` is "all", or one or more of default, norm_matched and mimetic, joined by "+".
    """
    args = arguments(text, data="digits", steps=200, init="all")
    if args.data not in ("digits", "cifar10"):
        raise unknown("data", args.data, ("digits", "cifar10"))
    config = digits_vit.get_config() if args.data == "digits" else _cifar10(args.steps)
    config.name = f"class_token_{args.data}"
    config.eval.every = config.checkpoint_every = 0
    positions, mimetic = SinCos(), Mimetic()
    schemes = arms.chosen(
        args.init,
        {
            "default": {"scheme": ()},
            "norm_matched": {"scheme": (positions, NormMatched(mimetic))},
            "mimetic": {"scheme": (positions, mimetic)},
        },
    )
    config.arms = ConfigDict(
        {
            f"{pool}_clip{clip:g}_{name}": {
                "model": model,
                "optimizer": {"clip": clip},
                **scheme,
            }
            for pool, model in POOLS.items()
            for clip in (1.0, 0.0)
            for name, scheme in schemes.items()
        },
        sort_keys=False,
    )
    return config


def _cifar10(steps: int) -> ConfigDict:
    config = default()
    config.seeds = (0, 1, 2)
    config.data.name = "cifar10"
    config.data.augment.crop = 4
    config.data.augment.flip = True
    config.steps = steps

    config.model.width, config.model.depth, config.model.heads = 64, 4, 2
    config.model.patch = 4
    config.model.base = "torch"

    config.optimizer.learning_rate = 1e-3
    config.optimizer.warmup = steps // 10
    config.eval.batch = 500
    config.log_every = 50
    return config
