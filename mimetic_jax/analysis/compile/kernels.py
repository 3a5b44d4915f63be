"""What the kernels of a compiled step read, write, multiply and send."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator

import numpy as np

from mimetic_jax.analysis.compile.flops import Flops, flops
from mimetic_jax.analysis.compile.hlo import (
    Array,
    Computation,
    Instruction,
    Module,
    memory_bytes,
)
from mimetic_jax.data.augment.chosen import TURNS

_NO_KERNEL = {
    "parameter",
    "constant",
    "tuple",
    "get-tuple-element",
    "bitcast",
    "iota",
    "after-all",
    "partition-id",
    "replica-id",
    "opt-barrier",
    "domain",
    "async-update",
}
_COLLECTIVES = re.compile(
    r"(all-reduce|all-gather|reduce-scatter|all-to-all|ragged-all-to-all|collective-permute|"
    r"collective-broadcast)(-start|-done)?$"
)
_ORDER = r"\[([\d,]+)\](?:T\(([\d,]+)\))?"  # of devices: lengths of axes, and how they are permuted
_SLICES = ("dynamic-slice", "slice", "gather")
_VIEWS = ("bitcast", "reshape", "get-tuple-element", "tuple")

MODULES = ("attention", "MLP", "mixing", "norms", "augmentation", "optimizer", "other")
"""Parts of a step that kernels are attributed to."""

_MODULES = (
    ("augmentation", re.compile(r"^augmentation$")),
    ("optimizer", re.compile(r"^optimizer$")),
    ("norms", re.compile(r"norm\d?$")),
    ("attention", re.compile(r"attention")),
    ("mixing", re.compile(r"^(depthwise|token_mixing)")),
    ("MLP", re.compile(r"^(mlp|pointwise)")),
)


@dataclasses.dataclass(frozen=True)
class Sent:
    """What a device sends in a collective.

    Attributes:
        kind: such as all-reduce.
        bytes: that a device holds before a reduce, or after a gather.
        size: devices that take part.
        stride: devices from one of them to the next.
    """

    kind: str
    bytes: float
    size: int
    stride: int


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A kernel, as often as a step runs it.

    Attributes:
        kind: its name without its number.
        module: the part of the step that it belongs to, one of `MODULES`.
        scope: path of the code that it comes from.
        times: that it runs.
        bytes: that it reads from and writes to main memory, each time.
        flops: of its products, each time.
        sent: by a collective.
        gathered: slices that it gathers, however short, each time.
        made: its arrays in main memory.
    """

    kind: str
    module: str
    scope: str
    times: float
    bytes: float
    flops: Flops
    sent: Sent | None
    gathered: float
    made: tuple[Array, ...]


def module_of(scope: str) -> str:
    """The part of a step that a path of code belongs to: the innermost that has a name.

    >>> module_of("jit(f)/while/body/transpose(jvp(ViT))/block0/attention/query/dot_general")
    'attention'
    """
    for name in reversed(re.findall(r"[\w.\-]+", scope)):
        for module, pattern in _MODULES:
            if pattern.search(name):
                return module
    return "other"


def step_kernels(module: Module, turns: float | None = None) -> list[Kernel]:
    """The kernels of one step, each as often as loops inside the step run it.

    A dispatch runs steps in a loop whose number of turns it is called with: its body is the step. A
    program without such a loop around its products is one step.

    Args:
        module: the compiled program.
        turns: of loops that end where their data says so, in a program that is one step.
    """
    loops: list[list[Kernel]] = []
    whole = list(_kernels(module, module.entry, 1, loops, turns))
    steps = [kernels for kernels in loops if any(kernel.flops.total for kernel in kernels)]
    return max(steps, key=len, default=whole)


def _kernels(
    module: Module,
    computation: Computation,
    times: float,
    loops: list[list[Kernel]],
    expected: float | None,
) -> Iterator[Kernel]:
    def inside(name: str, times: float) -> list[Kernel]:
        return list(_kernels(module, module.computations[name], times, loops, expected))

    for instruction in computation.instructions.values():
        if instruction.opcode == "while":
            (body,) = instruction.called("body")
            known = _turns(module, computation, instruction)
            turns = expected if known is None else known
            kernels = inside(body, times * (turns or 1))
            if turns is None:
                loops.append(kernels)
            yield from kernels
        elif instruction.opcode == "conditional":
            names = instruction.called(
                "branch_computations", "true_computation", "false_computation"
            )
            branches = [inside(name, times) for name in names]
            yield from max(branches, key=lambda kernels: sum(k.times * k.bytes for k in kernels))
        elif instruction.opcode in ("call", "async-start"):
            for name in instruction.called("to_apply", "calls"):
                yield from inside(name, times)
        elif instruction.target == "AllocateBuffer":
            continue  # writes nothing
        elif instruction.opcode not in _NO_KERNEL and not instruction.opcode.endswith("-done"):
            yield _kernel(module, computation, instruction, times)


