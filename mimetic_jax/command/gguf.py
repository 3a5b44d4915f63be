"""Files of llama.cpp: tensors, and the numbers of the model that they hold besides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from mimetic_jax.base.errors import InputError, error_text
from mimetic_jax.base.extras import need
from mimetic_jax.base.tensor_files import parts
from mimetic_jax.trained.positional import Rotary

_PAIRS: Mapping[Literal["neighbors", "halves"], str] = {
    "neighbors": "llama mistral3 smollm3 granite arcee deci baichuan xverse minicpm internlm2 "
    "command-r cohere2 olmo chatglm ernie4_5",
    "halves": "qwen qwen2 qwen3 gemma gemma2 phi2 phi3 olmo2 falcon gptneox stablelm starcoder2 "
    "nemotron exaone openelm codeshell dream",
}
"""Architectures by the columns of a head that turn together, `llama_model_rope_type`. Those whose
layers turn at several rates aren't among them."""


class _Tensor:
    """A tensor that is dequantized when its values are asked for."""

    dtype = np.dtype(np.float32)

    def __init__(self, stored: Any) -> None:
        self._stored = stored
        self.shape = tuple(map(int, stored.shape[::-1]))
        self.ndim = len(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        from gguf.quants import dequantize

        values = dequantize(self._stored.data, self._stored.tensor_type)
        return np.asarray(values, dtype or self.dtype)


def read_gguf(path: str) -> tuple[Mapping[str, Any], dict[str, Any], Rotary | None]:
    """A file's tensors by name, `num_heads` and `num_kv_heads`, and its rotary positions.

    Numbers that the file doesn't state, or that differ by layer, are left out; so are positions
    whose rates are scaled for longer texts, or of an architecture that isn't known here.
    """
    need(f"reading {path}", "gguf")
    from gguf import GGUFReader

    [file] = parts(path)
    try:
        reader = GGUFReader(file)
        stated = {name: field.contents() for name, field in reader.fields.items()}
        tensors = {tensor.name: _Tensor(tensor) for tensor in reader.tensors}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InputError(f"{path} is no whole GGUF file ({error_text(error)})") from error
    if (count := stated.get("split.count", 1)) > 1:
        raise InputError(f"{path} is one of {count} files: join them with llama-gguf-split --merge")
    architecture = stated.get("general.architecture")

    def of(name: str, kind: type = int) -> Any:
        """A number of the architecture; None if the file lacks it, or has one for each layer."""
        value = stated.get(f"{architecture}.{name}")
        return value if isinstance(value, kind) else None

    keys = {"num_heads": "attention.head_count", "num_kv_heads": "attention.head_count_kv"}
    heads = {name: count for name, key in keys.items() if (count := of(key))}
    pairs = next((name for name, some in _PAIRS.items() if architecture in some.split()), None)
    scaled = of("rope.scaling.type", str) not in (None, "none") or "rope_freqs.weight" in tensors
    base, width = of("rope.freq_base", float), of("attention.key_length")
    if width is None and "num_heads" in heads:
        width = of("embedding_length") // heads["num_heads"]
    rotary = None
    if pairs and base and width and not scaled:
        rotary = Rotary(base, (of("rope.dimension_count") or width) / width, pairs)
    return tensors, heads, rotary
