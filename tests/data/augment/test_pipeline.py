"""Each operation against its definition, and each example's independence from the others."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax.data import Augmentation, augment_images, erase_mixed, example_keys, normalize
from mimetic_jax.data.augment import geometry
from mimetic_jax.errors import InputError

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
PLAIN_MEAN, PLAIN_STD = (0.0, 0.0, 0.0), (1 / 255,) * 3
KEY = jax.random.key(11)


def pictures(count: int, height: int = 9, width: int = 7) -> np.ndarray:
    """Images of random pixels, none of them black: padding stands out, windows are unique."""
    return np.random.default_rng(0).integers(1, 256, (count, height, width, 3), np.uint8)


@functools.partial(jax.jit, static_argnums=0)
def normalized(augmentation: Augmentation, keys: jax.Array, images: jax.Array) -> jax.Array:
    return augment_images(augmentation, keys, images, MEAN, STD)


@functools.partial(jax.jit, static_argnums=0)
def in_levels(augmentation: Augmentation, keys: jax.Array, images: jax.Array) -> jax.Array:
    """Augmented, with a mean and a standard deviation that keep the levels 0..255."""
    return augment_images(augmentation, keys, images, PLAIN_MEAN, PLAIN_STD)


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


def test_no_augmentation_only_normalizes() -> None:
    images = pictures(4)
    out = normalized(Augmentation(), example_keys(KEY, 0, 4), images)
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
def test_cutout_is_one_clipped_square_of_the_mean_color(side: int) -> None:
    images = pictures(300)
    plain = (images / 255 - np.array(MEAN)) / STD
    out = np.asarray(normalized(Augmentation(cutout=side), example_keys(KEY, 0, 300), images))
    holes = (out == 0).all(axis=-1)
    np.testing.assert_allclose(out[~holes], plain[~holes], atol=1e-5)

    centers = set()
    for hole in holes:
        rows, columns = np.flatnonzero(hole.any(axis=1)), np.flatnonzero(hole.any(axis=0))
        assert hole.sum() == len(rows) * len(columns)
        for line, size in ((rows, 9), (columns, 7)):
            assert np.array_equal(line, np.arange(line[0], line[0] + len(line)))
            at_border = line[0] == 0 or line[-1] == size - 1
            assert len(line) == side or (at_border and side // 2 <= len(line) < side)
        centers.add((rows[0], columns[0], len(rows), len(columns)))
    # Uniform centers over 9x7 pixels: nearly all of the 63 squares turn up in 300 draws.
    assert len(centers) > 55


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
    cut = np.asarray(normalized(Augmentation(crop=3, flip=True, cutout=4), keys, images))
    uncut = np.asarray(normalized(Augmentation(crop=3, flip=True), keys, images))
    assert np.all((cut == 0) | np.isclose(cut, uncut, atol=1e-6))
    assert np.all((cut == 0).all(axis=-1).sum(axis=(1, 2)) >= 4)


def test_an_example_depends_on_its_own_key_only() -> None:
    augmentation = Augmentation(crop=4, flip=True, cutout=5)
    images, keys = pictures(16), example_keys(KEY, 7, 16)
    out = np.asarray(normalized(augmentation, keys, images))
    order = np.random.default_rng(1).permutation(16)
    np.testing.assert_allclose(
        normalized(augmentation, keys[order], images[order]), out[order], atol=1e-6
    )
    for index in (0, 9):
        alone = normalized(augmentation, keys[index : index + 1], images[index : index + 1])
        np.testing.assert_allclose(alone[0], out[index], atol=1e-6)


def test_example_keys_follow_key_step_and_index() -> None:
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
        normalized(augmentation, old, images),
        normalized(augmentation, example_keys(KEY, 0, 4), images),
    )


def test_members_of_a_population_can_be_mapped() -> None:
    augmentation = Augmentation(crop=2, flip=True, cutout=3)
    images = jnp.asarray(pictures(12).reshape(3, 4, 9, 7, 3))
    keys = jax.vmap(lambda key: example_keys(key, 0, 4))(jax.random.split(KEY, 3))
    mapped = jax.vmap(functools.partial(augment_images, augmentation, mean=MEAN, std=STD))(
        keys, images
    )
    for member in range(3):
        np.testing.assert_allclose(
            mapped[member], normalized(augmentation, keys[member], images[member]), atol=1e-6
        )


def test_the_draws_of_crop_flip_and_cutout_are_fixed() -> None:
    """Runs from before other operations existed get the same images, bit for bit."""
    augmentation = Augmentation(crop=3, flip=True, cutout=4)
    images, keys = pictures(20), example_keys(KEY, 2, 20)
    out = np.asarray(normalized(augmentation, keys, images))
    padded = np.pad(images, ((0, 0), (3, 3), (3, 3), (0, 0)))
    for key, image, found in zip(keys, padded, out, strict=True):
        crop_key, flip_key, cutout_key = jax.random.split(key, 3)
        top, left = jax.random.randint(crop_key, (2,), 0, 7)
        expected = image[top : top + 9, left : left + 7]
        if jax.random.bernoulli(flip_key):
            expected = expected[:, ::-1]
        expected = (expected / 255 - MEAN) / STD
        top, left = jax.random.randint(cutout_key, (2,), 0, jnp.array([9, 7])) - 2
        expected[max(top, 0) : top + 4, max(left, 0) : left + 4] = 0
        np.testing.assert_allclose(found, expected, atol=1e-5)


EVERYTHING = Augmentation(
    size=12,
    crop_scale=(0.3, 1.0),
    flip=True,
    interpolation="bicubic",
    randaugment="rand-m9-mstd0.5-n1-inc1",
    color_jitter=0.2,
    erase=0.5,
    cutout=3,
)


@pytest.mark.slow
def test_everything_at_once() -> None:
    images, keys = pictures(8, 16, 20), example_keys(KEY, 0, 8)
    out = np.asarray(normalized(EVERYTHING, keys, images))
    assert out.shape == (8, 12, 12, 3)
    assert out.dtype == np.float32
    assert np.all((out == 0).all(axis=-1).sum(axis=(1, 2)) >= 4)  # the cutout, which comes last
    order = np.arange(8)[::-1]
    # The same program, so bit for bit.
    np.testing.assert_array_equal(normalized(EVERYTHING, keys[order], images[order]), out[order])


@pytest.mark.slow
def test_colors_come_after_crop_and_flip_and_keep_their_draws() -> None:
    other = Augmentation(randaugment="torchvision-n1-m9", color_jitter=0.3)
    images = pictures(30)
    cropped = levels(Augmentation(crop=3, flip=True), images)
    both = levels(dataclasses.replace(other, crop=3, flip=True), images)
    apart = np.abs(both - levels(other, cropped.astype(np.uint8)))
    # Two programs, which may truncate to different levels, one apart.
    assert apart.max() <= 1
    assert (apart > 0).mean() < 1e-3
    assert np.abs(both - cropped).max() > 10


def test_erasing_keeps_the_draws_of_the_others() -> None:
    images, keys = pictures(30), example_keys(KEY, 0, 30)
    plain = Augmentation(crop=3, flip=True)
    out = np.asarray(
        normalized(dataclasses.replace(plain, erase=0.5, erase_mode="const"), keys, images)
    )
    whole = np.asarray(normalized(plain, keys, images))
    assert np.all((out == 0) | np.isclose(out, whole, atol=1e-6))
    touched = (out == 0).any(axis=(1, 2, 3)) & (whole != 0).all(axis=(1, 2, 3))
    assert 5 < touched.sum() < 25


def test_randaugment_first_comes_before_crop_and_flip_with_the_same_draws() -> None:
    """Operation by operation, each with the key it always has."""
    images = pictures(30, 12, 12)
    alone = levels(Augmentation(randaugment="kentaroy-n1-m9"), images)
    both = Augmentation(randaugment="kentaroy-n1-m9", randaugment_first=True, crop=3, flip=True)
    moved = levels(Augmentation(crop=3, flip=True), alone.astype(np.uint8))
    apart = np.abs(levels(both, images) - moved)
    # Two programs, which may truncate to different levels, one apart.
    assert apart.max() <= 1
    assert (apart > 0).mean() < 1e-3
    assert not np.array_equal(
        levels(dataclasses.replace(both, randaugment_first=False), images), moved
    )


def test_mixed_images_are_erased_with_the_same_draws() -> None:
    images, keys = pictures(30), example_keys(KEY, 0, 30)
    before = Augmentation(crop=3, erase=0.5, erase_mode="const")
    last = dataclasses.replace(before, erase_mixed=True)
    whole, holed = normalized(last, keys, images), normalized(before, keys, images)
    erased = jax.jit(erase_mixed, static_argnums=0)(last, keys, whole)
    np.testing.assert_allclose(erased, holed, atol=1e-6)
    assert not np.array_equal(whole, holed)
    assert erase_mixed(before, keys, whole) is whole


@pytest.mark.slow
def test_a_resized_crop_keeps_the_size_by_default() -> None:
    images, keys = pictures(5), example_keys(KEY, 0, 5)
    cropped = Augmentation(crop_scale=(0.5, 1.0))
    assert normalized(cropped, keys, images).shape == images.shape
    whole = Augmentation(crop_scale=(1.0, 1.0), crop_ratio=(7 / 9, 7 / 9))
    np.testing.assert_array_equal(levels(whole, images), images)


def test_size_alone_resizes_the_whole_image() -> None:
    images, keys = pictures(5), example_keys(KEY, 0, 5)
    out = in_levels(Augmentation(size=6), keys, images)
    expected = geometry.resize(jnp.asarray(images), (6, 6), "bilinear")
    np.testing.assert_allclose(out, expected, atol=1e-3)
    assert in_levels(Augmentation(size=6, crop=1), keys, images).shape == (5, 6, 6, 3)


def test_gray_images_can_have_everything() -> None:
    images, keys = pictures(4, 8, 8)[..., :1], example_keys(KEY, 0, 4)
    augmentation = Augmentation(randaugment="rand-m9-n1-inc1", color_jitter=0.3)
    out = jax.jit(lambda keys, images: augment_images(augmentation, keys, images, (0.5,), (0.2,)))
    assert out(keys, images).shape == (4, 8, 8, 1)


def test_lists_of_a_configuration_become_tuples() -> None:
    augmentation = Augmentation(crop_scale=[0.5, 1], crop_ratio=[1, 1])  # type: ignore[arg-type]
    assert augmentation == Augmentation(crop_scale=(0.5, 1), crop_ratio=(1, 1))
    assert hash(augmentation) == hash(Augmentation(crop_scale=(0.5, 1), crop_ratio=(1, 1)))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"size": -1}, "size -1"),
        ({"size": 2**31}, "size 2147483648 is not .* at most 16,384"),
        ({"crop": -1}, "crop -1"),
        ({"crop": 2**15}, "crop 32768"),
        ({"cutout": -2}, "cutout -2"),
        ({"flip": 1}, "flip 1 is not True or False"),
        ({"crop_ratio": (1e-300, 1)}, r"crop_ratio\[0\] 1e-300"),
        ({"color_jitter": 1e300}, r"color_jitter 1e\+300 is not .* at most 100"),
        ({"randaugment": "torchvision-n1000-m9"}, "n of .*: 1000 is not .* at most 16"),
        ({"randaugment": "rand-m" + "9" * 5000 + "-inc1"}, "isn't m and a number"),
        ({"crop": 4, "crop_scale": (0.5, 1)}, r"one of crop 4 and crop_scale \(0\.5, 1\.0\)"),
        (
            {"randaugment_first": True, "crop_scale": (0.5, 1)},
            r"randaugment_first isn't for .*: crop_scale is \(0\.5, 1\.0\)",
        ),
        ({"crop_scale": (0.5, 1.5)}, r"crop_scale\[1\] 1\.5 is not .* at most 1"),
        ({"crop_scale": (0.5,)}, r"crop_scale \(0\.5,\) isn't"),
        ({"crop_ratio": (2, 1)}, r"crop_ratio \(2\.0, 1\.0\) isn't \(least, greatest\)"),
        ({"interpolation": "nearest"}, "unknown Augmentation.interpolation 'nearest'"),
        ({"randaugment": "rand-m9"}, "needs inc1"),
        ({"color_jitter": -0.1}, r"color_jitter -0\.1"),
        ({"color_jitter": float("nan")}, "color_jitter nan"),
        ({"erase": 2}, "erase 2 is not a finite number of at least 0 and at most 1"),
        (
            {"erase_mode": "pixels"},
            "erase_mode 'pixels'.*did you mean 'pixel'",
        ),
    ],
)
def test_bad_fields(fields: dict, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        Augmentation(**fields)


def test_a_square_larger_than_the_image() -> None:
    with pytest.raises(InputError, match="side 8 is larger than the 9x7 images"):
        normalized(Augmentation(cutout=8), example_keys(KEY, 0, 2), pictures(2))


def test_images_of_another_dtype_or_depth() -> None:
    with pytest.raises(InputError, match="float32, expected uint8"):
        normalize(jnp.zeros((1, 4, 4, 3)), MEAN, STD)
    with pytest.raises(InputError, match=r"3 means and 3 standard deviations .* 1 channels"):
        normalize(jnp.zeros((1, 4, 4, 1), jnp.uint8), MEAN, STD)
