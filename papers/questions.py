"""What no paper prints: our own open questions.

What embeddings from counts gain; how much of a gain is a weak default, how it goes with the length
of a training, and how long it lasts that heads start by looking at a distance. Tables that are
finished are in results/closed/.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any

from configs import cifar10_vit, convnext_cifar, rotary, text, tiny_imagenet_vit
from configs.arms import Names
from papers.record import Arguments, Fields, Figure, Ladder, Row, Table

_SIZE = {"width": 96, "depth": 6, "heads": 3}


def _images(label: str, arguments: Arguments, *arms: str) -> Row:
    """A ViT of width 96 on a part of CIFAR-10."""
    return Row(label, {**_SIZE, "randaugment": "", **arguments}, arms=arms)


_RIVALS = ("default", "shuffled", "sincos", "impulse", "norm_matched_impulse", "permuted_mimetic")
"""After 8 epochs."""
_EPOCHS = (0.5, 1, 2, 4, 8)
_LENGTHS = tuple(
    _images(f"{e} epochs", {"patch": 4, "epochs": e}, "mimetic", *(_RIVALS if e == 8 else ()))
    for e in _EPOCHS
)

_CROPPED = {
    "model.dtype": "float32",
    "data.subset": 0.2,
    "data.augment.erase": 0.0,
    "batch": 128,
    "optimizer.learning_rate": 1e-3,
    "eval.every": 0,
    "eval.batch": 500,
    "checkpoint_every": 156,
    "log_every": 78,
    "max_dispatch": 26,
}
"""10,000 images of CIFAR-10, crop and flip."""
_RECIPE = {**_CROPPED, "model.pool": "mean"}
_IMAGES = "10,000 images of CIFAR-10, crop and flip, width 96, depth 6, mean pooling"


def _on_images(title: str, rows: Iterable[Row], **options: Any) -> Table:
    options = {"controls": ("norm_matched_mimetic",), **options}
    return Table(title, cifar10_vit, tuple(rows), fields=_RECIPE, **options)


def _on_text(title: str, *rows: Row, **options: Any) -> Table:
    options = {"score": "test bits/byte", "controls": (), **options}
    return Table.of(title, text, *rows, **options)


_BASES = {"timm": "timm's", "torch": "PyTorch's", "flax": "Flax's"}
_ON_SINCOS = ("sincos", "norm_matched_mimetic", "permuted_mimetic", "mimetic")


def _base(base: str) -> Row:
    """A default of the images' model, with sin-cos positions for all."""
    arguments = {"patch": 4, "epochs": 2}
    row = _images(f"{_BASES[base]} initialization", arguments, *_ON_SINCOS)
    return dataclasses.replace(row, fields={"model.base": base})


def _paper(base: str) -> Row:
    """The smallest ViT of the self-attention paper's table 1, at its recipe."""
    return Row(
        f"{_BASES[base]} initialization",
        {**_SIZE, "patch": 2},
        arms=("default", *_ON_SINCOS) if base == "timm" else ("sincos", "mimetic"),
        fields={} if base == "timm" else {"model.base": base},
        runs_of=("attention/table1", "96/6/3") if base == "timm" else None,
    )


_TODAY = "GPT 64/2 with rotary positions, RMSNorm, SwiGLU and QK norm"
_GPT_64 = {"width": 64, "depth": 2, "length": 64, "steps": 400}
_ONE_TRIAL = Ladder((4e-3, 8e-3))
_LOG_P = ("default", "log_p")
_CONTROLS = ("norm_matched_", "permuted_", "")
_SIZES = (*_LOG_P, "counts", "counts_std_25", *(f"{c}counts_std_100" for c in _CONTROLS))
"""Embeddings of σ .0625, the model's own, .25 and 1."""
_TIED = ("permuted_counts_std_25", "counts_std_25")
"""At the best of these where the output layer is the embedding."""


def _treebank(label: str, arms: Names, fields: Fields, steps: int = 400) -> Row:
    """The Penn Treebank by words."""
    fields = {"data.name": "ptb_word", "eval.every": 0, **fields}
    arguments = {"level": "word", **_GPT_64, "steps": steps}
    return Row(label, arguments, arms=arms, fields=fields, score="test perplexity")


def _wikitext(steps: int) -> Row:
    """WikiText-2 by byte pairs; its validation and test texts end at 400,000 characters."""
    arguments = {"level": "bpe", "vocab": 4096, **_GPT_64, "steps": steps}
    label = f"WikiText-2 by byte pairs (4,096), {steps:,} steps"
    return Row(label, arguments, arms=(*_LOG_P, "counts", *_TIED))


def _large(steps: int, first: tuple[float, ...], *arms: str) -> Row:
    """A language model of today at its own rate, which one trial seed chose."""
    ladder = Ladder(first)
    arguments = {"text": "source", "steps": steps}
    return Row(f"{steps:,} steps", arguments, arms=("default", *arms), ladder=ladder)


_HALF = ("half", "norm_matched_half")
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
    **_CROPPED,
    "data.subset": 0.1,
    "batch": 64,
    "optimizer.schedule": "cosine",
    "optimizer.warmup": 156,
    "log_every": 312,
    "eval.every": 312,
}
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
    rates_of=("questions/small_images", _FEW_IMAGES.label),
)
_OF_TOKENS = ("sincos", "whitened", "whitened_zero_mlp", "whitened_zero_mlp_alone")
_DRAWN = tuple(f"token_{name}" for name in _OF_TOKENS[1:])
_WITH_NOISE = (*_OF_TOKENS[1:], *_DRAWN[1:])


