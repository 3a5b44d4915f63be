"""Each operation against its definition, and each example's independence from the others."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax.data import Augmentation, augment, example_keys, normalize
from mimetic_jax.errors import InputError

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
PLAIN_MEAN, PLAIN_STD = (0.0, 0.0, 0.0), (1 / 255,) * 3
KEY = jax.random.key(11)


def pictures(count: int, height: int = 9, width: int = 7) -> np.ndarray:
    """Images of random pixels, none of them black: padding stands out, windows are unique."""
    return np.random.default_rng(0).integers(1, 256, (count, height, width, 3), np.uint8)


@functools.partial(jax.jit, static_argnums=0)
def normalised(augmentation: Augmentation, keys: jax.Array, images: jax.Array) -> jax.Array:
    return augment(augmentation, keys, images, MEAN, STD)


@functools.partial(jax.jit, static_argnums=0)
def in_levels(augmentation: Augmentation, keys: jax.Array, images: jax.Array) -> jax.Array:
    """Augmented, with a mean and a standard deviation that leave the levels 0..255."""
    return augment(augmentation, keys, images, PLAIN_MEAN, PLAIN_STD)


def levels(augmentation: Augmentation, images: np.ndarray, step: int = 0) -> np.ndarray:
    out = np.asarray(in_levels(augmentation, example_keys(KEY, step, len(images)), images))
    assert out.shape == images.shape
    np.testing.assert_allclose(out, np.rint(out), atol=1e-3)
    return np.rint(out).astype(int)


def test_normalize_against_its_formula() -> None:
    images = pictures(3)
    out = normalize(jnp.asarray(images), MEAN, STD)
    assert out.dtype == jnp.float32
    np.testing.assert_allclose(out, (images / 255 - MEAN) / STD, atol=1e-6)


def test_no_augmentation_only_normalises() -> None:
    images = pictures(4)
    out = normalised(Augmentation(), example_keys(KEY, 0, 4), images)
    assert out.dtype == jnp.float32
    np.testing.assert_allclose(out, (images / 255 - MEAN) / STD, atol=1e-6)


@pytest.mark.parametrize("padding", [1, 4])
def test_a_crop_is_a_window_of_the_padded_image(padding: int) -> None:
    images = pictures(200)
    padded = np.pad(images, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    offsets = []
    for out, source in zip(levels(Augmentation(crop=padding), images), padded, strict=True):
        windows = np.lib.stride_tricks.sliding_window_view(source, out.shape)[:, :, 0]
        found = np.argwhere((windows == out).all(axis=(2, 3, 4)))
        assert len(found) == 1
        offsets.append(tuple(found[0].tolist()))
    # Every offset is as likely as any other, black borders included.
    assert {top for top, _ in offsets} == set(range(2 * padding + 1))
    assert {left for _, left in offsets} == set(range(2 * padding + 1))


def test_a_flip_mirrors_left_and_right_half_of_the_time() -> None:
    images = pictures(400)
    out = levels(Augmentation(flip=True), images)
    kept = (out == images).all(axis=(1, 2, 3))
    mirrored = (out == images[:, :, ::-1]).all(axis=(1, 2, 3))
    assert np.all(kept ^ mirrored)
    assert 0.4 < mirrored.mean() < 0.6


@pytest.mark.parametrize("side", [1, 2, 3, 7])
def test_cutout_is_one_clipped_square_of_the_mean_colour(side: int) -> None:
    images = pictures(300)
    plain = (images / 255 - np.array(MEAN)) / STD
    out = np.asarray(normalised(Augmentation(cutout=side), example_keys(KEY, 0, 300), images))
    holes = (out == 0).all(axis=-1)
    np.testing.assert_allclose(out[~holes], plain[~holes], atol=1e-5)

    centres = set()
    for hole in holes:
        rows, columns = np.flatnonzero(hole.any(axis=1)), np.flatnonzero(hole.any(axis=0))
        assert hole.sum() == len(rows) * len(columns)
        for line, size in ((rows, 9), (columns, 7)):
            assert np.array_equal(line, np.arange(line[0], line[0] + len(line)))
            at_border = line[0] == 0 or line[-1] == size - 1
            assert len(line) == side or (at_border and side // 2 <= len(line) < side)
        centres.add((rows[0], columns[0], len(rows), len(columns)))
    # Uniform centres over 9x7 pixels: nearly all of the 63 squares turn up in 300 draws.
    assert len(centres) > 55


def test_operations_do_not_disturb_each_others_draws() -> None:
    images = pictures(50)
    keys = example_keys(KEY, 0, 50)
    crop = levels(Augmentation(crop=3), images)
    both = levels(Augmentation(crop=3, flip=True), images)
    same = (both == crop).all(axis=(1, 2, 3))
    mirrored = (both == crop[:, :, ::-1]).all(axis=(1, 2, 3))
    assert np.all(same | mirrored)
    assert same.any()
    assert mirrored.any()

    # Cutout comes after the crop and touches nothing outside its square.
    cut = np.asarray(normalised(Augmentation(crop=3, flip=True, cutout=4), keys, images))
    uncut = np.asarray(normalised(Augmentation(crop=3, flip=True), keys, images))
    assert np.all((cut == 0) | np.isclose(cut, uncut, atol=1e-6))
    assert np.all((cut == 0).all(axis=-1).sum(axis=(1, 2)) >= 4)


def test_an_example_depends_on_its_own_key_only() -> None:
    augmentation = Augmentation(crop=4, flip=True, cutout=5)
    images, keys = pictures(16), example_keys(KEY, 7, 16)
    out = np.asarray(normalised(augmentation, keys, images))
    order = np.random.default_rng(1).permutation(16)
    np.testing.assert_allclose(
        normalised(augmentation, keys[order], images[order]), out[order], atol=1e-6
    )
    for index in (0, 9):
        alone = normalised(augmentation, keys[index : index + 1], images[index : index + 1])
        np.testing.assert_allclose(alone[0], out[index], atol=1e-6)


def test_example_keys_follow_key_step_and_place() -> None:
    keys = jax.jit(lambda step: example_keys(KEY, step, 5))(3)
    expected = jax.random.fold_in(jax.random.fold_in(KEY, 3), 4)
    assert np.array_equal(jax.random.key_data(keys[4]), jax.random.key_data(expected))
    assert np.array_equal(
        jax.random.key_data(example_keys(KEY, 3, 8)[:5]), jax.random.key_data(keys)
    )
    drawn = np.concatenate([jax.random.key_data(example_keys(KEY, step, 5)) for step in range(4)])
    assert len({bytes(row) for row in drawn}) == 20


def test_old_style_keys_give_the_same() -> None:
    augmentation = Augmentation(crop=2, flip=True, cutout=3)
    images = pictures(4)
    old = example_keys(jax.random.PRNGKey(11), 0, 4)
    np.testing.assert_array_equal(
        normalised(augmentation, old, images),
        normalised(augmentation, example_keys(KEY, 0, 4), images),
    )


def test_members_of_a_population_can_be_mapped() -> None:
    augmentation = Augmentation(crop=2, flip=True, cutout=3)
    images = jnp.asarray(pictures(12).reshape(3, 4, 9, 7, 3))
    keys = jax.vmap(lambda key: example_keys(key, 0, 4))(jax.random.split(KEY, 3))
    mapped = jax.vmap(functools.partial(augment, augmentation, mean=MEAN, std=STD))(keys, images)
    for member in range(3):
        np.testing.assert_allclose(
            mapped[member], normalised(augmentation, keys[member], images[member]), atol=1e-6
        )


@pytest.mark.parametrize(("crop", "cutout"), [(-1, 0), (0, -2)])
def test_sizes_below_zero_are_refused(crop: int, cutout: int) -> None:
    with pytest.raises(InputError, match=f"crop {crop} and cutout {cutout}"):
        Augmentation(crop=crop, cutout=cutout)


def test_a_square_larger_than_the_image_is_refused() -> None:
    with pytest.raises(InputError, match="side 8 is larger than the 9x7 images"):
        normalised(Augmentation(cutout=8), example_keys(KEY, 0, 2), pictures(2))


def test_images_of_another_type_or_depth_are_refused() -> None:
    with pytest.raises(InputError, match="float32, expected uint8"):
        normalize(jnp.zeros((1, 4, 4, 3)), MEAN, STD)
    with pytest.raises(InputError, match=r"3 means and 3 standard deviations .* 1 channels"):
        normalize(jnp.zeros((1, 4, 4, 1), jnp.uint8), MEAN, STD)
