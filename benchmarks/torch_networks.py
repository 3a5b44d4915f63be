"""The networks of populations in PyTorch, and steps of many at once. Importing needs PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from ml_collections import ConfigDict
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional

from mimetic_jax import paths


class MLP(nn.Module):
    """fc2(gelu(fc1(x)))."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(functional.gelu(self.fc1(x)))


class ConvBlock(nn.Module):
    """x + mlp(norm(depthwise(x)))."""

    def __init__(self, fields: ConfigDict) -> None:
        super().__init__()
        width, size = fields.width, fields.filter_size
        self.depthwise = nn.Conv2d(width, width, size, padding="same", groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.mlp = MLP(width, int(fields.mlp_ratio * width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + self.mlp(y).permute(0, 3, 1, 2)


class Attention(nn.Module):
    """Σ_h softmax(q_h k_hᵀ / √K) v_h W_out,h, written out: `vmap` loops over fused attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(self.mixed(*heads).transpose(1, 2).flatten(2))

    def mixed(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """The values that each head gathers, [B, H, N, K]."""
        shares = (query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5).softmax(-1)
        return shares @ value


class AttentionBlock(nn.Module):
    """x + attention(norm1(x)), then x + mlp(norm2(x))."""

    def __init__(self, fields: ConfigDict) -> None:
        super().__init__()
        width = fields.width
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.attention = Attention(width, fields.heads)
        self.mlp = MLP(width, int(fields.mlp_ratio * width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ConvNeXt(nn.Module):
    """`models.ConvNeXt` on images [B, C, h, w]."""

    def __init__(self, fields: ConfigDict, size: int, classes: int) -> None:
        super().__init__()
        width, patch = fields.width, fields.patch
        self.patch_embed = nn.Conv2d(3, width, patch, stride=patch)
        self.blocks = nn.Sequential(*(ConvBlock(fields) for _ in range(fields.depth)))
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.patch_embed(images)).mean((2, 3))))


class ViT(nn.Module):
    """`models.ViT` with mean pooling on images [B, C, h, w]."""

    def __init__(self, fields: ConfigDict, size: int, classes: int) -> None:
        super().__init__()
        width, patch = fields.width, fields.patch
        self.patch_embed = nn.Conv2d(3, width, patch, stride=patch)
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2, width))
        self.blocks = nn.Sequential(*(AttentionBlock(fields) for _ in range(fields.depth)))
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patch_embed(images).flatten(2).transpose(1, 2) + self.pos_embed
        return self.head(self.norm(self.blocks(x)).mean(1))


class Trainer:
    """Training of members of one network on pixels in memory, without augmentation.

    Args:
        config: of a population.
        info: of its data.
        pixels: [N, h, w, C], uint8.
        labels: [N].
        device: "cuda" or "cpu".
    """

    def __init__(
        self, config: ConfigDict, info: Any, pixels: np.ndarray, labels: np.ndarray, device: str
    ) -> None:
        self.config, self.info, self.device = config, info, device
        self.pixels = torch.tensor(pixels.transpose(0, 3, 1, 2)).to(device)
        self.labels = torch.tensor(labels, dtype=torch.int64, device=device)
        self.mean, self.std = (
            torch.tensor(of, device=device)[:, None, None] for of in (info.mean, info.std)
        )

    def network(self) -> nn.Module:
        """One member, with PyTorch's default initialization."""
        kind = ConvNeXt if self.config.model.name == "convnext" else ViT
        size, classes = self.info.image_shape[0], self.info.num_classes
        return kind(self.config.model, size, classes).to(self.device)

    def logits(self, params: Any, count: int) -> np.ndarray:
        """Of the first images, of a network with our parameters.

        Raises:
            RuntimeError: if this network has other parameters.
        """
        network = self.network()
        network.load_state_dict(in_torch(params, self.config.model.patch))
        with torch.no_grad():
            return network(self.normalized(self.pixels[:count])).cpu().numpy()

    def normalized(self, pixels: Tensor) -> Tensor:
        return (pixels / 255 - self.mean) / self.std

    def alone(self) -> Callable[[int], None]:
        """Returns a function that takes steps of one network, as PyTorch trains by default."""
        network = self.network()
        optimizer = adamw(network.parameters(), self.config.optimizer)

        def step(chosen: Tensor) -> None:
            optimizer.zero_grad()
            logits = network(self.normalized(self.pixels[chosen[0]]))
            functional.cross_entropy(logits, self.labels[chosen[0]]).backward()
            optimizer.step()

        return self._steps(step, 1)

    def together(self, members: int) -> Callable[[int], None]:
        """Returns a function that takes steps of members at once, by `vmap` of `grad`."""
        networks = [self.network() for _ in range(members)]
        params, _ = stack_module_state(networks)
        skeleton = copy.deepcopy(networks[0]).to("meta")
        # Adam has no sums over parameters: that of stacked ones is each member's own.
        optimizer = adamw(params.values(), self.config.optimizer)
        # Without these, `grad` would also record what it does for a second derivative.
        detached = {name: param.detach() for name, param in params.items()}

        def loss(params: dict[str, Tensor], pixels: Tensor, labels: Tensor) -> Tensor:
            logits = functional_call(skeleton, params, (self.normalized(pixels),))
            return functional.cross_entropy(logits, labels)

        gradient = vmap(grad(loss))

        def step(chosen: Tensor) -> None:
            grads = gradient(detached, self.pixels[chosen], self.labels[chosen])
            for name, param in params.items():
                param.grad = grads[name]
            optimizer.step()

        return self._steps(step, members)

    def _steps(self, step: Callable[[Tensor], None], members: int) -> Callable[[int], None]:
        count, batch = len(self.labels), self.config.batch
        orders = torch.stack([torch.randperm(count) for _ in range(members)]).to(self.device)
        taken = 0

        def run(steps: int) -> None:
            nonlocal taken
            for _ in range(steps):
                start = taken % (count // batch) * batch
                step(orders[:, start : start + batch])
                taken += 1
            if self.device == "cuda":
                torch.cuda.synchronize()

        return run


def adamw(params: Any, rates: ConfigDict) -> torch.optim.Optimizer:
    """The fused optimizer of `config.optimizer`, at a constant rate."""
    return torch.optim.AdamW(
        params,
        rates.learning_rate,
        betas=rates.betas,
        eps=rates.eps,
        weight_decay=rates.weight_decay,
        fused=True,
    )


def in_torch(params: Any, patch: int = 1) -> dict[str, Tensor]:
    """Parameters of our ConvNeXt, ViT or GPT under PyTorch's names and in its layouts.

    Args:
        params: a tree of Flax.
        patch: side of its patches, if it has any.
    """
    found: dict[str, np.ndarray] = {}
    for path, leaf in paths.flatten(params)[0]:
        array, (*parents, kind) = np.asarray(leaf), path.replace("block_", "blocks/").split("/")
        if kind == "kernel":
            if parents == ["patch_embed"]:
                array = array.reshape(patch, patch, -1, array.shape[-1])
            elif parents[-1] == "out":
                array = array.reshape(-1, array.shape[-1])
            elif "attention" in parents:
                array = array.reshape(len(array), -1)
            # [k, k, in, out] is [out, in, k, k] there, and [in, out] is [out, in].
            array = array.transpose(3, 2, 0, 1) if array.ndim == 4 else array.T
        elif "attention" in parents:
            array = array.ravel()
        found[".".join([*parents, {"kernel": "weight", "scale": "weight"}.get(kind, kind)])] = array
    for name in [name for name in found if ".query." in name]:
        roles = [found.pop(name.replace("query", role)) for role in ("query", "key", "value")]
        found[name.replace("query", "qkv")] = np.concatenate(roles)
    return {name: torch.tensor(array) for name, array in found.items()}
