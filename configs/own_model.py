"""A Flax module of your own, with and without a mean in its first MLP layers, on any set of images.

Paper: Mimetic Initialization of MLPs (no row of it).
Command:
    python main.py --config=configs/own_model.py:model=tests.plugged:TinyMLPMixer
Expected: nothing is published; the schemes need MLPs named fc1 and fc2, or roles in config.rules.
"""

from ml_collections import ConfigDict

from configs.default import arguments, default, model
from mimetic_jax.schemes import MeanShift, NormMatched


def get_config(text: str = "") -> ConfigDict:
    """Arguments: model ("vit", or package.module:Class), data, steps."""
    args = arguments(text, model="vit", data="digits", steps=200)
    config = default()
    config.name = f"own_model_{args.model.rpartition(':')[2]}"
    config.seeds = (0, 1, 2)
    config.data.name = args.data
    config.steps = args.steps
    config.model = model(args.model)

    config.optimizer.warmup = args.steps // 10
    config.optimizer.clip = 1.0
    config.eval.batch = 120
    config.eval.every = config.checkpoint_every = 50

    shift = MeanShift(0.5)
    config.arms = ConfigDict(
        {
            "default": {},
            "norm_matched": {"scheme": (NormMatched(shift),)},
            "mean_shift": {"scheme": (shift,)},
        },
        sort_keys=False,
    )
    return config
