"""Initial weights that released PyTorch code draws, with the noise that it drew them from.

`make.py` runs `released`, in an environment with `pip install torch==2.13.0 torchvision==0.28.0
huggingface_hub safetensors pyyaml scipy`. MIMETIC_ORIGINALS names a folder with a checkout of
github.com/osiriszjq/structured_initialization at 2623dcc, whose `pytorch-image-models-1.0.22` is
imported.
"""

import importlib
import os
import pathlib
import sys
from typing import Any
from unittest import mock

import numpy as np

from tests.golden.originals import Arrays

SIZES = {"img_size": 16, "patch_size": 4, "embed_dim": 20, "num_heads": 4, "depth": 1}
FAMILIES = ("default", "mimetic", "impulse", "impulse3_2_1")


def released() -> Arrays:
    """One ViT layer per family of `post_init_weights`.

    A ViT with 4x4 patches, D = 20 and H = 4 is built with `weight_init=skip`, as in the released
    commands, and rewritten by each family in float64, so that only formulas can differ. Stored, in
    PyTorch's layouts: "before", the attention layer and the position table; and per family every
    parameter that it changed ("default" changes none). "impulse3_2_1" scales positions by 3 and
    query and key to norm 2, where plain "impulse" has 18 and 7.

    The noise: "trunc_normal" has that of impulse's logits; the uniform noise is
    np.random.RandomState(0).uniform on ±√(3/D), first [H, D, D] for query and key (mimetic), then
    [D, D] for value and projection.
    """
    import torch

    torch.set_default_dtype(torch.float64)
    vits = _import("structured_initialization/pytorch-image-models-1.0.22", VITS)
    torch.manual_seed(0)
    model = vits.VisionTransformer(**SIZES, num_classes=3, mlp_ratio=1.0, weight_init="skip")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    arrays = {f"before/{name}": before[f"{ATTENTION}{name}"].numpy() for name in LEAVES}
    arrays["before/pos_embed"] = before["pos_embed"].numpy()
    drawn: list[np.ndarray] = []

    def trunc_normal(tensor: Any, **options: float) -> None:
        original(tensor, **options)
        drawn.append(tensor.numpy().copy())

    original = vits.trunc_normal_
    for family in FAMILIES:
        model.load_state_dict(before)
        torch.manual_seed(1)
        np.random.seed(0)
        with mock.patch.object(vits, "trunc_normal_", trunc_normal):
            model.post_init_weights(family)
        after = model.state_dict()
        for name in before:
            if not torch.equal(before[name], after[name]):
                arrays[f"{family}/{name.removeprefix(ATTENTION)}"] = after[name].numpy().copy()
    arrays["trunc_normal"] = drawn[0]
    assert all(np.array_equal(noise, drawn[0]) for noise in drawn)
    torch.set_default_dtype(torch.float32)
    return {
        name: array.astype(np.float32) if array.dtype == np.float64 else array
        for name, array in arrays.items()
    }


VITS = "timm.models.vision_transformer"
ATTENTION = "blocks.0.attn."
LEAVES = ("qkv.weight", "qkv.bias", "proj.weight", "proj.bias")


def _import(checkout: str, module: str) -> Any:
    """A module of a checkout, even where another version of its package is installed."""
    folder = pathlib.Path(os.environ["MIMETIC_ORIGINALS"]) / checkout
    with mock.patch.object(sys, "path", [str(folder), *sys.path]):
        return importlib.import_module(module)
