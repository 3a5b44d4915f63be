"""An MLP-Mixer on CIFAR-10 whose token mixing starts as convolutions with impulses.

Paper: Structured Initialization for Vision Transformers, table 3, MLP-Mixer.
Differs from the paper: it names kentaroy47/vision-transformers-cifar10 for the training and says
    that the spatial MLPs start with a convolutional structure, without a construction: ours is
    schemes.ImpulseMixing. Rate and epochs are those of that program's notes. The noise is ours.
"""

from ml_collections import ConfigDict

from configs import arms, recipes
from configs.default import model
from mimetic_jax.schemes import ImpulseMixing


def get_config(init: arms.Names = arms.ALL) -> ConfigDict:
    """Arguments: init (default, norm_matched_impulse, impulse)."""
    config = recipes.kentaroy(epochs=500.0, learning_rate=1e-3)
    config.name = "mixer_cifar"
    config.model = model("mixer")
    config.arms = arms.chosen(init, arms.controlled("impulse", ImpulseMixing()))
    return config
