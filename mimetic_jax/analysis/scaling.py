"""The cost of a training step on many accelerators, by arithmetic alone: docs/scaling.md."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh
from ml_collections import ConfigDict

from mimetic_jax import paths
from mimetic_jax.analysis.chips import H100, V5E, Chip
from mimetic_jax.errors import InputError
from mimetic_jax.models import Sizes
from mimetic_jax.train.cluster import mesh as meshes
from mimetic_jax.train.program import Program
from mimetic_jax.train.tasks.text import TextTask

UTILIZATION = 0.4
"""Share of peak FLOP/s that products are assumed to reach: an assumption, not a measurement."""

PLANNED = ((V5E, 256), (H100, 64))
"""The machines of a plan."""

ALONE = 3600.0
"""Seconds: a plan has no machines for a training that one of the first's chips ends sooner."""


@dataclasses.dataclass(frozen=True)
class Work:
    """What each device computes, sends and holds per step, on any chip.

    Attributes:
        mesh: sizes of data, fsdp and tensor.
        batch: examples of a step, on all devices together.
        flops: of a step, on all devices together.
        half: whether these are of bfloat16.
        gathered: bytes of parameters that are all-gathered over fsdp.
        scattered: bytes of gradients that are reduce-scattered over fsdp, then all-reduced over
            data.
        reduced: bytes of gradients that are all-reduced over data and fsdp.
        exchanged: bytes of activations that are all-reduced over tensor.
        state: bytes of parameters, their average and the optimizer's moments.
        gradients: bytes of all gradients.
        activations: bytes that grow with the batch.
        buffers: other bytes: a chunk of logits, parameters in the precision of the computation.
    """

    mesh: tuple[int, int, int]
    batch: int
    flops: float
    half: bool
    gathered: float
    scattered: float
    reduced: float
    exchanged: float
    state: float
    gradients: float
    activations: float
    buffers: float


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A step on paper: seconds of its parts, and bytes on a device.

    Attributes:
        compute: seconds at `UTILIZATION` of the peak.
        reduce: seconds of summing gradients over data and fsdp.
        gather: seconds of gathering parameters that are sharded over fsdp.
        exchange: seconds of summing activations over tensor.
        update: seconds of the optimizer, which reads and writes all of the state.
        memory: bytes on a device.
        least_batch: below it communication takes longer than compute; inf if it always does.
        largest_batch: that fits in memory.
    """

    compute: float
    reduce: float
    gather: float
    exchange: float
    update: float
    memory: float
    least_batch: float
    largest_batch: float

    @property
    def communication(self) -> float:
        """Seconds of all of it."""
        return self.reduce + self.gather + self.exchange


def estimate(work: Work, chip: Chip) -> Estimate:
    """The arithmetic of a step on a mesh of data d, fsdp f, tensor t.

    An all-reduce costs a reduce-scatter and an all-gather. Compute and communication of activations
    grow with the batch; that of parameters doesn't, and compute must cover it.

    Args:
        work: of the step.
        chip: of which there are d f t: along tensor next to each other, then fsdp, then data.

    Raises:
        InputError: if these are more chips than are connected.

    Example:
        >>> mlp = Work((8, 1, 1), 64, 2.4e13, True, 0, 0, 1e9, 0, 12e9, 4e9, 1e9, 0)
        >>> paper = estimate(mlp, H100)  # 1 GB of gradients, on one node
        >>> f"{1e3 * paper.compute:.1f} ms, {1e3 * paper.communication:.1f} ms"
        '7.6 ms, 3.9 ms'
    """
    data, fsdp, tensor = work.mesh
    chips = data * fsdp * tensor
    peak = chip.flops if work.half else chip.flops32
    compute = work.flops / chips / (UTILIZATION * peak)
    reduce = (
        chip.seconds(work.scattered, fsdp, tensor, chips)
        + 2 * chip.seconds(work.scattered / fsdp, data, fsdp * tensor, chips)
        + 2 * chip.seconds(work.reduced, data * fsdp, tensor, chips)
    )
    gather = chip.seconds(work.gathered, fsdp, tensor, chips)
    exchange = 2 * chip.seconds(work.exchanged, tensor, 1, chips)
    spare = compute - exchange
    fixed = work.state + work.gradients + work.buffers
    return Estimate(
        compute=compute,
        reduce=reduce,
        gather=gather,
        exchange=exchange,
        update=(2 * work.state + work.gradients) / chip.bandwidth,
        memory=fixed + work.activations,
        least_batch=work.batch * (reduce + gather) / spare if spare > 0 else math.inf,
        largest_batch=work.batch * max(chip.memory - fixed, 0) / work.activations,
    )


def block_bytes(
    length: int,
    width: int,
    hidden: int,
    heads: int,
    itemsize: int,
    *,
    tensor: int = 1,
    dropout: bool = False,
    gated: bool = False,
    flash: bool = False,
) -> float:
    """Bytes per token that a block saves for its backward pass, as JAX's derivatives do.

    In the precision of the computation: what two norms take and return, query, key, value, what is
    attended, what GELU takes and returns, and probabilities. Of SwiGLU what it takes twice and
    returns, and three of the gate's SiLU. In float32 always: the softmax's exponentials.

    Args:
        length: N, tokens that a token attends to.
        width: D.
        hidden: F.
        heads: H.
        itemsize: bytes of a number of the computation.
        tensor: devices over which heads and hidden units are sharded.
        dropout: masks of one byte, two of the width.
        gated: SwiGLU in place of GELU.
        flash: attention that keeps no probabilities.

    Example:
        >>> block_bytes(197, 768, 3072, 12, itemsize=2)  # of DeiT-B
        38856.0
    """
    scores = 4 * heads if flash else heads * (length * (itemsize + 4) + 8)
    whole = 4 * width * itemsize + 2 * width * dropout
    return whole + (itemsize * (4 * width + (6 if gated else 2) * hidden) + scores) / tensor


# Leaves whose computation, gathers and sums are float32 in any precision.
_FLOAT32 = r"(^|/)(norm\d?|head)/|embedding$|decoder_bias$"


def transformer_sizes(program: Program) -> Sizes | None:
    """Sizes of the program's blocks, where its model tells them."""
    model = program.task.model
    if model.traits.sizes is None:
        return None
    return model.traits.sizes(model.module, program.task.input_shape)


