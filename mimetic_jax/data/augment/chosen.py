"""Operations that few images of a batch need, computed for those alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

BEYOND = 3
"""Standard deviations beyond the expected number of images that a GPU takes at once."""


def where_chosen(
    chosen: jax.Array,
    operation: Callable[..., jax.Array],
    image: jax.Array,
    *arguments: Any,
    share: float,
) -> jax.Array:
    """Return `operation(image, *arguments)` if it is chosen, else the image.

    Under `vmap` a `lax.cond` computes both branches for every image. This is a loop over those that
    are chosen: on CPUs and TPUs one after the other. A GPU, which waits for each turn of a loop,
    takes as many at once as are chosen in nearly every batch, by the expected `share`.

    Everything that differs between images is among the arguments, which are trees of arrays.
    """

    @jax.custom_batching.custom_vmap
    def changed(chosen: jax.Array, image: jax.Array, arguments: Any) -> jax.Array:
        return jax.lax.cond(chosen, lambda: operation(image, *arguments), lambda: image)

    @changed.def_vmap
    def of_batch(
        size: int, batched: Any, chosen: jax.Array, images: jax.Array, arguments: Any
    ) -> tuple[jax.Array, bool]:
        def each(is_batched: bool, value: jax.Array) -> jax.Array:
            return value if is_batched else jnp.broadcast_to(value, (size, *value.shape))

        chosen, images, arguments = jax.tree.map(each, tuple(batched), (chosen, images, arguments))

        first, count = jnp.argsort(~chosen), chosen.sum()

        def in_turns(turns: jax.Array, places: jax.Array, apply: Any) -> jax.Array:
            def turn(index: jax.Array, images: jax.Array) -> jax.Array:
                at = places[index]
                some, own = jax.tree.map(lambda values: values[at], (images, arguments))
                return images.at[at].set(apply(some, *own))

            return jax.lax.fori_loop(0, turns, turn, images)

        def one_by_one() -> jax.Array:
            return in_turns(count, first, operation)

        def many_at_once() -> jax.Array:
            expected = share * size
            piece = max(math.ceil(expected + BEYOND * math.sqrt(expected * (1 - share))), 1)
            # Nothing is written to places outside the batch: those beyond the chosen images.
            ranks = jnp.arange(-(-size // piece) * piece)
            places = jnp.where(ranks < count, first[ranks], size).reshape(-1, piece)
            return in_turns(-(-count // piece), places, jax.vmap(operation))

        at_once = {"cuda": many_at_once, "rocm": many_at_once}
        return jax.lax.platform_dependent(**at_once, default=one_by_one), True

    return changed(chosen, image, arguments)
