"""Operations for the images that chose them, against `lax.cond` of one image after the other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax.data.augment.chosen import where_chosen

IMAGES = jnp.asarray(np.random.default_rng(0).integers(0, 256, (6, 4, 5, 3)), jnp.float32)
CHOSEN = jnp.array([False, True, True, False, False, True])
FACTORS = jnp.arange(6, dtype=jnp.float32)


def scaled(image, by):
    return image * by["factor"] + by["shift"]


def changed(chosen, image, factor, shift=1.0):
    by = {"factor": factor, "shift": jnp.asarray(shift)}
    return where_chosen(chosen, scaled, image, by, share=0.5)


EXPECTED = np.where(
    np.asarray(CHOSEN)[:, None, None, None],
    np.asarray(IMAGES) * np.asarray(FACTORS)[:, None, None, None] + 1,
    np.asarray(IMAGES),
)


def test_only_chosen_images_change():
    some, alone = jax.jit(jax.vmap(changed)), jax.jit(changed)
    np.testing.assert_array_equal(some(CHOSEN, IMAGES, FACTORS), EXPECTED)
    found = [alone(*example) for example in zip(CHOSEN, IMAGES, FACTORS, strict=True)]
    np.testing.assert_array_equal(jnp.stack(found), EXPECTED)
    every = IMAGES * FACTORS[:, None, None, None] + 1
    np.testing.assert_array_equal(some(jnp.full(6, True), IMAGES, FACTORS), every)
    np.testing.assert_array_equal(some(jnp.full(6, False), IMAGES, FACTORS), IMAGES)


def test_one_choice_or_one_image_for_all_and_batches_of_batches():
    @jax.jit
    def found():
        two = (jnp.stack([CHOSEN, ~CHOSEN]), jnp.stack([IMAGES] * 2), jnp.stack([FACTORS] * 2))
        return (
            jax.vmap(changed, in_axes=(None, 0, None))(CHOSEN[1], IMAGES, FACTORS[2]),
            jax.vmap(changed, in_axes=(0, None, 0))(CHOSEN, IMAGES[0], FACTORS),
            jax.vmap(jax.vmap(changed))(*two),
        )

    one_choice, one_image, twice = found()
    every, by_image = IMAGES * FACTORS[:, None, None, None] + 1, CHOSEN[:, None, None, None]
    np.testing.assert_array_equal(one_choice, IMAGES * 2 + 1)
    image = IMAGES[0] * FACTORS[:, None, None, None] + 1
    np.testing.assert_array_equal(one_image, jnp.where(by_image, image, IMAGES[0]))
    np.testing.assert_array_equal(twice[0], EXPECTED)
    np.testing.assert_array_equal(twice[1], jnp.where(by_image, IMAGES, every))


@pytest.mark.parametrize("beyond", [-0.9, 0.0, 3.0], ids=["pieces of 2", "of 3", "of all"])
@pytest.mark.parametrize("chosen", [CHOSEN, CHOSEN & False, CHOSEN | True], ids=["3", "0", "6"])
def test_gpus_change_the_same_images_in_pieces(chosen, beyond, monkeypatch):
    monkeypatch.setattr("mimetic_jax.data.augment.chosen.BEYOND", beyond)
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda *, cuda, **_: cuda())
    found = jax.jit(jax.vmap(changed))(chosen, IMAGES, FACTORS)
    every = IMAGES * FACTORS[:, None, None, None] + 1
    np.testing.assert_array_equal(found, np.where(chosen[:, None, None, None], every, IMAGES))
