"""ConvMixers on CIFAR-10 whose depthwise filters are trained, or frozen as they start.

Paper: Structured Initialization for Vision Transformers, table 7 (appendix H).
Differs from the paper: it names kentaroy47/vision-transformers-cifar10 for the training, whose
    rate and epochs for its ConvMixer these are; that of the authors' own program trains for 200
    epochs at 1e-3. Frozen are filters and their biases, as in the released code, and the filters
    have its earlier amplitudes: the same energy at every size. Noise is ours.
"""

from ml_collections import ConfigDict

from configs import arms, recipes
from configs.default import model
from mimetic_jax.schemes import ConvFilters

FROZEN = (ConvFilters("random"), ConvFilters("impulse"), ConvFilters("box"))


def get_config(width: int = 256, filter_size: int = 5, init: arms.Names = arms.ALL) -> ConfigDict:
    """Arguments: width (256, 512), filter_size (3, 5, 8), init.

    Arms are default, whose filters are trained, and the frozen random, impulse and box.
    """
    config = recipes.kentaroy(epochs=400.0, learning_rate=1e-4)
    config.name = f"convmixer_cifar_{width}_{filter_size}"
    config.model = model("convmixer", width=width, filter_size=filter_size)
    rules = {"rate_rules": ((r"depthwise/", 0.0),)}  # neither the filters nor their biases
    every: arms.Arms = {"default": {}}
    for filters in FROZEN:
        every[filters.kind] = {"scheme": (filters,), "optimizer": rules}
    compared = ("default", "random", *arms.with_noise("impulse", "box"))
    config.arms = arms.chosen(init, every, compared)
    return config
