"""A Swin-T for the 32×32 pixels of CIFAR-10.

Paper: Structured Initialization for Vision Transformers, table 3 (Swin-T).
Command:
    python main.py --config=configs/swin_cifar.py --config.data.dir=DIR \
        --workdir=runs/swin_cifar
Differs from the paper: it trains with kentaroy47/vision-transformers-cifar10, whose model and
    recipe these are; 400 epochs are of that program's README. Only the code for ViTs was released:
    that the impulse is added to the drawn biases, one offset per block since the heads of a block
    share them, and its `strength` (2, 3 and 5 are worth a try) are ours, and the mimetic arm is
    that of the code for ViTs. norm_matched, the control of impulse, is ours. An epoch is 97 whole
    batches; the program's 98th has the 336 images that are left.
"""

from ml_collections import ConfigDict

from configs import arms, recipes
from configs.default import arguments, model


def get_config(text: str = "") -> ConfigDict:
    """Arguments: epochs, strength, init.

    `strength` is what the bias of the impulse gains. `init` is "all" for the comparison of every
    arm, or one: default, norm_matched, norm_matched_mimetic, mimetic, impulse.
    """
    args = arguments(text, epochs=400.0, strength=5.0, init="all")
    config = recipes.kentaroy("cifar10", args.epochs, learning_rate=1e-4)
    config.name = "swin_cifar"
    config.model = model(
        "swin",
        form="cifar",
        width=96,
        depths=(2, 2, 6, 2),
        downscaling=(2, 2, 2, 1),
        window=4,
    )
    config.arms = arms.chosen(args.init, arms.windows(args.strength))
    return config
