"""Time what data on the device adds to a training step: ViT-Ti/4 at the size of CIFAR.

    python -m benchmarks.pipeline

A dispatch of the trainer (shuffle, gather, augment, step) against the same steps on one prepared
batch; and the augmentation alone, in images per second. Random pixels, medians of 5 dispatches of
2 steps each, interleaved in one run.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.timing import medians
from configs import cifar10_vit
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.state import TrainState, stream

BATCH, STEPS = 64, 2


def main() -> None:
    """Print images per second and ratios."""
    config = cifar10_vit.get_config("patch=4")
    config.batch, config.max_dispatch = BATCH, STEPS
    program = Comparison(config, lambda line: None).arms["default"].program
    random = np.random.default_rng(0)
    images = jnp.asarray(random.integers(0, 256, (5_000, 32, 32, 3), np.uint8))
    labels = jnp.asarray(random.integers(0, 10, 5_000, np.int32))
    keys = stream(0, "data"), stream(0, "dropout")
    ready = program.task.prepare(keys[0], jnp.int32(0), (images[:BATCH], labels[:BATCH]))

    @jax.jit
    def fixed(state: TrainState) -> TrainState:
        def one(_: Any, state: TrainState) -> TrainState:
            return program._step(state, ready, keys[1])[0]

        return jax.lax.fori_loop(0, STEPS, one, state)

    augment = jax.jit(program.task.prepare)
    state = program.initial_state(0)
    start = jax.tree.map(np.asarray, state)  # run_steps donates its state

    def dispatch() -> Any:
        placed = jax.tree.map(
            lambda x, like: jax.device_put(x, like.sharding), start, program.shapes
        )
        return program.run_steps(placed, (images, labels), *keys, jnp.int32(STEPS))

    trained, bare, augmented = medians(
        [
            dispatch,
            lambda: fixed(state),
            lambda: augment(keys[0], jnp.int32(0), (images[:BATCH], labels[:BATCH])),
        ]
    )
    rate = STEPS * BATCH / bare
    print(f"step on a prepared batch        {rate:9.1f} images/s")
    print(f"step with data and augmentation {STEPS * BATCH / trained:9.1f} images/s")
    print(f"overhead                        {100 * (trained / bare - 1):9.1f} %")
    print(f"augmentation alone              {BATCH / augmented:9.1f} images/s, ", end="")
    print(f"{BATCH / augmented / rate:.0f} times the step")


if __name__ == "__main__":
    main()
