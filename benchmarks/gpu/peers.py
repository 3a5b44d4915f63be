"""The same training step in PyTorch: `torch.compile`, bfloat16 autocast, fused AdamW.

For text the model is torch_gpt.py, for images timm's ViT. Nothing here starts JAX: a process that
did would leave PyTorch a quarter of the GPU's memory.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

from ml_collections import ConfigDict

from benchmarks.timing import seconds_per_step
from mimetic_jax.base.errors import InputError

_NEEDED = {"text": ("torch",), "images": ("torch", "timm")}


def not_installed(task: str) -> Sequence[str]:
    """The packages of a task's peer that are not installed."""
    return [name for name in _NEEDED[task] if importlib.util.find_spec(name) is None]


def throughput(config: ConfigDict, info: Any, device: str, seconds: float) -> dict[str, Any]:
    """Speed on random data and peak memory of the peer of an arm without augmentation."""
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise InputError(f"PyTorch {torch.__version__} finds no GPU")
    torch.set_float32_matmul_precision("high")
    name, model, loss, batch = model_and_loss(config, info, device)
    compiled = torch.compile(loss)
    run = _training(model, lambda: compiled(*batch), config.optimizer, device)
    step, groups = seconds_per_step(run, seconds)
    cuda = device == "cuda"
    return {
        "peer": f"{name}PyTorch {torch.__version__}, torch.compile, bfloat16 autocast",
        "seconds_per_step": step,
        "groups": groups,
        "peak_memory_bytes": torch.cuda.max_memory_allocated() if cuda else None,
    }


Peer = tuple[str, Any, Callable[..., Any], tuple[Any, ...]]


def model_and_loss(config: ConfigDict, info: Any, device: str) -> Peer:
    """The library of the peer as in "timm 1.0, " or "", its model, loss and random batch."""
    return (_language if config.task == "text" else _vision)(config, info, device)


def _language(config: ConfigDict, info: Any, device: str) -> Peer:
    import torch

    from benchmarks.gpu.torch_gpt import GPT

    fields, length, valid = config.model, config.data.length, config.data.valid
    model = GPT(
        info.vocabulary,
        fields.width,
        fields.depth,
        fields.heads,
        length,
        fields.dropout,
        fields.embedding_dropout,
    ).to(device)
    windows = torch.randint(info.vocabulary, (config.batch, length + 1), device=device)
    return "", model, model.loss, (windows, valid)


def _vision(config: ConfigDict, info: Any, device: str) -> Peer:
    import timm
    import torch
    from timm.models.vision_transformer import VisionTransformer
    from torch.nn import functional

    fields, size = config.model, config.data.size or info.image_shape[0]
    model = VisionTransformer(
        img_size=size,
        patch_size=fields.patch,
        num_classes=info.num_classes,
        embed_dim=fields.width,
        depth=fields.depth,
        num_heads=fields.heads,
        drop_path_rate=fields.drop_path,
    ).to(device)
    shape = (config.batch, 3, size, size)
    pixels = torch.randint(256, shape, dtype=torch.uint8, device=device)
    labels = torch.randint(info.num_classes, shape[:1], device=device)
    mean, std = (torch.tensor(of, device=device)[:, None, None] for of in (info.mean, info.std))

    def loss(pixels: Any, labels: Any) -> Any:
        logits = model((pixels / 255 - mean) / std)
        return functional.cross_entropy(logits, labels, label_smoothing=config.label_smoothing)

    return f"timm {timm.__version__}, ", model, loss, (pixels, labels)


def _training(
    model: Any, loss: Callable[[], Any], rates: ConfigDict, device: str
) -> Callable[[int], None]:
    """Returns a function that takes a number of steps."""
    import torch

    optimizer = torch.optim.AdamW(
        model.parameters(),
        rates.learning_rate,
        betas=rates.betas,
        eps=rates.eps,
        weight_decay=rates.weight_decay,
        fused=True,
    )

    def run(steps: int) -> None:
        for _ in range(steps):
            with torch.autocast(device, torch.bfloat16):
                value = loss()
            value.backward()
            if rates.clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), rates.clip)
            optimizer.step()
            optimizer.zero_grad()
        if device == "cuda":
            torch.cuda.synchronize()

    return run
