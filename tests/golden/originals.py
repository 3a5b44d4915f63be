"""Golden arrays that other programs compute: PyTorch, transformers and Flax's own attention.

`make.py` runs them. `torch_adamw`, `resample` and `hugging_face_vit` need an environment of their
own, with `pip install torch==2.13.0 transformers==5.23.0 scipy`; `vit` needs this project's. With
these versions, on an x86 CPU, each reproduces its file bit for bit. What is of
kentaroy47/vision-transformers-cifar10 needs PyTorch, Pillow 13.0.0 and its clone at commit 5bb83d3
in the folder MIMETIC_ORIGINALS.
"""

import importlib.util
import os
import pathlib
import random
import tempfile
import warnings
from typing import Any
from unittest import mock

import numpy as np

Arrays = dict[str, np.ndarray]


def torch_adamw() -> Arrays:
    """Six steps of torch.optim.AdamW in float64, with a rate per step and clip_grad_norm_.

    The kernel has weight decay .05, bias and position table have none. Gradients are normal draws
    that halve with each step, so that clipping at norm 1 changes three of six. The parameters after
    each step are stored per ε, clip norm (0: no clipping) and name.
    """
    import torch

    shapes = {"kernel": (6, 5), "bias": (5,), "pos_embed": (3, 6)}
    rates, betas = [1e-3, 5e-3, 1e-2, 1e-2, 4e-3, 1e-3], (0.9, 0.999)
    rng = np.random.default_rng(0)
    initial = {name: 0.5 * rng.normal(size=shape) for name, shape in shapes.items()}
    halving = 0.5 ** np.arange(6)
    gradients = {
        name: np.stack([rng.normal(size=shape) * scale for scale in halving])
        for name, shape in shapes.items()
    }
    fixed = {"rates": rates, "betas": betas, "weight_decay": 0.05}
    arrays = {name: np.array(value) for name, value in fixed.items()}
    for name in shapes:
        arrays |= {f"initial_{name}": initial[name], f"gradients_{name}": gradients[name]}
    for eps in ("1e-8", "1e-3"):
        for clip in (0, 1):
            params = {
                name: torch.tensor(array, requires_grad=True) for name, array in initial.items()
            }
            groups = [
                {"params": [params["kernel"]], "weight_decay": 0.05},
                {"params": [params["bias"], params["pos_embed"]], "weight_decay": 0.0},
            ]
            optimizer = torch.optim.AdamW(groups, betas=betas, eps=float(eps))
            after: dict[str, list[np.ndarray]] = {name: [] for name in shapes}
            for step, rate in enumerate(rates):
                for group in optimizer.param_groups:
                    group["lr"] = rate
                for name, param in params.items():
                    param.grad = torch.tensor(gradients[name][step])
                if clip:
                    torch.nn.utils.clip_grad_norm_(params.values(), clip)
                optimizer.step()
                for name, param in params.items():
                    after[name].append(param.detach().numpy().copy())
            arrays |= {f"eps{eps}_clip{clip}_{name}": np.stack(after[name]) for name in shapes}
    return arrays


def resample() -> Arrays:
    """Bicubic torch.nn.functional.interpolate of position tables [1, h·w, 8] of white noise.

    Per case the grids (from, to), and the result with `antialias` and without ("plain").
    """
    import torch

    rng = np.random.default_rng(0)
    grids = {"up": ((7, 7), (8, 10)), "down": ((9, 8), (4, 5)), "finer": ((14, 14), (16, 16))}
    arrays = {}
    for case, (grid, target) in grids.items():
        table = rng.normal(size=(1, grid[0] * grid[1], 8)).astype(np.float32)
        image = torch.from_numpy(table).reshape(1, *grid, 8).permute(0, 3, 1, 2)
        arrays[f"{case}/table"] = table
        for name, antialias in (("antialias", True), ("plain", False)):
            new = torch.nn.functional.interpolate(
                image, size=target, mode="bicubic", align_corners=False, antialias=antialias
            )
            arrays[f"{case}/{name}"] = new.permute(0, 2, 3, 1).reshape(1, -1, 8).numpy()
        arrays[f"{case}/grids"] = np.array([grid, target])
    return arrays


def hugging_face_vit() -> Arrays:
    """A ViTForImageClassification as `save_pretrained` writes it, three images and their logits.

    Width 24, 2 layers, 3 heads, 16x16 images, patches of 4, 5 classes, ε 1e-12. All are normal:
    kernels of standard deviation 1.5/√fan-in, biases .3, LayerNorm scales 1 ± .3, class token and
    positions 1, drawn in the order of `named_parameters()`, then the images.
    """
    import torch
    import transformers
    from safetensors.numpy import load_file

    config = transformers.ViTConfig(
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=48,
        image_size=16,
        patch_size=4,
        num_labels=5,
    )
    model = transformers.ViTForImageClassification(config).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for name, param in model.named_parameters():
            drawn = torch.randn(param.shape)
            if param.ndim == 1:
                drawn = 0.3 * drawn + float(name.endswith("weight"))
            elif name.endswith("weight"):
                drawn = drawn / param[0].numel() ** 0.5 * 1.5
            param.copy_(drawn)
        images = torch.randn(3, 3, 16, 16)
        logits = model(images).logits.numpy()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tensors = load_file(f"{folder}/model.safetensors")
    return tensors | {"images": images.permute(0, 2, 3, 1).numpy(), "logits": logits}


VIT: dict[str, Any] = {
    **{"num_classes": 5, "width": 12, "depth": 2, "heads": 2, "patch": 4, "token_std": 1e-6},
    **{"dropout": 0.2, "drop_path": 0.5},
}


