"""PyTorch: schemes on live modules. Torch is no dependency: who has a module has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.errors import InputError, blaming, said_by
from mimetic_jax.rewrite import Plan, rewrite_in_place
from mimetic_jax.schemes import Scheme
from mimetic_jax.weights.checks import check_key

if TYPE_CHECKING:
    import torch


def initialize(
    module: torch.nn.Module, key: jax.Array, scheme: Scheme | tuple[Scheme, ...], **options: Any
) -> Plan:
    """Rewrite a module's parameters in place.

    The numbers are those of `rewrite` on a dictionary of the parameters: the same on every device
    and in every process. Parameters keep their device and dtype, and remain the same objects, so
    that an optimizer may exist already.

    Args:
        module: any `torch.nn.Module`; rules match the names of its parameters.
        key: a `jax.random` key.
        scheme: a scheme, or a tuple of schemes.
        **options: those of `rewrite`. `num_heads` is needed, as PyTorch stores heads flattened, and
            `num_kv_heads` where there are fewer of key and value. Without `rules` the table of
            `zoo` that fits is taken: names of torch.nn, timm, torchvision and Hugging Face.

    Returns:
        What was written; print it.

    Raises:
        InputError: as `rewrite`, before anything is written; or for parameters that aren't here:
            on the device "meta", or sharded.

    Example:
        import torch
        layer = torch.nn.TransformerEncoderLayer(192, 3)
        print(initialize(layer, jax.random.key(0), Mimetic(), num_heads=3))
    """
    with blaming("initialize(module, key, scheme)"):
        check_key(key)
    if not hasattr(module, "named_parameters"):
        raise InputError(
            f"initialize(module, key, scheme): {type(module).__name__} has no named_parameters, as "
            "a torch.nn.Module has"
        )
    elsewhere, arrays = [], {}
    for name, parameter in module.named_parameters():
        arrays[name] = array = _array(name, parameter)
        if parameter.device.type != "cpu" or not parameter.is_contiguous():
            elsewhere.append((parameter, array))
    planned = rewrite_in_place(key, arrays, scheme, **options)
    written = {write.path for write in planned}
    for parameter, array in elsewhere:
        if any(arrays[path] is array for path in written):
            parameter.detach().copy_(_tensor(array))
    return planned


def arrays_of(module: torch.nn.Module) -> dict[str, np.ndarray]:
    """The parameters of a module as arrays by name, for `plan`, `check`, `fit` and `blocks`.

    Raises:
        InputError: for parameters without values here.
    """
    return {name: _array(name, parameter) for name, parameter in module.named_parameters()}


def _array(name: str, parameter: torch.Tensor) -> np.ndarray:
    """The values; the parameter's own memory, if that is on the CPU and contiguous."""
    if parameter.device.type == "meta" or hasattr(parameter, "full_tensor"):
        raise InputError(
            f"{name} has no whole value here: initialize the module before it is sharded"
        )
    values = parameter.detach().cpu().contiguous()
    if str(values.dtype) != "torch.bfloat16":
        return values.numpy()
    # NumPy has no such type of its own: the same bits, seen as 16-bit numbers on the way.
    import torch

    return values.view(torch.int16).numpy().view(jnp.bfloat16)


def _tensor(array: np.ndarray) -> torch.Tensor:
    import torch

    if array.dtype != jnp.bfloat16:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)


def read_tensors(path: str) -> dict[str, np.ndarray]:
    """The tensors of a file that `torch.save` wrote; never code, as `weights_only` has it.

    Raises:
        InputError: without torch, or for a file that is damaged or holds more than tensors.
    """
    torch = _torch(path)
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a damaged file makes it raise
        raise InputError(f"{path} can't be read as a state dict ({said_by(error)})") from error
    tensors = loaded.get("state_dict", loaded) if isinstance(loaded, dict) else {}
    if not tensors or not all(isinstance(value, torch.Tensor) for value in tensors.values()):
        raise InputError(f"{path} is no state dict: save module.state_dict() alone")
    return {name: _array(name, value) for name, value in tensors.items()}


def write_tensors(path: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Save arrays as a state dict."""
    torch = _torch(path)
    torch.save({name: _tensor(array) for name, array in arrays.items()}, path)


def _torch(path: str) -> Any:
    try:
        import torch
    except ImportError as error:
        raise InputError(
            f"{path} needs PyTorch to be read: pip install torch, or save it as .safetensors"
        ) from error
    return torch
