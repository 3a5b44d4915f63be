"""What fits on a device where a step doesn't."""

from __future__ import annotations

from collections.abc import Iterator

from mimetic_jax.analysis.compile.target import Target
from mimetic_jax.analysis.plan import bytes_per_device
from mimetic_jax.train.cluster.mesh import MEMBERS
from mimetic_jax.train.arm import Arm


def held_bytes(arm: Arm, members: int) -> float:
    """Bytes of state and data on each device, which don't depend on the batch."""
    program = arm.program
    each = members // program.mesh.shape.get(MEMBERS, 1)
    return each * bytes_per_device(program.shapes) + program.feed.data_bytes()


def remedy(arm: Arm, target: Target, needed: float, members: int, *, training: bool) -> str:
    """One line for a step that doesn't fit: smaller batches or chunks, remat, fsdp.

    What grows with the batch is everything but state and data.

    Args:
        arm: whose step it is.
        target: that it is compiled for.
        needed: bytes on a device; 0 if the compiler doesn't say.
        members: of a population that train at once; 1 for a single run.
        training: whether it is the training step.
    """
    room = target.chip.memory
    held = held_bytes(arm, members)
    need = f"needs {needed / 1e9:.3g} of {room / 1e9:.0f} GB" if needed else "doesn't fit"
    found = list(_remedies(arm, target, needed, held, members, training))
    step = "the training step" if training else "the evaluation"
    what = ", or ".join(found) or "a chip with more memory"
    return f"  error: {step} {need} per device, {held / 1e9:.3g} of it state and data; try {what}"


def _remedies(
    arm: Arm, target: Target, needed: float, held: float, members: int, training: bool
) -> Iterator[str]:
    config, room = arm.config, target.chip.memory
    share = (room - held) / (needed - held) if needed > held else 0.0
    batch = config.batch if training else config.eval.batch
    if config.members:
        devices = arm.program.mesh.shape[MEMBERS]
        chunk = int(members * room / needed) // devices * devices if needed else members // 2
        if chunk:
            yield f"--config.chunk={chunk}"
        return
    rows = target.count // config.mesh.tensor * (config.accumulate if training else 1)
    if (fitting := int(batch * share) // rows * rows) > 0:
        yield f"--config.batch={fitting}" if training else f"--config.eval.batch={fitting}"
        parts = config.accumulate
        while batch // parts * config.accumulate > fitting:
            parts *= 2
        if training and batch % (parts * rows // config.accumulate) == 0:
            yield f"--config.accumulate={parts}"
    if training and config.model.get("remat") is False:
        yield "--config.model.remat=True"
    if held > room / 4 and config.mesh.fsdp == 1 and target.count > 1:
        yield f"--config.mesh.fsdp={target.count // config.mesh.tensor}"