def work(
    program: Program,
    config: ConfigDict,
    mesh: tuple[int, int, int],
    flops: float,
    *,
    flash: bool = False,
) -> Work:
    """The work of a program's step on a mesh, whose devices needn't exist.

    Nothing is compiled: the program's rules give the shardings. Parameters are gathered, and
    gradients summed, in the precision of the computation; for each part of a batch that is
    accumulated. Blocks are gathered again for the backward pass where `scan` or `remat` keeps no
    copy. The backward pass holds half a block's worth beside what blocks have saved; with `remat`
    blocks save their inputs, and one block at a time the rest.

    Args:
        program: of any mesh.
        config: that it was made of.
        mesh: sizes of data, fsdp and tensor.
        flops: of a step, as `analysis.plan` counts them.
        flash: whether the chip's attention keeps no probabilities where it can.
    """
    data, fsdp, tensor = mesh
    task: Any = program.task
    sizes, text = transformer_sizes(program), isinstance(task, TextTask)
    if sizes is None:
        raise InputError(f"model {task.model.name} has no trait `sizes`: nothing to plan from")
    size = jnp.dtype(task.model.module.dtype).itemsize
    everywhere: Any = AbstractMesh(mesh, ("data", "fsdp", "tensor"))

    def placed(tree: Any) -> list[tuple[str, int, bool, int]]:
        """Path, numbers per device, whether they are sharded over fsdp, bytes per number."""
        leaves, _ = paths.flatten(tree)
        where = jax.tree.leaves(meshes.shardings(tree, everywhere, program.sharding_rules))
        return [
            (
                path,
                math.prod(at.shard_shape(leaf.shape)),
                fsdp > 1 and "fsdp" in at.spec,
                leaf.dtype.itemsize,
            )
            for (path, leaf), at in zip(leaves, where, strict=True)
        ]

    gathered = scattered = reduced = buffers = 0.0
    for path, count, cut, _ in placed(program.shapes.params):
        exact, block = re.search(_FLOAT32, path), path.startswith("block")
        sent = count * (4 if exact else size) * (fsdp if cut else 1)
        if cut:
            gathered += sent * (2 if block and (sizes.scan or sizes.remat) else 1)
        if cut and path.endswith("kernel"):
            scattered += sent
        else:  # tables are summed whole, positions in float32; an embedding for its two uses
            summed = 4 * count * (fsdp if cut else 1) if path.endswith("pos_embed") else sent
            reduced += summed * (2 if path == "embedding" else 1)
        if cut or (size < 4 and not exact):
            buffers += sent / (sizes.depth if block and sizes.remat else 1)

    examples = config.batch / (data * fsdp)
    part = examples / config.accumulate
    length, width = sizes.length, sizes.width
    residual = length * width * size  # bytes of the residual activations of one example
    head = width // sizes.heads
    saved = length * block_bytes(
        length,
        width,
        sizes.hidden,
        sizes.heads,
        size,
        tensor=tensor,
        dropout=sizes.dropout,
        gated=sizes.gated,
        flash=flash and size < 4 and head % 8 == 0 and head <= 128,
    )
    in_hand = part * saved * (1.5 if sizes.remat else 0.5)
    activations = in_hand + part * sizes.depth * (residual if sizes.remat else saved)
    gradients = sum(4 * count for _, count, _, _ in placed(program.shapes.params))
    if text:
        embedding = 4 * task.info.vocabulary * width
        gradients += embedding  # of its second use
        logits = 4 * task.info.vocabulary * part * task.valid
        # Twice a chunk, which is gone when the blocks' turn comes.
        buffers += max(0.0, 2 * min(task.chunk_bytes, logits) - in_hand)
    else:
        activations += 2 * 4 * examples * math.prod(task.input_shape)
    # Forward one sum after attention and one after the MLP; backward one before the MLP, two before
    # SwiGLU, and one for each of query, key and value. Recomputing a block repeats that after
    # attention.
    sums = sizes.depth * (6 + sizes.gated + sizes.remat)
    return Work(
        mesh=mesh,
        batch=config.batch,
        flops=flops,
        half=size < 4,
        gathered=config.accumulate * gathered,
        scattered=config.accumulate * scattered,
        reduced=config.accumulate * reduced,
        exchanged=sums * examples * residual if tensor > 1 else 0.0,
        state=sum(
            count * itemsize
            for tree in (program.shapes.params, program.shapes.ema, program.shapes.opt_state)
            for _, count, _, itemsize in placed(tree)
        ),
        gradients=gradients,
        activations=activations,
        buffers=buffers,
    )


