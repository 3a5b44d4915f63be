"""Operations in their order, each with its own draws, whatever the others and the other images."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax.data import Augmentation, Mixing, augment_batch
from mimetic_jax.data.augment import geometry, policy
from mimetic_jax.data.augment.pipeline import augment_images, example_keys
from tests.data.made import refused

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
KEY = jax.random.key(11)
COUNT = 60


def pictures(count=COUNT, height=9, width=7):
    """Images of random pixels, none of them black: padding stands out, windows are unique."""
    return np.random.default_rng(0).integers(1, 256, (count, height, width, 3), np.uint8)


@functools.partial(jax.jit, static_argnums=0)
def augmented(augmentation, keys, images):
    return augment_images(augmentation, keys, images, MEAN, STD)


def levels(normal):
    """The levels 0..255 of normalized images."""
    return np.rint((np.asarray(normal) * STD + MEAN) * 255).astype(int)


def by_definition(augmentation, key, image):
    """Crop and flip of one image with NumPy.

    What each draws is fixed: runs from before other operations existed get the same images.
    """
    crop_key, flip_key = jax.random.split(key)
    height, width, _ = image.shape
    if crop := augmentation.crop:
        top, left = jax.random.randint(crop_key, (2,), 0, 2 * crop + 1)
        padded = np.pad(image, ((crop, crop), (crop, crop), (0, 0)))
        image = padded[top : top + height, left : left + width]
    if augmentation.flip and jax.random.bernoulli(flip_key):
        image = image[:, ::-1]
    return (image / 255 - MEAN) / STD


@pytest.mark.parametrize(("crop", "flip"), [(0, False), (0, True), (3, True)])
def test_crop_and_flip(crop, flip):
    augmentation = Augmentation(crop=crop, flip=flip)
    images, keys = pictures(), example_keys(KEY, 2, COUNT)
    out = np.asarray(augmented(augmentation, keys, images))
    assert out.dtype == np.float32
    for key, image, found in zip(keys[:20], images, out, strict=False):
        np.testing.assert_allclose(found, by_definition(augmentation, key, image), atol=1e-5)
    # An example depends on its own key only.
    order = np.random.default_rng(1).permutation(COUNT)
    np.testing.assert_array_equal(augmented(augmentation, keys[order], images[order]), out[order])


def test_example_keys_follow_key_step_and_index():
    keys = jax.jit(lambda step: example_keys(KEY, step, 5))(3)
    for index in (0, 4):
        assert keys[index] == jax.random.fold_in(jax.random.fold_in(KEY, 3), index)


@pytest.mark.parametrize("first", [False, True])
def test_randaugment_has_its_place_and_its_draws(first, monkeypatch):
    """With a marked row in place of RandAugment."""

    def marked(parsed, key, image, mean, interpolation):
        return image.at[0].set(jnp.floor(100 * jax.random.uniform(key)))

    monkeypatch.setattr(policy, "rand_augment", marked)
    plain = Augmentation(crop=3, flip=True)
    augmentation = dataclasses.replace(
        plain, randaugment="torchvision-n1-m9", randaugment_first=first
    )
    images, keys = pictures(), example_keys(KEY, 2, COUNT)
    out = levels(augmented(augmentation, keys, images))
    for key, image, found in zip(keys[:20], images, out, strict=False):
        mark = np.floor(100 * jax.random.uniform(jax.random.fold_in(key, 4)))
        expected = image.copy()
        if first:
            expected[0] = mark
        expected = np.array(levels(by_definition(plain, key, expected)))
        if not first:
            expected[0] = mark
        np.testing.assert_array_equal(found, expected)


def test_erasing_keeps_the_draws_of_the_others_also_in_mixed_images():
    images, keys = pictures(), example_keys(KEY, 0, COUNT)
    plain = Augmentation(crop=3, flip=True)
    before = dataclasses.replace(plain, erase=0.5, erase_mode="const")
    last = dataclasses.replace(before, erase_mixed=True)
    whole, holed = (np.asarray(augmented(a, keys, images)) for a in (plain, before))
    assert np.all((holed == 0) | np.isclose(holed, whole, atol=1e-6))
    touched = (holed == 0).any(axis=(1, 2, 3)) & (whole != 0).all(axis=(1, 2, 3))
    assert 15 < touched.sum() < 45
    np.testing.assert_array_equal(augmented(last, keys, images), whole)
    batch = functools.partial(augment_batch, last, Mixing(), KEY, 0)
    found, _ = jax.jit(lambda *given: batch(*given, MEAN, STD, 2))(
        images, np.zeros(COUNT, np.int32)
    )
    np.testing.assert_allclose(found, holed, atol=1e-6)


def test_size_alone_resizes_the_whole_image_before_the_crop():
    images, keys = pictures(20), example_keys(KEY, 2, 20)
    out = levels(augmented(Augmentation(size=6, crop=1), keys, images))
    resize = jax.jit(jax.vmap(lambda image: geometry.resize(KEY, image, (6, 6))))
    resized = np.asarray(resize(images))
    for key, image, found in zip(keys, resized, out, strict=True):
        expected = levels(by_definition(Augmentation(crop=1), key, image))
        np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_gray_images_can_have_everything_and_crops_keep_the_size():
    images, keys = pictures(4, 8, 8)[..., :1], example_keys(KEY, 0, 4)
    for fields in ({"randaugment": "rand-m9-n1-inc1", "erase": 0.5}, {"crop_scale": (0.5, 1.0)}):
        given = Augmentation(**fields), keys, images, (0.5,), (0.2,)
        assert jax.eval_shape(lambda: augment_images(*given)).shape == (4, 8, 8, 1)  # noqa: B023


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        (Augmentation, {"crop": 4, "crop_scale": (0.5, 1)}, "one of crop 4 and crop_scale (0.5, "),
        (Augmentation, {"randaugment_first": True, "crop_scale": (0.5, 1)}, ": crop_scale is (0.5"),
        (Augmentation, {"crop_scale": (0.5, 1.5)}, "crop_scale[1] must be a number in (0, 1]; got"),
        (Augmentation, {"crop_scale": (1, 0.5)}, "crop_scale (1.0, 0.5) isn't (least, greatest)"),
        (Augmentation, {"randaugment": "rand-m9"}, "randaugment must be torchvision-nN-mM"),
        (Mixing, {"mixup": -1}, "mixup must be a number in [0, 1000]; got -1"),
    ],
)
def test_bad_fields(kind, fields, words):
    refused(lambda: kind(**fields), words)
