"""The text of an optimized HLO module: computations, their instructions, and shapes in memory."""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import re


@dataclasses.dataclass(frozen=True)
class Array:
    """An array as an instruction returns it.

    Attributes:
        dtype: such as bf16.
        dims: its lengths.
        layout: in braces, with the tiles that a TPU stores it in and its memory space.
    """

    dtype: str
    dims: tuple[int, ...]
    layout: str

    @property
    def itemsize(self) -> float:
        """Bytes of a number; 0 of a token.

        >>> [Array(dtype, (), "").itemsize for dtype in ("pred", "bf16", "f8e4m3fn", "token")]
        [1.0, 2.0, 1.0, 0.0]
        """
        if self.dtype == "pred":
            return 1.0
        bits = re.match(r"[a-z]+(\d+)", self.dtype)
        return int(bits[1]) / 8 if bits else 0.0

    @property
    def size(self) -> int:
        """Numbers in it."""
        return math.prod(self.dims)

    @property
    def unpadded(self) -> float:
        """Bytes of its numbers alone."""
        return self.size * self.itemsize

    @property
    def bytes(self) -> float:
        """Bytes in memory: a TPU pads the last axes of its layout to whole tiles.

        >>> Array("bf16", (10, 64), "1,0:T(8,128)(2,1)").bytes
        4096.0
        >>> Array("bf16", (10, 64), "1,0").bytes
        1280.0
        """
        tiles = re.search(r":T\(([\d,]+)\)", self.layout)
        if not tiles or not self.dims:
            return self.unpadded
        order = [int(axis) for axis in self.layout.split(":")[0].split(",")]
        lengths = [self.dims[axis] for axis in order]  # the fastest first
        for axis, tile in enumerate(reversed(tiles[1].split(","))):
            if axis < len(lengths):
                lengths[axis] = -(-lengths[axis] // int(tile)) * int(tile)
        return math.prod(lengths) * self.itemsize

    @property
    def in_memory(self) -> bool:
        """Whether it is in the device's main memory, not in a TPU's fast one beside its cores."""
        return "S(" not in self.layout

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"


def memory_bytes(arrays: tuple[Array, ...]) -> float:
    """Bytes of those arrays that are in main memory."""
    return sum(array.bytes for array in arrays if array.in_memory)


@dataclasses.dataclass(frozen=True)
class Instruction:
    """A line of a computation.

    Attributes:
        name: unique in its computation.
        opcode: such as fusion.
        result: its arrays; several of a tuple.
        operands: names of instructions of the same computation.
        literal: what is in the parentheses of a constant, parameter or such.
        attributes: the rest of the line.
        is_root: whether the computation returns it.
    """

    name: str
    opcode: str
    result: tuple[Array, ...]
    operands: tuple[str, ...]
    literal: str
    attributes: str
    is_root: bool

    @property
    def scope(self) -> str:
        """Path of the code that it comes from, such as jit(f)/ViT/block0/mlp/fc1/dot_general."""
        found = re.search(r'op_name="((?:[^"\\]|\\.)*)"', self.attributes)
        return found[1] if found else ""

    @property
    def target(self) -> str:
        """What a custom call calls."""
        found = re.search(r'custom_call_target="([^"]*)"', self.attributes)
        return found[1] if found else ""

    def called(self, *attributes: str) -> list[str]:
        """Names of the computations that these attributes name."""
        names = "|".join(attributes)
        return [
            name
            for group in re.findall(rf"\b(?:{names})=(\{{[^}}]*\}}|%?[\w.\-]+)", self.attributes)
            for name in re.findall(r"[\w.\-]+", group)
        ]

    def numbers(self, attribute: str) -> tuple[int, ...]:
        """The list of an attribute, such as lhs_contracting_dims={2}."""
        found = re.search(rf"\b{attribute}=\{{([\d,]*)\}}", self.attributes)
        return tuple(int(number) for number in found[1].split(",") if number) if found else ()


class Computation:
    """A list of instructions, by name, in the order in which they run."""

    def __init__(self, name: str, instructions: list[Instruction]) -> None:
        self.name = name
        self.instructions = {instruction.name: instruction for instruction in instructions}

    @functools.cached_property
    def users(self) -> dict[str, list[Instruction]]:
        """The instructions that take an instruction's result."""
        users = collections.defaultdict(list)
        for instruction in self.instructions.values():
            for operand in dict.fromkeys(instruction.operands):
                users[operand].append(instruction)
        return users

    @functools.cached_property
    def root(self) -> Instruction:
        """What the computation returns."""
        return next(i for i in self.instructions.values() if i.is_root)

    @functools.cached_property
    def parameters(self) -> dict[int, Instruction]:
        """By number."""
        return {int(i.literal): i for i in self.instructions.values() if i.opcode == "parameter"}

    def operands(self, instruction: Instruction) -> list[Instruction]:
        """The instructions whose results it takes."""
        return [self.instructions[name] for name in instruction.operands]


@dataclasses.dataclass(frozen=True)
class Module:
    """A compiled program.

    Attributes:
        computations: by name.
        entry: the one that runs.
    """

    computations: dict[str, Computation]
    entry: Computation


def parse(text: str) -> Module:
    """A module from the text of `compiled.as_text()`.

    Example:
        >>> module = parse('''
        ... ENTRY %main (x: f32[2,3]) -> f32[3,2] {
        ...   %x = f32[2,3]{1,0} parameter(0)
        ...   ROOT %t = f32[3,2]{1,0} transpose(%x), dimensions={1,0}
        ... }
        ... ''')
        >>> module.entry.root.opcode, str(module.entry.root.result[0])
        ('transpose', 'f32[3,2]')
    """
    computations: dict[str, Computation] = {}
    entry, name = "", ""
    lines: list[Instruction] = []
    for line in text.splitlines():
        if line.startswith(("%", "ENTRY")) and line.endswith("{"):
            name = line.removeprefix("ENTRY ").removeprefix("%").split(" ")[0].split("(")[0]
            entry, lines = (name if line.startswith("ENTRY") else entry), []
        elif line.startswith("}"):
            computations[name] = Computation(name, lines)
        elif instruction := _instruction(line):
            lines.append(instruction)
    return Module(computations, computations[entry])


def _instruction(line: str) -> Instruction | None:
    head = re.match(r"\s+(ROOT )?%?([\w.\-]+) = ", line)
    if not head:
        return None
    rest = line[head.end() :]
    shape = rest[: _closing(rest, 0)] if rest.startswith("(") else rest.split(" ", 1)[0]
    rest = rest[len(shape) :].lstrip()
    opcode, _, _ = rest.partition("(")
    end = _closing(rest, len(opcode))
    inside = rest[len(opcode) + 1 : end - 1]
    return Instruction(
        name=head[2],
        opcode=opcode,
        result=_arrays(shape),
        operands=tuple(re.findall(r"%([\w.\-]+)", inside)),
        literal=inside,
        attributes=rest[end:],
        is_root=bool(head[1]),
    )


def _closing(text: str, start: int) -> int:
    """Behind the parenthesis that closes the one at `start`."""
    depth = 0
    for found in re.finditer(r"[()]", text[start:]):
        depth += 1 if found[0] == "(" else -1
        if not depth:
            return start + found.end()
    return len(text)


def _arrays(shape: str) -> tuple[Array, ...]:
    return tuple(
        Array(dtype, tuple(int(length) for length in dims.split(",") if length), layout or "")
        for dtype, dims, layout in re.findall(
            r"\b([a-z]+\d*\w*)\[([\d,]*)\](?:\{([^}]*)\})?", shape
        )
    )
