"""Time training a population at once against its members one after the other, and against PyTorch.

    python -m benchmarks.many_networks [--model=convnext] [--members=1,8,64] [--seconds=1.0]

The networks of configs/mlp_population.py, float32, on 10,000 images of random pixels, 10 steps per
dispatch. Images are counted over all members, per second of wall time and of processor time, which
other load on the machine hardly changes. Memory is what XLA allots to temporaries and outputs.

Where PyTorch is installed, it trains the same networks in eager mode, after a check on the same
weights: one by one, and at once by `torch.func.vmap` of `grad` over `stack_module_state`, with its
fused AdamW on the stacked parameters. It gathers from uint8 in memory, as ours does.
Medians of 3 repeats, interleaved in one run.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib.util
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

# PyTorch needs its share of a GPU's memory.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.together import Start, group_of
from configs import mlp_population
from mimetic_jax.analysis.chips import peak_flops
from mimetic_jax.analysis.plan import flops_per_step
from mimetic_jax.data import ImageDataset
from mimetic_jax.train.chunk import initial_members
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.group import Group
from mimetic_jax.train.tasks.images import ImageTask

IMAGES, STEPS, IN_TURN, REPEATS = 10_000, 10, 8, 3


@dataclasses.dataclass
class Way:
    """A way to train networks.

    Attributes:
        name: with the library's.
        members: at once.
        images: of all members, per step.
        steps: per call of `run`.
        run: takes a number of steps and waits until the device is done.
        memory: bytes of a dispatch, None where unknown.
    """

    name: str
    members: int
    images: int
    steps: int
    run: Callable[[int], None]
    memory: int | None = None


class Ours:
    """The trainer's program on random pixels.

    Args:
        model: of configs/mlp_population.py.
        images: in the data set.
    """

    def __init__(self, model: str, images: int = IMAGES) -> None:
        self.config = mlp_population.get_config(f"model={model},init=default")
        self.config.max_dispatch = STEPS
        random = np.random.default_rng(0)
        self.pixels = random.integers(0, 256, (images, 32, 32, 3), np.uint8)
        self.labels = random.integers(0, 10, images, np.int32)
        test = self.pixels[: self.config.eval.batch], self.labels[: self.config.eval.batch]
        data = ImageDataset("random", self.pixels, self.labels, *test, 10)
        devices = jax.devices()[:1]
        comparison = Comparison(self.config, lambda line: None, data=data, devices=devices)
        arm = comparison.arms["default"]
        self.info, self.program = arm.source.info, arm.program
        self._arrays = jax.device_put((self.pixels, self.labels), devices[0])

    def in_turn(self, members: int) -> Way:
        """A dispatch of one member after the other."""
        groups = [group_of(self.program, None, [seed]) for seed in range(members)]

        def run(steps: int) -> None:
            jax.block_until_ready([group.steps(self._arrays, steps, [1.0]) for group in groups])

        return Way("ours, one after the other", 1, members * self.config.batch, STEPS, run)

    def together(self, members: int) -> Way:
        """A dispatch of all members."""
        seeds = list(range(members))
        start = functools.partial(initial_members, self.program, self.config, np.array(seeds))
        chunk: Any = Start(seeds, start)
        group = Group(self.program, None, [chunk], lanes=seeds)

        def run(steps: int) -> None:
            jax.block_until_ready(group.steps(self._arrays, steps, [1.0]))

        analysis = self.program.together(members, self._arrays).memory_analysis()
        memory = analysis.temp_size_in_bytes + analysis.output_size_in_bytes
        images = members * self.config.batch
        return Way("ours, at once", members, images, STEPS, run, memory)


def theirs(ours: Ours, members: Sequence[int]) -> list[Way]:
    """PyTorch's ways, if its network gives the same logits on the same weights."""
    from benchmarks.torch_networks import Trainer

    cuda = jax.default_backend() == "gpu"
    trainer = Trainer(ours.config, ours.info, ours.pixels, ours.labels, "cuda" if cuda else "cpu")
    check_same(ours, trainer)
    # On a CPU nothing is gained by a step that isn't waited for, and one of 64 takes seconds.
    batch, steps = ours.config.batch, STEPS if cuda else 1
    ways = [Way("PyTorch, one after the other", 1, batch, steps, trainer.alone())]
    for count in members:
        run = trainer.together(count)
        ways.append(Way("PyTorch, at once", count, count * batch, steps, run))
    return ways