def vit() -> Arrays:
    """Parameters and logits of our ViT with Flax's own attention layer in place of ours.

    timm's initialization with a class token and PyTorch's with mean pooling; logits with and
    without dropout.
    """
    import flax.linen as nn
    import jax
    from flax import traverse_util

    from mimetic_jax.models import vit as module

    def stock(qkv_bias: bool, fused_qkv: bool, **options: Any) -> nn.Module:
        return nn.MultiHeadDotProductAttention(**options)

    images = jax.random.normal(jax.random.key(1), (2, 8, 8, 3))
    arrays = {}
    for base, pool in (("timm", "token"), ("torch", "mean")):
        model = module.ViT(**VIT, base=base, pool=pool)
        with mock.patch.object(module, "Attention", stock):
            logits, variables = model.init_with_output(jax.random.key(0), images)
            rngs = {"dropout": jax.random.key(2)}
            logits_train = model.apply(variables, images, train=True, rngs=rngs)
        flat = traverse_util.flatten_dict(variables, sep="/")
        arrays |= {f"{base}/{name}": np.asarray(array) for name, array in flat.items()}
        arrays[f"{base}/logits"] = np.asarray(logits)
        arrays[f"{base}/logits_train"] = np.asarray(logits_train)
    return arrays


def gpsa() -> Arrays:
    """ConViT's gated positional self-attention on a 4×4 grid, with 4 and with 5 heads.

    A clone of facebookresearch/convit (0a9340a) must lie in the folder MIMETIC_ORIGINALS; of what
    it imports the layer needs torch and timm's `trunc_normal_` alone. Kernels are normal draws,
    `gpsa_weights`; positions and gate stay as ConViT starts them. Per number of heads: the output
    [2, 16, 20], and the weights of the positions [H, 3].
    """
    import sys

    import torch

    sys.path.insert(0, os.path.join(os.environ["MIMETIC_ORIGINALS"], "convit"))
    from convit import GPSA

    arrays = {}
    for heads in (4, 5):
        layer = GPSA(20, num_heads=heads, locality_strength=1.0, use_local_init=True)
        drawn = gpsa_weights()
        with torch.no_grad():
            layer.qk.weight.copy_(torch.tensor(np.concatenate([drawn["query"], drawn["key"]], 1).T))
            layer.proj.weight.copy_(torch.tensor(drawn["out"].T))
            layer.pos_proj.weight[4:] = 0  # heads beyond 2×2 start from a draw
            output = layer(torch.tensor(drawn["x"]))
        arrays[f"output_{heads}"] = output.numpy()
        arrays[f"position_{heads}"] = layer.pos_proj.weight.detach().numpy()
    return arrays


def gpsa_weights() -> Arrays:
    """Kernels [20, 20] and an input [2, 16, 20] for `gpsa`."""
    rng = np.random.default_rng(0)
    drawn = {name: rng.normal(size=(20, 20)) for name in ("query", "key", "out")}
    drawn["x"] = rng.normal(size=(2, 16, 20))
    return {name: (array / 2).astype(np.float32) for name, array in drawn.items()}


def cloned(path: str) -> Any:
    """A file of a clone in the folder MIMETIC_ORIGINALS, imported by itself."""
    file = pathlib.Path(os.environ["MIMETIC_ORIGINALS"], path)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def kentaroy_policy() -> Arrays:
    """Each of the 16 operations at magnitudes 5 and 14 on an image [12, 20, 3], uint8.

    Named by magnitude, number in the original's list and sign, such as "14/3-". The image has
    bright and dark halves and noise. Cutouts are of ten seeds of NumPy's generator, at magnitude 5,
    and named by the seed.
    """
    from PIL import Image

    original = cloned("vision-transformers-cifar10/randomaug.py")
    rng = np.random.default_rng(0)
    ramp = np.linspace(20, 220, 20)[:, None] + np.linspace(-15, 15, 12)[:, None, None]
    image = np.clip(ramp + rng.normal(scale=25, size=(12, 20, 3)), 0, 255).astype(np.uint8)
    arrays = {"image": image}

    def applied(operation: Any, value: float) -> np.ndarray:
        return np.asarray(operation(Image.fromarray(image), value))

    for magnitude in (5, 14):
        for number, (operation, least, most) in enumerate(original.augment_list()):
            value = float(magnitude) / 30 * float(most - least) + least
            if operation is original.CutoutAbs:
                for seed in range(10) if magnitude == 5 else ():
                    np.random.seed(seed)
                    arrays[f"cutout/{seed}"] = applied(operation, value)
                continue
            # The original has a minus where a uniform number is above 1/2.
            signs = {"+": 0.0, "-": 1.0}
            for sign, uniform in signs.items():
                with mock.patch.object(random, "random", lambda uniform=uniform: uniform):
                    arrays[f"{magnitude}/{number}{sign}"] = applied(operation, value)
            plus, minus = (f"{magnitude}/{number}{sign}" for sign in signs)
            if np.array_equal(arrays[plus], arrays[minus]):
                del arrays[minus]
    return arrays


def kentaroy_rates() -> Arrays:
    """The rate of each epoch as train_cifar10.py steps CosineAnnealingLR, per number of epochs.

    From 1e-4, over 400, 10 and 3 epochs; the scheduler is stepped with epoch − 1 after each epoch.
    """
    import torch

    arrays = {}
    for epochs in (400, 10, 3):
        optimizer = torch.optim.Adam([torch.zeros(1, requires_grad=True)], lr=1e-4)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
        rates = []
        for epoch in range(epochs):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # its argument is deprecated
                scheduler.step(epoch - 1)
        arrays[f"epochs_{epochs}"] = np.array(rates)
    return arrays