def _kernel(
    module: Module, computation: Computation, instruction: Instruction, times: float
) -> Kernel:
    scope = (
        instruction.scope
        or _inner_scope(module, instruction)
        or _scope_before(computation, instruction)
    )
    sent = _sent(computation, instruction)
    return Kernel(
        kind=re.sub(r"([.\-_]?\d+|\.clone|\.remat)+$", "", instruction.name),
        module=module_of(scope),
        scope=scope,
        times=times,
        bytes=_read(module, computation, instruction) + _written(module, computation, instruction),
        flops=flops(module, computation, instruction),
        sent=sent,
        gathered=_gathered(module, computation, instruction),
        made=tuple(a for a in instruction.result if a.in_memory),
    )


def _inner_scope(module: Module, instruction: Instruction) -> str:
    """The scope that the compiler left on what a fusion fuses."""
    for name in instruction.called("calls"):
        for inner in reversed(module.computations[name].instructions.values()):
            if inner.scope:
                return inner.scope
    return ""


def _scope_before(computation: Computation, instruction: Instruction) -> str:
    """The scope of what a copy copies."""
    while not instruction.scope and len(instruction.operands) == 1:
        (instruction,) = computation.operands(instruction)
    return instruction.scope if instruction.opcode != "parameter" else ""


def _turns(module: Module, computation: Computation, loop: Instruction) -> float | None:
    """How often a loop runs, or is expected to by its scope; None where only the run decides."""
    if expected := re.search(rf"{TURNS}([\d.]+)/while$", loop.scope):
        return float(expected[1])
    if known := re.search(r'"known_trip_count":\s*\{"n":\s*"(\d+)"', loop.attributes):
        return int(known[1])
    (name,) = loop.called("condition")
    condition = module.computations[name]
    compare = condition.root
    bounds = [_constant(module, condition, name) for name in compare.operands]
    if compare.opcode == "fusion":  # which compares its parameters, or with a constant of its own
        (inner,) = compare.called("calls")
        fused = module.computations[inner]
        bounds += [_constant(module, fused, name) for name in fused.instructions]
        compare = fused.root
    found = [bound for bound in bounds if bound is not None]
    # Loops that JAX writes count up from zero.
    return found[0] if len(found) == 1 and "direction=LT" in compare.attributes else None


def _constant(module: Module, computation: Computation, name: str) -> int | None:
    instruction = computation.instructions[name]
    if instruction.opcode == "constant" and re.fullmatch(r"\d+", instruction.literal):
        return int(instruction.literal)
    if instruction.opcode in ("copy", "bitcast"):
        return _constant(module, computation, instruction.operands[0])
    return None


def _read(module: Module, computation: Computation, instruction: Instruction) -> float:
    """Bytes that an instruction reads from main memory."""
    total = 0.0
    for name in dict.fromkeys(instruction.operands):
        arrays = computation.instructions[name].result
        if len(arrays) != 1:
            total += memory_bytes(arrays)
        elif arrays[0].in_memory:
            total += min(arrays[0].bytes, _used(module, instruction, name, arrays[0].bytes))
    return total


def _used(module: Module, user: Instruction, name: str, whole: float) -> float:
    """Bytes of an operand that an instruction reads: of a slice or a gather, only those."""
    first = user.operands[0] == name
    if user.opcode in _SLICES and first:
        return sum(array.unpadded for array in user.result)
    if user.opcode == "slice-start":
        return user.result[1].unpadded
    if user.opcode in ("dynamic-update-slice", "scatter") and first:
        return 0.0  # written in place
    if user.opcode != "fusion":
        return whole
    total = 0.0
    (called,) = user.called("calls")
    fused = module.computations[called]
    for number, operand in enumerate(user.operands):
        if operand == name:
            total += _used_inside(module, fused, fused.parameters[number].name, whole)
    return total


def _used_inside(module: Module, fused: Computation, name: str, whole: float) -> float:
    total = 0.0
    for user in fused.users[name]:
        if user.opcode in _VIEWS:
            total += _used_inside(module, fused, user.name, whole)
        else:
            total += _used(module, user, name, whole)
    return min(total, whole)


