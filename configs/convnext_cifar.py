"""An isotropic ConvNeXt-256/8 on CIFAR-10 whose MLPs, filters or both start with structure.

Paper: Mimetic Initialization of MLPs, figure 2 (ConvNeXt), and figure 4 through init=sweep.
Published: figures alone, see papers/mlp.py. In the sweep many values of b help, of either sign, and
    b = 0 is a dip.
Differs from the paper: the pipeline is "the same as in Trockman et al. 2022", taken to be that of
    configs/cifar10_vit.py; papers/mlp.py has what isn't stated. The b of the sweep are absolute, as
    the paper's is; in standard deviations of PyTorch's default, which MeanShift counts
    (1/√(3 · 256) = .036), .005 to .05 are .14 to 1.39. Its baselines are that default, the same
    with zero biases in the first layers of MLPs (zero_bias), ConvNeXt's own normal of .02 with zero
    biases everywhere (normal), a constant bias, and the learned b · sum(x) (learned_sum). Controls
    are ours; that of the sweep is of the largest b.
"""

from ml_collections import ConfigDict

from configs import arms, recipes
from configs.default import model

FIGURE_2 = ("default", *arms.with_noise("mean_shift", "conv", "conv_mean_shift"))
"""The paper's arms, and our controls."""


def get_config(epochs: float = 10.0, b: float = arms.B, init: arms.Names = arms.ALL) -> ConfigDict:
    """Arguments: epochs (10, 20, 50), b, init (arms.mlp and arms.mean_sweep)."""
    config = recipes.small_images("cifar10", epochs)
    config.seeds = (0, 1, 2, 3, 4)
    config.model = model("convnext")
    swept = "_sweep" if init[0] in ("sweep", "baselines") else ""
    config.name = f"convnext_cifar{swept}_{epochs:g}"
    width = config.model.width
    every = arms.mlp(width, config.model.base, b)
    config.arms = arms.chosen(init, every, FIGURE_2, arms.mean_sweep(width))
    return config
