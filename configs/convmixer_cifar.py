"""ConvMixers on CIFAR-10 whose depthwise filters are trained, or frozen as they start.

Paper: Structured Initialization for Vision Transformers, table 7 (appendix H).
Command:
    python main.py --config=configs/convmixer_cifar.py:width=256,filter_size=3 \
        --config.data.dir=DIR --config.model.dtype=bfloat16 --workdir=runs/convmixer_cifar_256_3
Hardware: 8 V100 of 32 GB, as for all of the paper's experiments.
Published, trained / random / impulse / box: width 256, filters of 3: 91.76 / 90.72 / 90.68 / 81.70;
    of 5: 92.69 / 90.87 / 90.41 / 80.57; of 8: 92.34 / 88.12 / 87.82 / 78.95. Width 512, filters
    of 3: 92.82 / 92.15 / 92.20 / 81.90; of 5: 93.90 / 92.72 / 91.91 / 81.19; of 8:
    92.96 / 90.09 / 89.61 / 80.10. "Trained" is the arm default here.
Differs from the paper: it names kentaroy47/vision-transformers-cifar10 for the training and states
    neither rate nor epochs: these are the program's for its ConvMixer, 1e-4 and 400. The ConvMixer
    of the authors' own program trains for 200 epochs at 1e-3 (epochs=200,learning_rate=0.001).
    Frozen are filters and their biases, as in the released code, and the filters have its earlier
    amplitudes: the same energy at every size. norm_matched, frozen normal noise, is ours.
"""

from typing import Any

from ml_collections import ConfigDict

from configs import arms, recipes
from configs.default import arguments, model
from mimetic_jax.schemes import ConvFilters, NormMatched, Scheme


def get_config(text: str = "") -> ConfigDict:
    """Arguments: width (256, 512), filter_size (3, 5, 8), epochs, learning_rate, init.

    `init` is "all" for the comparison of default (trained filters) and the frozen norm_matched,
    random, impulse and box, or one arm of these.
    """
    args = arguments(text, width=256, filter_size=5, epochs=400.0, learning_rate=1e-4, init="all")
    config = recipes.kentaroy("cifar10", args.epochs, args.learning_rate)
    config.name = f"convmixer_cifar_{args.width}_{args.filter_size}"
    config.model = model("convmixer", width=args.width, filter_size=args.filter_size)
    config.arms = arms.chosen(
        args.init,
        {
            "default": {},
            "norm_matched": _frozen(NormMatched(ConvFilters("impulse"))),
            "random": _frozen(ConvFilters("random")),
            "impulse": _frozen(ConvFilters("impulse")),
            "box": _frozen(ConvFilters("box")),
        },
    )
    return config


def _frozen(scheme: Scheme) -> dict[str, Any]:
    """An arm that trains neither the filters nor their biases."""
    return {"scheme": (scheme,), "optimizer": {"rate_rules": ((r"depthwise/", 0.0),)}}
