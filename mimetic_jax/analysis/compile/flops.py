"""FLOPs of the products in a compiled program."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from mimetic_jax.analysis.compile.hlo import Array, Computation, Instruction, Module


class Flops(NamedTuple):
    """FLOPs of products by the precision of what they multiply: 16 bits or less, or more."""

    half: float = 0.0
    full: float = 0.0

    def plus(self, other: Flops) -> Flops:
        """The sum of both."""
        return Flops(self.half + other.half, self.full + other.full)

    @property
    def total(self) -> float:
        """Of both precisions."""
        return self.half + self.full


def flops(module: Module, computation: Computation, instruction: Instruction) -> Flops:
    """FLOPs of an instruction's products, with those of the computations that it fuses.

    A product of [M, K] and [K, N] counts 2 M K N. Convolutions count what their kernel multiplies,
    without padding; TPUs run all products as convolutions. Of cuDNN's attention two products
    count, and five of its backward pass, without the masked half of causal attention.
    """
    if instruction.opcode in ("fusion", "call"):
        total = Flops()
        for name in instruction.called("calls", "to_apply"):
            inner = module.computations[name]
            for one in inner.instructions.values():
                total = total.plus(flops(module, inner, one))
        return total
    if instruction.opcode not in ("dot", "convolution", "custom-call"):
        return Flops()
    operands = [operand.result[0] for operand in computation.operands(instruction)]
    count = _count(instruction, operands)
    half = all(array.itemsize <= 2 for array in operands[:2])
    return Flops(half=count) if half else Flops(full=count)


def _count(instruction: Instruction, operands: list[Array]) -> float:
    result, target = instruction.result[0], instruction.target
    if instruction.opcode == "dot":
        return _product(result, operands[0], instruction.numbers("lhs_contracting_dims"))
    if instruction.opcode == "convolution" or target == "__cudnn$convForward":
        return _convolution(instruction, operands[0], operands[1], result)
    if target == "__cudnn$convBackwardInput":
        return _convolution(instruction, result, operands[1], operands[0])
    if target == "__cudnn$convBackwardFilter":
        return _convolution(instruction, operands[0], result, operands[1])
    if target.startswith("__cublas"):
        contracted = _numbers("lhs_contracting_dimensions", instruction.attributes)
        return _product(result, operands[0], contracted)
    if target.startswith("__cudnn$fmha"):
        return _attention(instruction, operands[0])
    return 0.0


def _numbers(name: str, config: str) -> tuple[int, ...]:
    """The first list of that name in a kernel's configuration, which is JSON."""
    found = re.search(rf'"{name}":\s*(\[[^\]]*\])', config)
    return tuple(int(number) for number in json.loads(found[1])) if found else ()


def _product(result: Array, left: Array, contracted: tuple[int, ...]) -> float:
    return 2.0 * result.size * math.prod(left.dims[axis] for axis in contracted)


def _attention(instruction: Instruction, query: Array) -> float:
    shape = instruction.attributes.partition('"intermediate_tensor_shape"')[2]
    size = math.prod(_numbers("dimensions", shape))
    products = 5 if "Backward" in instruction.target else 2
    return products * 2.0 * size * query.dims[-1]


def _convolution(instruction: Instruction, inputs: Array, kernel: Array, outputs: Array) -> float:
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", instruction.attributes)
    if not labels:
        return 0.0
    where = [
        {letter: array.dims[axis] for axis, letter in enumerate(group)}
        for group, array in zip(labels.groups(), (inputs, kernel, outputs), strict=True)
    ]
    taken, weights, made = where
    window = _window(instruction.attributes)
    spatial = sorted((letter for letter in weights if letter.isdigit()), key=int)
    positions = math.prod(
        _positions(axis, taken[letter], weights[letter], made[letter], window)
        for axis, letter in enumerate(spatial)
    )
    return 2.0 * made["b"] * made["f"] * weights["i"] * positions


def _window(attributes: str) -> Mapping[str, list[str]]:
    found = re.search(r"window=\{([^}]*)\}", attributes)
    fields = (field.split("=") for field in found[1].split()) if found else ()
    return {name: values.split("x") for name, values in fields}


def _positions(
    axis: int, taken: int, kernel: int, made: int, window: Mapping[str, list[str]]
) -> int:
    """Pairs of an output and a place of the kernel that meet an input, along an axis."""

    def field(name: str, default: str) -> str:
        return window[name][axis] if name in window else default

    stride, spread = int(field("stride", "1")), int(field("rhs_dilate", "1"))
    holes, before = int(field("lhs_dilate", "1")), int(field("pad", "0_0").split("_")[0])
    met = np.arange(made)[:, None] * stride - before + np.arange(kernel) * spread
    return int(((met >= 0) & (met <= (taken - 1) * holes) & (met % holes == 0)).sum())
