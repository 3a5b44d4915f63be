"""Golden arrays of the MLP-Mixer, the ConvMixer and the ConvNeXt: outputs of PyTorch's originals.

They need `pip install torch==2.13.0 torchvision==0.28.0 timm==1.0.31 einops scipy`, and for
`mixer` and `convmixer` the environment variable MIMETIC_ORIGINALS: a folder that holds
`vision-transformers-cifar10`, a clone of kentaroy47's repository of that name at commit 5bb83d3.

The files hold outputs alone. Both sides take their weights from `weights`, by the path that a
parameter has in our models, and their images from `images`.
"""

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.golden.originals import Arrays, cloned

KENTAROY = "vision-transformers-cifar10/models"

SIDE, PATCH, WIDTH, DEPTH, CLASSES = 16, 2, 6, 2, 5
"""Of every model here; its images are [3, 16, 16, 3]."""

FILTERS = (3, 8)
"""Filter sizes of the ConvMixers. The even one shows on which side "same" pads more."""


def weights(path: str, shape: tuple[int, ...]) -> np.ndarray:
    """Values of one parameter or running statistic, as float32.

    Normal draws, in row-major order of our layout: kernels of standard deviation 1.5/√fan-in,
    scales around 1, biases and running means of .3, and log-normal running variances.
    """
    rng = np.random.default_rng(zlib.crc32(path.encode()))
    drawn = rng.normal(size=np.prod(shape)).reshape(shape)
    name = path.split("/")[-1]
    if name == "kernel":
        drawn *= 1.5 / np.prod(shape[:-1]) ** 0.5
    elif name == "var":
        drawn = np.exp(0.5 * drawn)
    else:
        drawn = 0.3 * drawn + (name == "scale")
    return drawn.astype(np.float32)


def images() -> np.ndarray:
    """[3, 16, 16, 3] float32."""
    return np.random.default_rng(0).normal(size=(3, SIDE, SIDE, 3)).astype(np.float32)


def mixer() -> Arrays:
    """Logits of kentaroy47's MLPMixer with its own expansion factors, 4 and one half."""
    model = cloned(f"{KENTAROY}/mlpmixer.py").MLPMixer(
        image_size=SIDE, channels=3, patch_size=PATCH, dim=WIDTH, depth=DEPTH, num_classes=CLASSES
    )
    _, embed, *blocks, norm, _, head = model
    named = [("patch_embed", embed), ("norm", norm), ("head", head)]
    for layer, (tokens, channels) in enumerate(blocks):
        for path, residual, number in (("token_mixing", tokens, 1), ("mlp", channels, 2)):
            named += [
                (f"block_{layer}/norm{number}", residual.norm),
                (f"block_{layer}/{path}/fc1", residual.fn[0]),
                (f"block_{layer}/{path}/fc2", residual.fn[3]),
            ]
    _fill(model, named)
    return {"logits": _logits(model)}


def convmixer() -> Arrays:
    """Of kentaroy47's ConvMixer: logits in testing and in training, and the new statistics.

    Per filter size, the statistics by their paths in our models.
    """
    arrays = {}
    for size in FILTERS:
        model = cloned(f"{KENTAROY}/convmixer.py").ConvMixer(WIDTH, DEPTH, size, PATCH, CLASSES)
        embed, _, norm, *blocks, _, _, head = model
        named = [("patch_embed", embed), ("patch_norm", norm), ("head", head)]
        for layer, (residual, pointwise, _, norm2) in enumerate(blocks):
            depthwise, _, norm1 = residual.fn
            named += [
                (f"block_{layer}/depthwise", depthwise),
                (f"block_{layer}/norm1", norm1),
                (f"block_{layer}/pointwise", pointwise),
                (f"block_{layer}/norm2", norm2),
            ]
        _fill(model, named)
        arrays[f"{size}/logits"] = _logits(model)
        model.train()
        arrays[f"{size}/logits_train"] = _logits(model)
        for path, module in named:
            if hasattr(module, "running_mean"):
                arrays[f"{size}/{path}/mean"] = module.running_mean.numpy().astype(np.float32)
                arrays[f"{size}/{path}/var"] = module.running_var.numpy().astype(np.float32)
    return arrays


def convnext() -> Arrays:
    """Logits of an isotropic ConvNeXt of timm's ConvNeXtBlock without LayerScale."""
    from timm.models.convnext import ConvNeXtBlock
    from torch import nn

    class Isotropic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Conv2d(3, WIDTH, PATCH, PATCH)
            self.blocks = nn.Sequential(
                *(ConvNeXtBlock(WIDTH, ls_init_value=None) for _ in range(DEPTH))
            )
            self.norm = nn.LayerNorm(WIDTH, eps=1e-6)
            self.head = nn.Linear(WIDTH, CLASSES)

        def forward(self, x: Any) -> Any:
            return self.head(self.norm(self.blocks(self.embed(x)).mean((2, 3))))

    model = Isotropic()
    named = [("patch_embed", model.embed), ("norm", model.norm), ("head", model.head)]
    for layer, block in enumerate(model.blocks):
        named += [
            (f"block_{layer}/depthwise", block.conv_dw),
            (f"block_{layer}/norm", block.norm),
            (f"block_{layer}/mlp/fc1", block.mlp.fc1),
            (f"block_{layer}/mlp/fc2", block.mlp.fc2),
        ]
    _fill(model, named)
    return {"logits": _logits(model)}


def _fill(model: Any, named: list[tuple[str, Any]]) -> None:
    """Set every parameter and running statistic, in float64: rounding is then ours alone."""
    model.double().eval()
    filled = [tensor for path, module in named for tensor in _filled(path, module)]
    # All but the counters of batches, which are scalars.
    expected = [*model.parameters(), *(buffer for buffer in model.buffers() if buffer.ndim)]
    assert {id(tensor) for tensor in filled} == {id(tensor) for tensor in expected}


def _filled(path: str, module: Any) -> Iterator[Any]:
    import torch

    normalizes = isinstance(module, torch.nn.LayerNorm | torch.nn.BatchNorm2d)
    ours = {"weight": "scale" if normalizes else "kernel", "bias": "bias"}
    if hasattr(module, "running_mean"):
        ours |= {"running_mean": "mean", "running_var": "var"}
    for theirs, name in ours.items():
        tensor = getattr(module, theirs)
        # PyTorch's kernels are [out, in, rows, columns], ours [rows, columns, in, out].
        axes = (*range(2, tensor.ndim), *reversed(range(min(tensor.ndim, 2))))
        view = tensor.detach().permute(axes)
        view.copy_(torch.from_numpy(weights(f"{path}/{name}", tuple(view.shape))))
        yield tensor


def _logits(model: Any) -> np.ndarray:
    import torch

    with torch.no_grad():
        inputs = torch.from_numpy(images()).double().permute(0, 3, 1, 2)
        return model(inputs).numpy().astype(np.float32)
