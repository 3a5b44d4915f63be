"""Resampling and affine maps against Pillow on the same bytes, boxes against torchvision's law."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from PIL import Image

from mimetic_jax.data.augment import geometry
from mimetic_jax.data.files.views import host_crop
from tests.data import made
from tests.typical import typical

KEY = jax.random.key(8)
FILL = (124, 116, 104)


def pictures(height=40, width=48):
    """A gradient, noise, hard edges and 1/f noise."""
    return made.pictures(height, width)[:4]


@functools.partial(jax.jit, static_argnames="interpolation")
def mapped(images, matrix, interpolation):
    fill = jnp.array(FILL, jnp.float32)
    levels = images.astype(jnp.float32)
    return jax.vmap(lambda image: geometry.affine(image, matrix, interpolation, fill, KEY))(levels)


@functools.partial(jax.jit, static_argnames=("size", "interpolation"))
def resized(images, size, interpolation):
    return jax.vmap(lambda image: geometry.resize(KEY, image, size, interpolation))(images)


def resized_by_pillow(image, size, interpolation):
    """Width first, as before version 13, where the order depends on the sizes."""
    method = Image.Resampling[interpolation.upper()]
    return np.asarray(image.resize((size[1], image.height), method).resize(size[::-1], method))


MAPS = {
    "shear_x": (0.27, (1, 0.27, 0, 0, 1, 0)),
    "shear_y": (-0.3, (1, 0, 0, -0.3, 1, 0)),
    "translate_x": (19.44, (1, 0, 19.44, 0, 1, 0)),
    "translate_y": (-7, (1, 0, 0, 0, 1, -7)),
    "rotate": (27.0, None),
    "rotate back": (-11.3, None),
}


def matrix(name, argument):
    return geometry.MATRICES[name.split()[0]](argument, 40, 48)


# Truncation to whole levels turns the last digit of a float into a level, where values such as
# a + (b - a) · 0.3 are whole: a level on a few per cent of the values, never more.
@pytest.mark.parametrize(
    ("interpolation", "off"), [("nearest", 1e-3), ("bilinear", 0.05), ("bicubic", 0.05)]
)
def test_affine_maps_are_pillows(interpolation, off):
    images, method = pictures(), Image.Resampling[interpolation.upper()]

    def by_pillow(image, argument, theirs):
        if theirs is None:
            return image.rotate(argument, method, fillcolor=FILL)
        return image.transform(image.size, Image.Transform.AFFINE, theirs, method, fillcolor=FILL)

    for name, (argument, theirs) in MAPS.items():
        out = np.asarray(mapped(images, matrix(name, argument), interpolation))
        assert np.array_equal(out, np.rint(out))
        expected = [by_pillow(Image.fromarray(image), argument, theirs) for image in images]
        apart = np.abs(out.astype(int) - np.stack(expected))
        assert (apart > 0).mean() < off, name
        assert interpolation == "nearest" or apart.max() <= 1, name


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
def test_the_identity_changes_nothing(interpolation):
    images = pictures()
    for still in (geometry.identity(), *(matrix(name, 0) for name in geometry.MATRICES)):
        np.testing.assert_array_equal(mapped(images, still, interpolation), images)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_one_color_stays_that_color(interpolation):
    """Truncation would turn a weighted sum of 254.99… into 254."""
    images = np.broadcast_to(np.array(FILL, np.uint8), (4, 40, 48, 3))
    turned = mapped(images, matrix("rotate", 13), interpolation)
    np.testing.assert_array_equal(turned, images)
    np.testing.assert_array_equal(resized(images, (24, 16), interpolation), images[:, :24, :16])


def test_a_random_interpolation_is_one_of_the_two():
    images, turn = pictures(), matrix("rotate", 20)
    image, fill = jnp.asarray(images[1], jnp.float32), jnp.array(FILL, jnp.float32)

    @jax.jit
    @jax.vmap
    def drawn(key):
        turned = geometry.affine(image, turn, "random", fill, key)
        return turned, geometry.resize(key, image, (23, 17), "random")

    turned, smaller = drawn(jax.random.split(KEY, 40))
    names = ("bilinear", "bicubic")
    for out, either in (
        (turned, [mapped(images, turn, name)[1] for name in names]),
        (smaller, [resized(images, (23, 17), name)[1] for name in names]),
    ):
        apart = np.stack([np.abs(out - one.astype(float)).mean(axis=(1, 2, 3)) for one in either])
        assert np.all(apart.min(axis=0) < 0.01)
        assert 8 < (apart[0] < 0.01).sum() < 32


# The last has many values halfway between two levels, where the last digit decides the rounding.
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize(
    ("size", "off"), [((23, 17), 0.01), ((40, 19), 0.01), ((57, 91), 0.01), ((60, 96), 0.25)]
)
def test_resizing_is_pillows(size, off, interpolation):
    images = pictures()
    out = resized(images, size, interpolation)
    assert out.dtype == jnp.uint8
    expected = [resized_by_pillow(Image.fromarray(image), size, interpolation) for image in images]
    apart = np.abs(np.asarray(out).astype(int) - np.stack(expected))
    assert apart.max() <= 2
    assert (apart > 0).mean() <= off


def boxes(count, height, width, **law):
    draw = functools.partial(geometry.device_crop, height=height, width=width, **law)
    return np.stack(jax.jit(jax.vmap(draw))(jax.random.split(KEY, count)), axis=1)


@pytest.mark.parametrize(
    ("size", "scale", "ratio"),
    [
        ((50, 60), (0.08, 1.0), (3 / 4, 4 / 3)),
        ((30, 30), (0.25, 0.25), (1, 1)),
        # None fits: the central box.
        ((20, 60), (1, 1), (1, 1)),
        ((60, 20), (1, 1), (1, 1)),
    ],
)
def test_boxes_are_of_the_law_of_streamed_images(size, scale, ratio):
    """Which is drawn attempt by attempt, and tested in tests/data/files/test_views.py."""
    found, rng = boxes(4000, *size, scale=scale, ratio=ratio), np.random.default_rng(3)
    assert found.min() >= 0
    assert np.all(found[:, :2] + found[:, 2:] <= size)
    expected = np.array([host_crop(rng, *size, scale, ratio) for _ in range(4000)])
    for ours, theirs in zip(found.T, expected.T, strict=True):
        assert scipy.stats.ks_2samp(ours, theirs).statistic < 0.04
    ratios = (sides[:, 2] / sides[:, 3] for sides in (found, expected))
    assert scipy.stats.ks_2samp(*ratios).statistic < 0.04


@typical("interpolation", ["bicubic"], slow=["bilinear"])
def test_a_resized_crop_is_pillows_crop_then_resize(interpolation):
    images, keys = pictures(), jax.random.split(KEY, 4)

    @jax.jit
    @jax.vmap
    def cropped(key, image):
        size, scale = (32, 28), (0.2, 1)
        box = geometry.device_crop(jax.random.split(key)[0], 40, 48, scale, (3 / 4, 4 / 3))
        return box, geometry.resized_crop(key, image, size, scale, interpolation=interpolation)

    boxes, out = cropped(keys, images)
    assert out.dtype == jnp.uint8
    for place, image, ours in zip(np.stack(boxes, axis=1), images, out, strict=True):
        top, left, height, width = place.tolist()
        crop = Image.fromarray(image).crop((left, top, left + width, top + height))
        theirs = resized_by_pillow(crop, (32, 28), interpolation)
        apart = np.abs(np.asarray(ours).astype(int) - theirs)
        assert apart.max() <= 1
        assert (apart > 0).mean() < 0.03


@pytest.mark.parametrize(
    ("height", "width", "size", "fraction"),
    [(40, 48, 28, 0.875), (61, 40, 32, 0.9), (40, 40, 40, 1.0), (30, 45, 64, 0.5)],
)
def test_the_central_view_is_torchvisions(height, width, size, fraction):
    images = pictures(height, width)
    view = jax.jit(functools.partial(geometry.central_view, size=size, fraction=fraction))
    out = np.asarray(view(images))
    assert out.shape == (4, size, size, 3)
    assert out.dtype == np.uint8
    shorter = math.floor(size / fraction)
    if height <= width:
        full = (int(shorter * width / height), shorter)
    else:
        full = (shorter, int(shorter * height / width))
    left, top = (round((side - size) / 2) for side in full)
    for ours, image in zip(out, images, strict=True):
        theirs = resized_by_pillow(Image.fromarray(image), full[::-1], "bicubic")
        theirs = theirs[top : top + size, left : left + size]
        assert np.abs(ours.astype(int) - theirs).max() <= 1