def _class_token(std: float, clip: float) -> Row:
    """The ViT where a class token is read, of this size before its position is added.

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


TABLES = {
    "first_scale": _on_text(
        f"the scale of an embedding from counts, at own rates: {_TODAY}, Penn Treebank by words "
        "(10,000), 400 steps of 16 x 64 tokens",
        _treebank("an output layer of its own", _SIZES, {"model.tied": False}),
        _treebank("the output layer is the embedding", _SIZES, {"model.tied": True}),
        ladder=_ONE_TRIAL,
    ),
    "first_length": _on_text(
        f"embeddings from counts over the length of a training, at own rates: {_TODAY}, 16 x 64 "
        "tokens a step",
        _wikitext(400),
        _wikitext(1600),
        _treebank(
            "Penn Treebank by words (10,000), its first 44 %, each token once",
            (*_LOG_P, "counts_std_25"),
            {"data.subset": 0.442},
        ),
        fields={"eval.every": 0},
        ladder=_ONE_TRIAL,
    ),
    "first_often": _on_text(
        f"embeddings from counts of a small text that is read often, at one rate: {_TODAY}, 16 x "
        "64 tokens a step",
        _treebank(
            "Penn Treebank by words (10,000), its first 22 %, eight times",
            ("default", "counts_std_25"),
            {"data.subset": 0.221, "eval.every": 200, "optimizer.learning_rate": 8e-3},
            steps=1600,
        ),
        doubt="one rate, the best of 1e-3, 2e-3, 4e-3 and 8e-3 for the default and of 4e-3 and "
        "8e-3 for counts, by one trial seed; no dropout",
    ),
    "small_images": Table.of(
        "a small vision transformer on 5,000 images of CIFAR-10, crop and flip, at own rates: "
        "width 48, depth 2, 64 tokens, mean pooling unless a row has a class token, Flax's "
        "initialization; and a ConvNet",
        cifar10_vit,
        _FEW_IMAGES,
        Row(
            "ConvNeXt of as many parameters, 20 epochs",
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
        dataclasses.replace(
            _FEW_IMAGES,
            label="ViT, Tiny ImageNet, 20 images of each class at 64 pixels, 20 epochs",
            arguments={**_TWO_LAYERS, "patch": 8},
            arms=_SHOWN,
            fields={**_FEW_IMAGES.fields, "data.subset": 1.0},
            config=tiny_imagenet_vit,
        ),
        *(_class_token(std, clip) for clip in (0.0, 1.0) for std in (0.02, 0.0)),
        controls=(),
        seeds=tuple(range(5)),
        ladder=_RATES_OF_FEW,
    ),
    "bases": _on_images(
        f"three defaults with sin-cos positions, at own rates: {_IMAGES}, 64 tokens, 2 epochs",
        map(_base, _BASES),
        controls=(),
        seeds=tuple(range(5)),
        ladder=Ladder((5e-4, 1e-3, 2e-3), trials=tuple(range(100, 105))),
    ),
    "paper_bases": Table(
        "row 1 of the self-attention paper's table 1 by the default: 96/6/3, its recipe, CIFAR-10",
        cifar10_vit,
        tuple(map(_paper, _BASES)),
        controls=(),
        fields={"model.dtype": "bfloat16"},
    ),
    "length": _on_images(
        f"the gain over the length of the training: {_IMAGES}, patches of 4 pixels (64 tokens)",
        _LENGTHS,
        doubt="the runs of 8 epochs used jaxlib 0.10.2, which computes some sums wrong on CPUs; "
        "seed 0 again with 0.10.1: default 42.47, noise 51.12 and mimetic 54.68 % instead of "
        "42.48, 51.12 and 54.60; permuted_mimetic was trained on a GPU",
    ),
    "large": Table.of(
        "100 MB of Python source out of wheels by characters, GPT 384/12 with rotary positions, "
        "RMSNorm and SwiGLU, steps of 32 x 512",
        rotary,
        _large(1000, (1e-3, 2e-3, 4e-3), *_HALF, "positional", "norm_matched_positional"),
        _large(4000, (1e-3, 2e-3), *_HALF),
        score="test bits/char",
        controls=(),
    ),
}

FIGURES = {
    "training": Figure(
        "a small vision transformer and a small language model over their trainings",
        "curves",
        rows=(
            dataclasses.replace(
                _FEW_IMAGES,
                label="5,000 images of CIFAR-10",
                arms=("sincos", "norm_matched_whitened_zero_mlp", "whitened_zero_mlp"),
                runs_of=("questions/small_images", _FEW_IMAGES.label),
            ),
            dataclasses.replace(
                _treebank(
                    "Penn Treebank by words",
                    (*_LOG_P, "counts_std_25"),
                    {"eval.every": 50, "optimizer.learning_rate": 8e-3},
                ),
                config=text,
            ),
        ),
        doubt="the rates are those that the arms chose in the tables",
    ),
    "over_length": Figure(
        "accuracy over the length of a training",
        "sweep",
        {
            "label": "epochs of a training",
            "log": True,
            "panels": {"": {row.label: float(e) for row, e in zip(_LENGTHS, _EPOCHS, strict=True)}},
        },
        table="questions/length",
    ),
}