def _written(module: Module, computation: Computation, instruction: Instruction) -> float:
    """Bytes that an instruction writes to main memory."""
    result, taken = instruction.result, len(instruction.operands)
    if instruction.opcode == "copy-start":  # (what it makes, what it takes, …)
        return memory_bytes(result[:1])
    if instruction.opcode.endswith("-start") and len(result) > taken:
        return memory_bytes(result[taken : 2 * taken])  # (what it takes, what it makes, …)
    return _made(module, computation, instruction, instruction.result)


def _made(
    module: Module, computation: Computation, instruction: Instruction, result: tuple[Array, ...]
) -> float:
    """Bytes of a result in main memory; of what is updated in place, only the update."""
    if not memory_bytes(result):
        return 0.0
    if instruction.opcode == "fusion":
        (called,) = instruction.called("calls")
        fused = module.computations[called]
        return _made(module, fused, fused.root, result)
    if instruction.opcode == "tuple" and len(result) == len(instruction.operands):
        parts = zip(computation.operands(instruction), result, strict=True)
        return sum(_made(module, computation, part, (array,)) for part, array in parts)
    if instruction.opcode == "bitcast":
        (operand,) = computation.operands(instruction)
        return _made(module, computation, operand, result)
    if instruction.opcode in ("dynamic-update-slice", "scatter"):
        at = 1 if instruction.opcode == "dynamic-update-slice" else -1
        (update,) = computation.operands(instruction)[at].result
        return update.unpadded
    return memory_bytes(result)


def _gathered(module: Module, computation: Computation, instruction: Instruction) -> float:
    """Slices that are gathered, in single numbers or longer."""
    if instruction.opcode == "gather":
        return instruction.result[0].size / math.prod(instruction.numbers("slice_sizes"))
    if instruction.opcode != "fusion":
        return 0.0
    return sum(
        _gathered(module, module.computations[name], inner)
        for name in instruction.called("calls")
        for inner in module.computations[name].instructions.values()
    )


def _sent(computation: Computation, instruction: Instruction) -> Sent | None:
    kind = _COLLECTIVES.match(instruction.opcode)
    if not kind:
        return None
    size, stride = _group(instruction.attributes)
    payload = sum(a.bytes for operand in computation.operands(instruction) for a in operand.result)
    if kind[1] == "all-gather":
        payload *= size
    return Sent(kind[1], payload, size, stride)


def _group(attributes: str) -> tuple[int, int]:
    """Devices of a collective's group, and from one to the next.

    >>> _group("replica_groups={{0,2},{1,3}}"), _group("replica_groups=[2,4]<=[8]")
    ((2, 2), (4, 1))
    >>> _group("replica_groups=[4,2]<=[2,4]T(1,0)")
    (2, 4)
    >>> _group("replica_groups=mesh['data'=2,'fsdp'=4,'tensor'=1] {'data'}")
    (2, 4)
    >>> _group("replica_groups=mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'a'}")
    (4, 1)
    """
    if listed := re.search(r"(?:replica_groups|source_target_pairs)=\{\{([\d,]+)\}", attributes):
        return _spacing(np.array(listed[1].split(","), int))
    if counted := re.search(rf"replica_groups=\[\d+,(\d+)\]<={_ORDER}", attributes):
        return _spacing(_devices(*counted.group(2, 3)).reshape(-1, int(counted[1]))[0])
    ids = rf"(?:, device_ids=\({_ORDER}\))?"
    named = re.search(rf"replica_groups=mesh\[([^\]]*)\]{ids}\s*\{{([^}}]*)\}}", attributes)
    if not named:
        return 1, 1
    axes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", named[1])}
    sizes = tuple(axes.values())
    devices = _devices(*named.group(2, 3)) if named[2] else np.arange(math.prod(sizes))
    along = tuple(slice(None) if f"'{name}'" in named[4] else 0 for name in axes)
    return _spacing(devices.reshape(sizes)[along].ravel())


def _devices(lengths: str, order: str | None) -> np.ndarray:
    """Numbers of devices, counted up along axes that are then permuted."""
    shape = [int(length) for length in lengths.split(",")]
    devices = np.arange(math.prod(shape)).reshape(shape)
    return devices.transpose([int(axis) for axis in order.split(",")] if order else None)


def _spacing(members: np.ndarray) -> tuple[int, int]:
    """How many, and from one to the next."""
    return len(members), int(abs(members[1] - members[0])) if len(members) > 1 else 1
