"""A Flax module of your own, with and without structure in its first weights, on a set of images.

Paper: Mimetic Initialization of Self-Attention Layers; of MLPs (no row of either).
Command:
    python main.py --config=configs/own_model.py:model=tests.forms:LinenViT,init=mlp
Expected: nothing is published; the schemes need stock names of attention and MLPs, or roles in
    config.rules.
"""

from ml_collections import ConfigDict

from configs import arms, default
from mimetic_jax.schemes import MeanShift, Mimetic


def get_config(
    model: str = "vit", data: str = "digits", steps: int = 200, init: arms.Names = arms.ALL
) -> ConfigDict:
    """Arguments: model, data, steps, init; a model is package.module:Class, or a name of `MODELS`.

    `init` is "all" for the arms default, mimetic and its noise, which change attention alone;
    "positions" for these and sincos, the last three with sin-cos values in a trainable position
    table; "mlp" for default, mean_shift and its noise, which change the MLPs' first layers;
    "default" trains a model that no scheme fits.
    """
    config = default.default()
    config.update(name=f"own_model_{model.rpartition(':')[2]}", seeds=(0, 1, 2), steps=steps)
    config.data.name = data
    config.model = default.model(model)
    config.optimizer.update(warmup=steps // 10, clip=1.0)
    config.eval.update(batch=120, every=50)
    config.checkpoint_every = 50
    attention, vision = arms.controlled("mimetic", Mimetic()), arms.vision()
    groups = {
        "positions": {name: vision[name] for name in arms.VISION},
        "mlp": arms.controlled("mean_shift", MeanShift(0.5)),
    }
    config.arms = arms.chosen(init, attention, attention, groups)
    return config