def check_same(ours: Ours, trainer: Any) -> None:
    """Compare numbers of parameters, and logits at random parameters.

    Raises:
        AssertionError: if the networks aren't the same.
    """
    random, program = np.random.default_rng(0), ours.program
    params = jax.tree.map(
        lambda leaf: random.normal(0, 0.3, leaf.shape).astype(np.float32), program.shapes.params
    )
    found = sum(parameter.numel() for parameter in trainer.network().parameters())
    np.testing.assert_equal(found, sum(leaf.size for leaf in jax.tree.leaves(params)))
    task = program.task
    assert isinstance(task, ImageTask)
    with jax.default_matmul_precision("float32"):
        logits, _ = task.outputs({"params": params}, task.view(jnp.asarray(ours.pixels[:8])))
    np.testing.assert_allclose(trainer.logits(params, 8), logits, rtol=1e-4, atol=1e-4)


def rates(ways: Sequence[Way], seconds: float) -> list[tuple[float, float]]:
    """Images per second of wall time and of processor time, each way so long in every repeat."""
    for way in ways:
        way.run(1)  # compiles
    measured: list[list[tuple[float, float]]] = [[] for _ in ways]
    for _ in range(REPEATS):
        for way, found in zip(ways, measured, strict=True):
            time.sleep(0.2)  # until the threads of the other library stop spinning
            began, processor, images = time.perf_counter(), time.process_time(), 0
            while not images or time.perf_counter() - began < seconds:
                way.run(way.steps)
                images += way.images * way.steps
            wall = time.perf_counter() - began
            found.append((images / wall, images / (time.process_time() - processor)))
    return [
        (statistics.median(wall), statistics.median(processor))
        for wall, processor in (zip(*found, strict=True) for found in measured)
    ]


def table(ways: Sequence[Way], measured: Sequence[tuple[float, float]], flops: float) -> str:
    """Markdown: rates, each with its ratio to the first way's; memory per member; MFU.

    Args:
        ways: the first is what the others are compared with.
        measured: `rates` of them.
        flops: per image.
    """
    peak = peak_flops(jax.devices()[0].device_kind)
    columns = ["", "at once", "images/s", "ratio", "images per processor second", "ratio"]
    columns += ["MiB per member"]
    columns += ["TFLOP/s", "of the bfloat16 peak"] if peak else []
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)]]
    for way, own in zip(ways, measured, strict=True):
        cells = [way.name, str(way.members)]
        for rate, first in zip(own, measured[0], strict=True):
            cells += [f"{rate:,.0f}", f"{rate / first:.2f}"]
        cells.append(f"{way.memory / way.members / 2**20:.1f}" if way.memory else "")
        if peak:
            reached = own[0] * flops
            cells += [f"{reached / 1e12:.2f}", f"{100 * reached / peak:.2f} %"]
        lines.append(cells)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="convnext", choices=("convnext", "vit"))
    parser.add_argument("--members", help="at once; 1,8,64, and 512 unless on a CPU")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each way in each repeat")
    flags = parser.parse_args(arguments)
    chosen = "1,8,64" if jax.default_backend() == "cpu" else "1,8,64,512"
    members = [int(count) for count in (flags.members or chosen).split(",")]
    ours = Ours(flags.model)
    ways = [ours.in_turn(IN_TURN), *map(ours.together, members)]
    if importlib.util.find_spec("torch"):
        ways += theirs(ours, members)
    flops = flops_per_step(ours.program) / ours.config.batch
    print(f"{flags.model} on {jax.devices()[0].device_kind}\n")
    print(table(ways, rates(ways, flags.seconds), flops))


if __name__ == "__main__":
    main()
