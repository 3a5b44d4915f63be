"""A DeiT-S on ImageNet-1k in 100 epochs whose MLPs start with a mean.

Paper: Mimetic Initialization of MLPs, figure 3.
Command:
    python main.py --config=configs/imagenet_mlp.py:b=0.5 --config.data.dir=DIR \
        --workdir=runs/imagenet_mlp
Differs from the paper: b isn't stated there; half a standard deviation of the kernel is our choice,
    and so is the value of the constant bias. A learnable b · sum(x), the paper's other control,
    is the arm learned_sum; norm_matched is ours. A batch is mixed with one λ, where DeiT draws one
    for each process. One seed, as published; more may join by --config.seeds.
"""

from ml_collections import ConfigDict

from configs import arms, recipes
from configs.default import arguments


def get_config(text: str = "") -> ConfigDict:
    """Arguments: b (in standard deviations of the first kernel), init.

    `init` is "all" for the comparison of default, norm_matched, constant_bias and mean_shift, or
    one arm: one of these, per_input (a mean for each input), mimetic (attention alone),
    mimetic_mean_shift (both).
    """
    args = arguments(text, b=0.5, init="all")
    config = recipes.deit("S")
    config.name = "imagenet_mlp"
    config.epochs = 100.0
    config.arms = arms.chosen(args.init, *arms.mlp(args.b, config.model.width, config.model.base))
    return config
