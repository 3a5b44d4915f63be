"""What no paper prints: our own open questions.

How much of a gain is a weak default, and what small vision transformers gain. Tables that are
finished are in results/closed/.
"""

import dataclasses

from configs import cifar10_vit, convnext_cifar, neighbors_vit, text
from papers.record import OWN_PARTS, Figure, Ladder, Row, Source, Table

_SIZE = {"width": 96, "depth": 6, "heads": 3}
_BASES = {"timm": "timm's", "torch": "PyTorch's", "flax": "Flax's"}
_ON_SINCOS = ("sincos", "norm_matched_mimetic", "permuted_mimetic", "mimetic")


def _paper(base: str) -> Row:
    """Make the row of the smallest ViT of the self-attention paper's table 1, at its recipe."""
    return Row(
        f"{_BASES[base]} initialization",
        {**_SIZE, "patch": 2},
        arms=("default", *_ON_SINCOS) if base == "timm" else ("sincos", "mimetic"),
        fields={} if base == "timm" else {"model.base": base},
        source=Source("attention/table1", "96/6/3") if base == "timm" else None,
    )


_CONTROLS = ("norm_matched_", "permuted_", "")


_AT_OWN_RATES = (
    *("sincos", "impulse", "whitened", "zero_mlp"),
    *(f"{control}whitened_zero_mlp" for control in _CONTROLS),
    *(f"whitened_{attention}_zero_mlp" for attention in ("mimetic", "impulse")),
    "whitened_zero_mlp_noise",
)
"""Which parts of the recommended start gain, and whether more than their controls; mimetic and
impulse attention on top."""
_SHOWN = (
    "sincos",
    *(f"{control}whitened_zero_mlp" for control in _CONTROLS),
    "whitened_mimetic_zero_mlp",
)
"""What is recommended, with its controls, and with mimetic attention on top."""

_TWO_LAYERS = {"width": 48, "depth": 2, "heads": 2, "patch": 4, "epochs": 20, "randaugment": ""}
_FEW = {
    "model.dtype": "float32",
    "data.subset": 0.1,
    "data.augment.erase": 0.0,
    "batch": 64,
    "optimizer.learning_rate": 1e-3,
    "eval.every": 312,
    "eval.batch": 500,
    "checkpoint_every": 156,
    "log_every": 312,
    "max_dispatch": 26,
    "optimizer.schedule": "cosine",
    "optimizer.warmup": 156,
}
"""5,000 images of CIFAR-10, crop and flip."""
_RATES_OF_FEW = Ladder((1.5e-3, 3e-3, 6e-3))
_FEW_IMAGES = Row(
    "ViT, 20 epochs",
    _TWO_LAYERS,
    arms=_AT_OWN_RATES,
    fields={**_FEW, "model.pool": "mean", "model.base": "flax"},
    config=cifar10_vit,
    ladder=_RATES_OF_FEW,
    seeds=tuple(range(5)),
)
_LONG_IMAGES = dataclasses.replace(
    _FEW_IMAGES,
    label="ViT, 100 epochs",
    arguments={**_TWO_LAYERS, "epochs": 100},
    arms=_SHOWN,
    fields={**_FEW_IMAGES.fields, "eval.every": 1560},
    seeds=(0, 1, 2),
    source=Source("questions/small_images", _FEW_IMAGES.label, rates_alone=True),
)
_OF_TOKENS = ("sincos", "whitened", "whitened_zero_mlp", "whitened_zero_mlp_alone")
_DRAWN = tuple(f"token_{name}" for name in _OF_TOKENS[1:])
_WITH_NOISE = (*_OF_TOKENS[1:], *_DRAWN[1:])


def _class_token(std: float, clip: float) -> Row:
    """Make the row of a ViT whose class token is read, of this size before its position is added.

    A class token that a scheme draws at the size of the patches is the same at both sizes.
    """
    drawn = ("token", *_DRAWN) if std else ()
    arms = [*_OF_TOKENS, *drawn]
    return dataclasses.replace(
        _FEW_IMAGES,
        label=f"ViT, class token of σ {std:g}, {f'clipped at {clip:g}' if clip else 'not clipped'}"
        ", 6 epochs",
        arguments={**_TWO_LAYERS, "epochs": 6},
        arms=(*arms, *(f"norm_matched_{name}" for name in _WITH_NOISE if name in arms)),
        fields={
            **_FEW,
            **{"model.pool": "token", "model.token_std": std, "model.base": "flax"},
            **{"optimizer.warmup": 47, "optimizer.clip": clip, "eval.every": 0},
        },
    )


_NEIGHBORS = Row(
    "8 epochs",
    {"epochs": 8},
    arms=(
        *("default", "frame", "impulse", "scattered_impulse"),
        *("sincos", "mimetic", "norm_matched_impulse", "norm_matched_mimetic"),
    ),
    pairs=tuple(("impulse", other) for other in ("default", "scattered_impulse", "frame")),
)
"""What the question needs comes first."""
_NEIGHBORS_LONG = dataclasses.replace(
    _NEIGHBORS,
    label="40 epochs",
    arguments={"epochs": 40},
    fields={"eval.every": 780},
    source=Source("questions/impulse", _NEIGHBORS.label, rates_alone=True),
    doubt="each arm has the rate that its trials of 8 epochs chose",
)

