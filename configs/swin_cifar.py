"""A Swin-T for the 32×32 pixels of CIFAR-10.

Paper: Structured Initialization for Vision Transformers, table 3 (Swin-T).
Differs from the paper: it trains with kentaroy47/vision-transformers-cifar10, whose model and
    recipe these are; 400 epochs are of that program's README. Only the code for ViTs was released:
    that the impulse is added to the drawn biases, one offset per block since the heads of a block
    share them, and its strength (2, 3 and 5 are worth a try) are ours.
"""

from ml_collections import ConfigDict

from configs import arms, recipes
from configs.default import model
from mimetic_jax.schemes import ImpulseBias


def get_config(init: arms.Names = arms.ALL) -> ConfigDict:
    """Arguments: init (arms.structured)."""
    config = recipes.kentaroy(epochs=400.0, learning_rate=1e-4)
    config.name = "swin_cifar"
    sizes = {"width": 96, "depths": (2, 2, 6, 2), "downscaling": (2, 2, 2, 1), "window": 4}
    config.model = model("swin", form="cifar", **sizes)
    config.arms = arms.chosen(init, arms.structured(ImpulseBias()), arms.STRUCTURED)
    return config
