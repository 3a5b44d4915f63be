"""Mimetic Initialization of MLPs.

Asher Trockman and J. Zico Kolter. Workshop paper, ICLR 2025. arXiv 2602.07156. No code is public.

It prints no tables: what CIFAR-10 gave is in figures alone, and of ImageNet-1k two numbers are in
the text. It states no hardware.
"""

import dataclasses
from typing import Any

from configs import cifar_mlp_vit, convnext_cifar, imagenet_mlp, mlp_population
from configs.arms import MEANS, with_noise
from papers.ratios import HIDDEN, MEAN, REACH
from papers.record import BFLOAT16, OWN_PARTS, Figure, Row, Small, Source, Table

_B = "b isn't stated: half a standard deviation of the first kernel is taken"

SMALL = Small(
    fields={
        "model.dtype": "float32",
        "data.per_seed": 5_000,
        "batch": 64,
        "model.width": 48,
        "model.depth": 3,
        "model.patch": 4,
        "eval.every": 0,
        "checkpoint_every": 0,
        "log_every": 78,
    },
    says="each seed its own 5,000 training images in batches of 64, width 48, depth 3, patches of "
    "4 pixels",
    ladder=OWN_PARTS,
    keeps=(HIDDEN,),
)

_SMALL_VIT = dataclasses.replace(
    SMALL,
    arguments={"b": 1.0},
    says=f"{SMALL.says}, twice the mean in standard deviations, which are twice as wide",
    keeps=(MEAN,),
)
_SMALL_CONVNEXT = dataclasses.replace(
    _SMALL_VIT,
    fields={**SMALL.fields, "model.width": 64, "model.patch": 2},
    says=_SMALL_VIT.says.replace("48", "64").replace("of 4", "of 2"),
    keeps=(MEAN, REACH),
)

SMALL_SWEEP = Small(
    fields={**SMALL.fields, "data.per_seed": 1_000, "batch": 32, "log_every": 31},
    says="each seed its own 1,000 training images in batches of 32, width 48, depth 3, patches of "
    "4 pixels",
    keeps=(MEAN,),
    apart="b is as many standard deviations of the narrower kernel",
)
"""At one rate, since figure 4 has dozens of arms."""

SMALL_POPULATION = Small(
    {"epochs": 3},
    fields={"data.subset": 0.1},
    says="3 epochs of 5,000 training images, 234 steps",
    keeps=(HIDDEN,),
)


def _population(model: str, *arms: str) -> Row:
    """Make the row of small networks of one kind, n of each arm."""
    own = Source("mlp/populations", model)  # in figures too
    return Row(model, {"model": model.lower()}, arms=arms, config=mlp_population, source=own)


def _shifted(model: str, b: float, of: str) -> Row:
    """Make the row of small networks with the b D of a wide one."""
    return Row(
        f"{model}, b D of {of}", {"model": model.lower(), "b": b}, arms=with_noise("mean_shift")
    )


_CONFIGS = {"ConvNeXt": convnext_cifar, "ViT": cifar_mlp_vit}


def _run(model: str, epochs: int, *arms: str, **options: Any) -> Row:
    """Make the row of a training of its own, such as a point of figure 2."""
    label, config = f"{model}, {epochs} epochs", _CONFIGS[model]
    return Row(label, {"epochs": epochs}, arms=arms, config=config, fields=BFLOAT16, **options)


_BESIDE_ATTENTION = ("mimetic", "mimetic_mean_shift")
_SHIFTS = ("constant_bias", *with_noise("mean_shift", "per_input"))
_EPOCHS = (10, 20, 50)
_STRUCTURED = {
    "ConvNeXt": ("mean_shift", "conv", "conv_mean_shift"),
    "ViT": ("mean_shift", *_BESIDE_ATTENTION),
}
_SMALLS = {"ConvNeXt": _SMALL_CONVNEXT, "ViT": _SMALL_VIT}
_RUNS = tuple(
    _run(model, epochs, "default", *with_noise(*arms), small=_SMALLS[model])
    for model, arms in _STRUCTURED.items()
    for epochs in _EPOCHS
)