def lines(program: Program, config: ConfigDict, flops: float) -> list[str]:
    """A step on as many of each of `PLANNED` as the batch can be sharded over, for a plan.

    None where a single chip trains all steps in less than `ALONE`: many would wait for each other.

    Args:
        program: of any mesh.
        config: that it was made of, whose fsdp and tensor are kept.
        flops: of a step, as `analysis.plan` counts them.
    """
    if program.steps * flops / (UTILIZATION * PLANNED[0][0].flops) < ALONE:
        return []
    return [_line(program, config, flops, chip, count) for chip, count in PLANNED]


def mesh_on(config: ConfigDict, count: int) -> tuple[int, int, int] | None:
    """The mesh over as many of `count` devices as the batch can be sharded over, if there is any.

    Args:
        config: whose fsdp and tensor are kept.
        count: halved until it fits.
    """
    fsdp, tensor = config.mesh.fsdp, config.mesh.tensor
    while count % (fsdp * tensor) or config.batch % (config.accumulate * count // tensor):
        count //= 2
        if not count:
            return None
    return count // (fsdp * tensor), fsdp, tensor


def _line(program: Program, config: ConfigDict, flops: float, chip: Chip, planned: int) -> str:
    fsdp, tensor = config.mesh.fsdp, config.mesh.tensor
    mesh = mesh_on(config, planned)
    if mesh is None:
        return f"  on {chip.name}: fsdp {fsdp} x tensor {tensor} don't divide a power of two"
    count = math.prod(mesh)
    paper = estimate(work(program, config, mesh, flops, flash=chip.flash), chip)
    axes = f"data {mesh[0]}" + "".join(
        f" x {name} {size}" for name, size in (("fsdp", fsdp), ("tensor", tensor)) if size > 1
    )
    few = f" of {planned}" if count < planned else ""
    axes += "; the batch can't be cut further" if few else ""
    least = paper.least_batch
    when = "at any batch" if math.isinf(least) else f"below batch {least:.0f}"
    return (
        f"  on {count}{few} {chip.name} ({axes}): compute {1e3 * paper.compute:.3g} ms at "
        f"{100 * UTILIZATION:.0f} % of peak, communication {1e3 * paper.communication:.3g} ms "
        f"(takes over {when}), update {1e3 * paper.update:.3g} ms, "
        f"{paper.memory / 1e9:.3g} of {chip.memory / 1e9:.0f} GB per device"
    )
