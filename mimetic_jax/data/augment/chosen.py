"""Operations that few images of a batch need, computed for those alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

TURNS = "turns_"
"""Names the scope of a loop whose number of turns the data decides, before the expected number."""


def where_chosen(
    chosen: jax.Array,
    operation: Callable[..., jax.Array],
    image: jax.Array,
    *arguments: Any,
    share: float,
) -> jax.Array:
    """`operation(image, *arguments)` where it is chosen, else the image.

    Under `vmap` a `lax.cond` computes both branches for every image. On CPUs and TPUs this is a
    loop over the images that are chosen, one after the other. A GPU would wait for each turn of it,
    and computes the operation for every image.

    Args:
        chosen: bool [].
        operation: returns an array of the image's shape and dtype; everything that differs between
            images is among its arguments.
        image: [h, w, C].
        arguments: trees of arrays.
        share: expected part of the images that are chosen, for reports on the compiled program.

    Example:
        >>> double = lambda chosen, image: where_chosen(chosen, lambda x: 2 * x, image, share=0.5)
        >>> jax.vmap(double)(jnp.array([True, False]), jnp.ones((2, 1, 1, 1))).ravel().tolist()
        [2.0, 1.0]
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

        def one_by_one() -> jax.Array:
            first = jnp.argsort(~chosen)

            def turn(index: jax.Array, images: jax.Array) -> jax.Array:
                at = first[index]
                image, own = jax.tree.map(lambda values: values[at], (images, arguments))
                return images.at[at].set(operation(image, *own))

            with jax.named_scope(f"{TURNS}{share * size:.4g}"):
                return jax.lax.fori_loop(0, chosen.sum(), turn, images)

        def at_once() -> jax.Array:
            everywhere = jax.vmap(operation)(images, *arguments)
            return jnp.where(chosen[:, None, None, None], everywhere, images)

        return jax.lax.platform_dependent(cuda=at_once, rocm=at_once, default=one_by_one), True

    return changed(chosen, image, arguments)