_COUNTS = Row(
    "the output layer is the embedding",
    {"level": "word", "width": 64, "depth": 2, "length": 64, "steps": 400},
    arms=(
        *("embedding_std_25", "permuted_counts_std_25", "counts_half"),
        *("counts_std_25", "log_p", "default"),
    ),
    fields={"data.name": "ptb_word", "eval.every": 0},
    pairs=(("counts_std_25", "embedding_std_25"), ("counts_half", "counts_std_25")),
    ladder=Ladder((4e-3, 8e-3)),
)
"""What closed/questions/first_scale.md lacks comes first."""

_CHANNEL = dataclasses.replace(
    _COUNTS,
    label="an output layer of its own without a bias",
    arms=(
        *("default", "channel", "channel_shuffled_log_p", "channel_log_p"),
        *("embedding_std_25", "channel_counts_log_p"),
        "channel_counts_log_p_half",
    ),
    pairs=(
        ("channel_log_p", "channel_shuffled_log_p"),
        ("channel_log_p", "channel"),
        ("channel_counts_log_p", "embedding_std_25"),
        ("channel_counts_log_p_half", "channel_counts_log_p"),
    ),
    fields={
        **_COUNTS.fields,
        **{"model.tied": False, "model.output_bias": False, "model.bias_free": True},
    },
)

TABLES = {
    "counts": Table.of(
        "embeddings from counts alone, beside fixed-offset heads, and with rows permuted, with "
        "tuned learning rates: GPT 64/2 with rotary positions, RMSNorm, SwiGLU and QK norm, "
        "word-level Penn Treebank (10,000 words), 400 steps of 16 x 64 tokens",
        text,
        _COUNTS,
        _CHANNEL,
        controls=(),
        score="test perplexity",
    ),
    "impulse": Table.of(
        "whether it helps that each head attends to a neighbor, with tuned learning rates: ViT "
        "96/3/3, 64 tokens, mean pooling, PyTorch's layers, each seed its own 5,000 CIFAR-10 "
        "images, crop and flip",
        neighbors_vit,
        _NEIGHBORS,
        _NEIGHBORS_LONG,
        controls=(),
        seeds=tuple(range(5)),
        ladder=OWN_PARTS,
    ),
    "small_images": Table.of(
        "a small vision transformer on 5,000 CIFAR-10 images, crop and flip, with tuned learning "
        "rates: width 48, depth 2, 64 tokens, mean pooling unless a row has a class token, Flax's "
        "initialization; and a ConvNet",
        cifar10_vit,
        _FEW_IMAGES,
        Row(
            "ConvNeXt, 6% more parameters, 20 epochs",
            {"epochs": 20},
            arms=("default",),
            fields={
                **_FEW,
                "data.augment.randaugment": "",
                **{"model.width": 48, "model.depth": 3, "model.patch": 4},
            },
            config=convnext_cifar,
        ),
        _LONG_IMAGES,
        *(_class_token(std, clip) for clip in (0.0, 1.0) for std in (0.02, 0.0)),
        controls=(),
        seeds=tuple(range(5)),
        ladder=_RATES_OF_FEW,
    ),
    "paper_bases": Table(
        "row 1 of the self-attention paper's table 1 by the default: 96/6/3, its recipe, CIFAR-10",
        cifar10_vit,
        tuple(map(_paper, _BASES)),
        controls=(),
        fields={"model.dtype": "bfloat16"},
    ),
}

FIGURES = {
    "training": Figure(
        "a small vision transformer and a small language model over their training runs",
        "curves",
        {
            "labels": {
                "sincos": "default",
                "norm_matched_whitened_zero_mlp": "norm-matched control",
                "whitened_zero_mlp": "whitened patches and zeros",
                "log_p": "unigram bias alone",
                "counts_std_25": "unigram bias and embeddings from counts",
            }
        },
        rows=(
            dataclasses.replace(
                _FEW_IMAGES,
                label="ViT of width 48, 5,000 CIFAR-10 images",
                arms=("sincos", "norm_matched_whitened_zero_mlp", "whitened_zero_mlp"),
                source=Source("questions/small_images", _FEW_IMAGES.label),
            ),
            Row(
                "GPT of width 64, word-level Penn Treebank",
                {"level": "word", "width": 64, "depth": 2, "length": 64, "steps": 400},
                arms=("default", "log_p", "counts_std_25"),
                fields={"data.name": "ptb_word", "eval.every": 50, "optimizer.learning_rate": 8e-3},
                config=text,
                score="test perplexity",
            ),
        ),
        doubt="the rates are those that the arms chose in the tables",
    ),
}
