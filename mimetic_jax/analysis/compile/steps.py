"""The training and evaluation step of a program, compiled for its mesh."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from mimetic_jax.analysis.compile.hlo import parse
from mimetic_jax.analysis.compile.kernels import Kernel, step_kernels
from mimetic_jax.train.cluster.mesh import MEMBERS
from mimetic_jax.train.chunk import rounded, wanted
from mimetic_jax.train.program import Program

_WITHOUT_TRITON: dict[str, str | bool] = {"xla_gpu_enable_triton_gemm": False}
"""On a GPU, XLA times its own products against cuBLAS's. Without one it takes its own untimed, for
some shapes with tiles that don't exist: then all products are cuBLAS's."""


class OutOfMemoryError(Exception):
    """A step for which the compiler finds no room on a device.

    Attributes:
        bytes: that it needs, 0 if the compiler doesn't say.
    """

    def __init__(self, needed: float) -> None:
        super().__init__(f"needs {needed / 1e9:.1f} GB")
        self.bytes = needed


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A compiled step.

    Attributes:
        kernels: of a step on each device.
        held: bytes of arguments and results on each device: state and data.
        temporary: bytes of everything else.
        seconds: of compiling.
    """

    kernels: Sequence[Kernel]
    held: float
    temporary: float
    seconds: float

    @property
    def bytes(self) -> float:
        """On each device."""
        return self.held + self.temporary


def members_at_once(config: ConfigDict, program: Program) -> int:
    """Members that a population trains at once, if they fit; 1 for single runs."""
    if not config.members:
        return 1
    return rounded(wanted(config), program.mesh.shape[MEMBERS])


def train_step(program: Program, members: int) -> Compiled:
    """The dispatch that training runs; a step of it, where kernels are counted.

    Args:
        program: on a mesh of the target's devices.
        members: of a population that train at once; 1 for a single run.

    Raises:
        OutOfMemoryError: if it doesn't fit on a device.
    """
    arrays = program.feed.shapes().arrays
    if MEMBERS in program.mesh.shape:
        return _compiled(program, lambda: program.lower_together(members, arrays))
    key = jax.eval_shape(lambda: jax.random.key(0))
    count, scale = (jax.ShapeDtypeStruct((), dtype) for dtype in (jnp.int32, jnp.float32))
    lower = program.run_steps.lower
    return _compiled(program, lambda: lower(program.shapes, arrays, key, key, count, scale))


def test_step(program: Program, members: int) -> Compiled:
    """The evaluation of one batch; arguments and errors as of `train_step`."""
    shapes, variables = program.feed.shapes(), program.shapes.variables
    count: Any = program.task.count
    if MEMBERS in program.mesh.shape:
        count, variables = program.count_together, program.stacked(members, variables)
    lower = jax.jit(count).lower
    return _compiled(program, lambda: lower(variables, shapes.test, shapes.test_weights))


def _compiled(program: Program, lower: Callable[[], jax.stages.Lowered]) -> Compiled:
    began = time.perf_counter()
    # Models choose their kernels by the default device.
    with jax.default_device(program.mesh.devices.flat[0]):
        lowered = lower()
        try:
            try:
                compiled = lowered.compile()
            except jax.errors.JaxRuntimeError as error:
                if "Couldn't find output tile sizes" not in str(error):
                    raise
                compiled = lowered.compile(_WITHOUT_TRITON)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            raise OutOfMemoryError(_needed(str(error))) from error
    seconds = time.perf_counter() - began
    memory: Any = compiled.memory_analysis()
    return Compiled(
        kernels=step_kernels(parse(compiled.as_text() or "")),
        held=memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        - memory.alias_size_in_bytes,
        temporary=memory.temp_size_in_bytes,
        seconds=seconds,
    )


def _needed(message: str) -> float:
    """Bytes that the compiler says it needs, such as "Used 24.51G of 15.75G hbm"."""
    found = re.search(r"Used ([\d.]+)([KMGT]) of [\d.]+[KMGT] hbm", message)
    return float(found[1]) * 1024 ** (1 + "KMGT".index(found[2])) if found else 0.0
