"""ConvMixers on CIFAR-10 whose depthwise filters are trained, or frozen as they start.

Paper: Structured Initialization for Vision Transformers, table 7 (appendix H).
Command:
    python main.py --config=configs/convmixer_cifar.py:width=256,filter_size=3 \
        --config.data.dir=DIR --config.model.dtype=bfloat16 --workdir=runs/convmixer_cifar_256_3
Differs from the paper: it names kentaroy47/vision-transformers-cifar10 for the training and states
    neither rate nor epochs: these are the program's for its ConvMixer, 1e-4 and 400. The ConvMixer
    of the authors' own program trains for 200 epochs at 1e-3 (epochs=200,learning_rate=0.001).
    Frozen are filters and their biases, as in the released code, and the filters have its earlier
    amplitudes: the same energy at every size. norm_matched, frozen normal noise, is ours, and so
    are the filters drawn from covariances, which are trained.
"""

from typing import Any

from ml_collections import ConfigDict

from configs import arms, recipes
from configs.default import arguments, model
from mimetic_jax.schemes import ConvFilters, NormMatched, Scheme


def get_config(text: str = "") -> ConfigDict:
    """Arguments: width (256, 512), filter_size (3, 5, 8), epochs, learning_rate, init.

    `init` is "all" for the comparison of default (trained filters) and the frozen norm_matched,
    random, impulse, box and norm_matched_box, or one arm of these.
    """
    args = arguments(
        text,
        width=256,
        filter_size=5,
        epochs=400.0,
        learning_rate=1e-4,
        init="all",
    )
    config = recipes.kentaroy("cifar10", args.epochs, args.learning_rate)
    config.name = f"convmixer_cifar_{args.width}_{args.filter_size}"
    config.model = model("convmixer", width=args.width, filter_size=args.filter_size)
    compared: arms.Arms = {
        "default": {},
        "norm_matched": _frozen(NormMatched(ConvFilters("impulse"))),
        "random": _frozen(ConvFilters("random")),
        "impulse": _frozen(ConvFilters("impulse")),
        "box": _frozen(ConvFilters("box")),
    }
    compared["norm_matched_box"] = arms.noise(compared["box"])
    config.arms = arms.chosen(args.init, compared)
    return config


def _frozen(scheme: Scheme) -> dict[str, Any]:
    """An arm that trains neither the filters nor their biases."""
    return {"scheme": (scheme,), "optimizer": {"rate_rules": ((r"depthwise/", 0.0),)}}