TABLES = {
    "runs": Table.of(
        "training runs of 10, 20 and 50 epochs on CIFAR-10, figure 2",
        convnext_cifar,
        *_RUNS,
        controls=(),
        doubt="figure 2 alone has the numbers; in the text the MLP's gain is significant after 10 "
        "to 20 epochs and tapers off at 50, of a ConvNeXt earlier than of a ViT; of a ConvNeXt "
        "both initializations together outperform either alone, of a ViT the second may add less. "
        f"Of 5 seeds. {_B}",
    ),
    "imagenet": Table.of(
        "DeiT-S on ImageNet-1k, 100 epochs",
        imagenet_mlp,
        Row(
            "DeiT-S",
            {},
            {"default": 68.4, "mean_shift": 68.8},
            arms=(*with_noise(*_BESIDE_ATTENTION), "norm_matched_mean_shift"),
            doubt="text and figure 3 have an advantage of .5; the scores differ by .4",
        ),
        controls=(),
        doubt=f"{_B}; a batch is mixed with one λ, where DeiT draws one for each process",
    ),
    "anti_correlated": Table.of(
        "first kernels anti-correlated with the second on CIFAR-10",
        cifar_mlp_vit,
        *(_run(model, 20, *with_noise("anti_correlated")) for model in ("ViT", "ConvNeXt")),
        controls=("default",),
        small=SMALL,
        doubt="a sentence of section 2 without numbers: no benefit. The paper leaves out the "
        "transpose of W2 and states neither model nor epochs",
    ),
    "populations": Table.of(
        "small networks on CIFAR-10, of which figure 1 has the default's weights",
        mlp_population,
        _population("ConvNeXt", *_SHIFTS, *with_noise("conv", "conv_mean_shift")),
        _population("ViT", *_SHIFTS, *with_noise(*_BESIDE_ATTENTION)),
        _shifted("ConvNeXt", 2.0, "the ConvNeXt-256"),
        _shifted("ViT", 3**0.5, "the ViT-192"),
        controls=("default",),
        small=SMALL_POPULATION,
        doubt="the paper looks at the weights of such networks and prints no score of theirs: the "
        "arms are ours, of as many networks as --seeds names. At half a standard deviation b D is "
        "1.2, in the networks of figure 2 it is 4.6 and 4.0, which rows 3 and 4 have. The runs "
        "used jaxlib 0.10.2, which computes some sums wrong on CPUs; seeds 0 to 31 of row 2 again "
        "with 0.10.1: mimetic to default +2.12 [+1.73, +2.51], the same interval as theirs with "
        "0.10.2; of the 96 scores of default, mimetic and its noise none differs by more than 0.01",
    ),
}

_BESIDE = {
    baseline: {**{f"{baseline}_{name}": b for name, b in MEANS.items()}, baseline: 0.0}
    for baseline in ("zero_bias", "normal", "learned_sum")
}
_BASELINES = ("default", *MEANS, "norm_matched_b_plus_50", "constant_bias")


FIGURES = {
    "figure1": Figure(
        "covariance of MLP weights over 10,000 small networks",
        "covariance",
        rows=(_population("ConvNeXt", "default"), _population("ViT", "default")),
        small=SMALL_POPULATION,
        doubt="3-4 layers, width 16-32, expansion 2; neither epochs nor the order in which weights "
        "are unrolled are stated. --seeds=0-9999 has as many networks",
    ),
    "figure2": Figure(
        "accuracy on CIFAR-10 of training runs of x epochs, of 5 seeds",
        "sweep",
        {
            "label": "epochs of a training run",
            "panels": {
                model: {row.label: epochs for row, epochs in zip(rows, _EPOCHS, strict=True)}
                for model, rows in (("ConvNeXt", _RUNS[:3]), ("ViT", _RUNS[3:]))
            },
        },
        table="mlp/runs",
        small=SMALL,
    ),
    "figure3": Figure("training curves of a DeiT-S on ImageNet-1k", "curves", table="mlp/imagenet"),
    "figure4": Figure(
        "accuracy on CIFAR-10 over the mean b, of 5 seeds",
        "sweep",
        {
            "label": "b",
            "series": {"": {"mean_shift": {**MEANS, "default": 0.0}, **_BESIDE}},
            "lines": ("norm_matched_b_plus_50", "constant_bias"),
        },
        (_run("ConvNeXt", 20, *_BASELINES, *(arm for arms in _BESIDE.values() for arm in arms)),),
        SMALL_SWEEP,
        doubt="its values of b are lost and the epochs aren't stated: these are ours. In small, b "
        "is as many standard deviations of the narrower kernel, 2.3 times as much",
    ),
}
