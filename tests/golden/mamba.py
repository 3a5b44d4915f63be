"""Logits of a language model of state-spaces' Mamba2Simple layers.

Needs torch 2.13.0 and einops 0.8.2, and in the folder that the environment variable
MIMETIC_ORIGINALS names a clone of state-spaces/mamba at commit e9594ce. Its kernels for GPUs are
replaced: the scan by its own `ssd_minimal_discrete`, the gated norm by the formula of its
`rms_norm_ref`.

The file holds outputs alone. Both sides take their weights from `weight`, by the path that a
parameter has in our model, and their tokens from `tokens`.
"""

import sys
import types
import zlib
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

from tests.golden.originals import Arrays, cloned

FIELDS = {"vocab": 11, "width": 12, "depth": 2, "heads": 4, "state": 5, "groups": 2}
"""Of our model; the layers' other sizes are the defaults of both."""


def tokens() -> np.ndarray:
    """[2, 21] int32."""
    return np.random.default_rng(0).integers(0, FIELDS["vocab"], (2, 21)).astype(np.int32)


def weight(path: str, shape: tuple[int, ...]) -> np.ndarray:
    """A parameter by its path in our model: normal, scales around 1, rates of change around ½."""
    drawn = np.random.default_rng(zlib.crc32(path.encode())).normal(size=shape)
    if path.endswith(("A_log", "dt_bias")):
        drawn = 0.5 * drawn - 0.7
    else:
        drawn = 0.3 * drawn + path.endswith("scale")
    return drawn.astype(np.float32)


def mamba() -> Arrays:
    """Logits [2, 21, 11] of Mamba-2."""
    reference, width = _mamba2_simple(), FIELDS["width"]
    sizes = {"d_state": FIELDS["state"], "headdim": 2 * width // FIELDS["heads"]}

    def mixer(path: str) -> Any:
        layer = reference(
            width, **sizes, ngroups=FIELDS["groups"], chunk_size=7, use_mem_eff_path=False
        )
        return _filled(layer.double(), path)

    return _logits(mixer)


def _logits(mixer: Callable[[str], Any]) -> Arrays:
    """In float64, stored as float32: pre-norm residual layers, tied output."""
    import torch

    width, depth = FIELDS["width"], FIELDS["depth"]
    ids = torch.from_numpy(tokens()).long()
    embedding = _torch(weight("embedding", (FIELDS["vocab"], width)))
    with torch.no_grad():
        x = embedding[ids]
        for layer in range(depth):
            scale = _torch(weight(f"block_{layer}/norm/scale", (width,)))
            x = x + mixer(f"block_{layer}/mixer")(_rms(x, scale))
        logits = _rms(x, _torch(weight("norm/scale", (width,)))) @ embedding.T
    return {"logits": logits.numpy().astype(np.float32)}


def _filled(mixer: Any, path: str) -> Any:
    """The layer with our parameters. Theirs are output first; in_proj holds five of ours."""
    inner, states = mixer.d_inner, mixer.ngroups * mixer.d_state
    columns = {"z": inner, "x": inner, "b": states, "c": states, "dt": mixer.nheads}
    kernels = [weight(f"{path}/{n}/kernel", (mixer.d_model, c)) for n, c in columns.items()]
    channels = inner + 2 * states
    values = {
        "in_proj.weight": np.concatenate(kernels, axis=1).T,
        "conv1d.weight": weight(f"{path}/conv/kernel", (mixer.d_conv, channels)).T[:, None],
        "conv1d.bias": weight(f"{path}/conv/bias", (channels,)),
        "A_log": weight(f"{path}/A_log", (mixer.nheads,)),
        "dt_bias": weight(f"{path}/dt_bias", (mixer.nheads,)),
        "D": weight(f"{path}/D", (mixer.nheads,)),
        "norm.weight": weight(f"{path}/norm/scale", (inner,)),
        "out_proj.weight": weight(f"{path}/out_proj/kernel", (inner, mixer.d_model)).T,
    }
    mixer.load_state_dict({name: _torch(array) for name, array in values.items()})
    return mixer


def _mamba2_simple() -> Any:
    """The class, without what only GPUs have."""
    folder = "mamba/mamba_ssm/modules"
    names = ("layernorm_gated", "ssd_combined")
    stubs = {f"mamba_ssm.ops.triton.{name}": types.ModuleType(name) for name in names}
    norms, scans = stubs.values()
    vars(norms).update(RMSNorm=_gated_norm(), LayerNorm=None)
    vars(scans).update(mamba_chunk_scan_combined=None, mamba_split_conv1d_scan_combined=None)
    parents = ("mamba_ssm", "mamba_ssm.ops", "mamba_ssm.ops.triton")
    with mock.patch.dict(sys.modules, {name: types.ModuleType(name) for name in parents} | stubs):
        minimal = cloned(f"{folder}/ssd_minimal.py")
        vars(scans).update(mamba_chunk_scan_combined=_scan(minimal.ssd_minimal_discrete))
        return cloned(f"{folder}/mamba2_simple.py").Mamba2Simple


def _scan(minimal: Callable[..., Any]) -> Callable[..., Any]:
    """`mamba_chunk_scan_combined` from the minimal form, which takes discrete steps and no D."""

    def combined(
        x: Any, dt: Any, decay: Any, b: Any, c: Any, *, chunk_size: int, D: Any, **rest: Any
    ) -> Any:
        assert not any(value is not None for value in rest.values())
        heads = x.shape[2] // b.shape[2]
        b, c = (array.repeat_interleave(heads, dim=2) for array in (b, c))
        y, _ = minimal(x * dt[..., None], decay * dt, b, c, chunk_size)
        return y + D[:, None] * x

    return combined


def _gated_norm() -> Any:
    import torch

    class RMSNorm(torch.nn.Module):
        def __init__(self, size: int, eps: float, norm_before_gate: bool, **_: Any) -> None:
            super().__init__()
            assert not norm_before_gate
            self.weight, self.eps = torch.nn.Parameter(torch.ones(size)), eps

        def forward(self, x: Any, z: Any) -> Any:
            return _rms(x * torch.nn.functional.silu(z), self.weight, self.eps)

    return RMSNorm


def _rms(x: Any, scale: Any, eps: float = 1e-5) -> Any:
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * scale


def _torch(array: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(array.copy()).double()
