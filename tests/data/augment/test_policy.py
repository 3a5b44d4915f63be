"""RandAugment against Pillow's operations, and the distributions of its three forms."""

import collections
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

from mimetic_jax.base.errors import InputError
from mimetic_jax.data.augment import policy
from mimetic_jax.data.augment.policy import RandAugment, parse_policy, rand_augment
from tests.data.made import photo
from tests.typical import typical

KEY = jax.random.key(3)
MEAN = (0.485, 0.456, 0.406)
FILL = (124, 116, 104)
AFFINE = Image.Transform.AFFINE
NEAREST, BILINEAR, BICUBIC = (Image.Resampling[name] for name in ("NEAREST", "BILINEAR", "BICUBIC"))
HEIGHT, WIDTH = 32, 40


def enhanced(factor):
    """Every operation by that factor."""
    kinds = ImageEnhance.Brightness, ImageEnhance.Color, ImageEnhance.Contrast
    for kind in (*kinds, ImageEnhance.Sharpness):
        yield kind.__name__.lower(), lambda image, kind=kind: kind(image).enhance(factor)


def moved(shear, across, down, degrees, method, fill):
    """Every map of positions."""
    for name, matrix in {
        "shear_x": (1, shear, 0, 0, 1, 0),
        "shear_y": (1, 0, 0, shear, 1, 0),
        "translate_x": (1, 0, across, 0, 1, 0),
        "translate_y": (1, 0, 0, 0, 1, down),
    }.items():
        given = AFFINE, matrix, method
        yield name, lambda image, by=given: image.transform(image.size, *by, fillcolor=fill)
    yield "rotate", lambda image: image.rotate(degrees, method, fillcolor=fill)


def torchvision_operations(magnitude):
    """Every operation with every sign: torchvision/transforms/autoaugment.py."""
    part = magnitude / 30
    yield "identity", lambda image: image
    for sign in (1, -1):
        shifts = (sign * int(150 / 331 * size * part) for size in (WIDTH, HEIGHT))
        yield from moved(sign * 0.3 * part, *shifts, sign * 30 * part, NEAREST, 0)
        yield from enhanced(1 + sign * 0.9 * part)
    bits = 8 - round(magnitude / (30 / 4))
    yield "posterize", lambda image: ImageOps.posterize(image, bits)
    yield "solarize", lambda image: ImageOps.solarize(image, 255 - 255 * part)
    yield "autocontrast", ImageOps.autocontrast
    yield "equalize", ImageOps.equalize


def timm_operations(level):
    """Every operation with every sign and interpolation: timm/data/auto_augment.py."""
    yield "autocontrast", ImageOps.autocontrast
    yield "equalize", ImageOps.equalize
    yield "invert", ImageOps.invert
    yield "posterize", lambda image: ImageOps.posterize(image, 4 - int(level / 10 * 4))
    yield "solarize", lambda image: ImageOps.solarize(image, 256 - int(level / 10 * 256))
    added = [i if i >= 128 else min(255, i + int(level / 10 * 110)) for i in range(256)]
    yield "solarize_add", lambda image: image.point(added * len(image.getbands()))
    for sign in (1, -1):
        part = sign * level / 10
        yield from enhanced(max(0.1, 1 + part * 0.9))
        for method in (BILINEAR, BICUBIC):
            shifts = part * 0.45 * WIDTH, part * 0.45 * HEIGHT
            yield from moved(part * 0.3, *shifts, part * 30, method, FILL)


@functools.partial(jax.jit, static_argnums=(0, 3))
def applied(chosen, keys, image, interpolation="random"):
    return jax.vmap(lambda key: rand_augment(chosen, key, image, MEAN, interpolation))(keys)


def named(results, image, operations):
    """The operation that each result came from; the nearest one has to be within a trifle."""
    truth = np.stack([np.asarray(done(Image.fromarray(image))) for _, done in operations])
    found = []
    for result in results:
        assert np.array_equal(result, np.rint(result))
        apart = np.abs(truth - result).mean(axis=(1, 2, 3))
        nearest = int(apart.argmin())
        assert apart[nearest] < 0.05, f"nothing of Pillow's is like it: {apart[nearest]}"
        found.append(operations[nearest][0])
    return found


@typical(
    ("spec", "operations", "kept"),
    [("torchvision-n1-m9", torchvision_operations(9), False)],
    slow=[("rand-m7-n1-inc1", timm_operations(7), True)],
)
def test_operations_are_pillows_and_equally_frequent(spec, operations, kept):
    """Of timm's each is applied with probability 1/2."""
    image, known, draws = photo(HEIGHT, WIDTH), list(operations), 1000
    results = np.asarray(
        applied(parse_policy(spec), jax.random.split(KEY, draws), jnp.float32(image))
    )
    if kept:
        known.append(("kept", lambda image: image))
    counts = collections.Counter(named(results, image, known))
    assert set(counts) == {name for name, _ in known}
    if kept:
        draws -= (unchanged := counts.pop("kept"))
        assert abs(unchanged - 500) < 60
    expected = draws / len(counts)
    spread = expected**0.5
    assert min(counts.values()) > expected - 4 * spread
    assert max(counts.values()) < expected + 4 * spread


def test_golden_kentaroy_operations(golden):
    """Each operation of the original at each sign, in its order, level by level."""
    arrays = golden("kentaroy_policy")
    image = jnp.float32(arrays["image"])
    names = list(policy.kentaroy_arguments(14, 1))
    operate = jax.jit(
        functools.partial(policy._apply, interpolation="nearest", fill=0.0, probability=1.0)
    )
    expected = {name: array for name, array in arrays.items() if name[0] in "15"}
    # Of five operations with a sign, shifts by 16.7 or 46.7 pixels of 20x12 leave one or none.
    assert len(expected) == (15 + 4) + (15 + 3)
    for case, array in expected.items():
        magnitude, number, sign = re.fullmatch(r"(\d+)/(\d+)([+-])", case).groups()
        name = names[int(number)]
        argument = policy.kentaroy_arguments(int(magnitude), int(sign + "1"))[name]
        chosen = {other: jnp.array(other == name) for other in names}
        result = operate(KEY, image, chosen, jnp.float32(argument))
        np.testing.assert_array_equal(result, array, err_msg=f"{name} {case}")


@pytest.mark.slow
def test_kentaroys_policy_leaves_some_images_of_one_color():
    """A shift in the second place, or one in the first that no cutout follows: 58 of 256."""
    image = jnp.float32(photo(HEIGHT, WIDTH)[:, :32])
    chosen = parse_policy("kentaroy-n2-m14")
    results = np.asarray(applied(chosen, jax.random.split(KEY, 1000), image))
    assert (np.ptp(results, axis=(1, 2, 3)) == 0).mean() == pytest.approx(58 / 256, abs=0.04)


def test_kentaroys_policy_is_for_color():
    with pytest.raises(InputError, match="for images of 3 channels, not 1"):
        rand_augment(parse_policy("kentaroy-n1-m9"), KEY, jnp.zeros((4, 4, 1)), (0.5,))


@pytest.mark.slow
def test_timms_interpolation_is_that_of_the_crop():
    """timm/data/transforms_factory.py: random only where the crop's is."""
    image = jnp.float32(photo(HEIGHT, WIDTH))
    keys, chosen = jax.random.split(KEY, 1500), parse_policy("rand-m7-n1-inc1")
    out = {name: applied(chosen, keys, image, name) for name in ("bilinear", "bicubic", "random")}
    of_each = [
        np.asarray((out["random"] == out[name]).all(axis=(1, 2, 3)))
        for name in ("bilinear", "bicubic")
    ]
    assert np.all(of_each[0] | of_each[1])
    moved = ~np.asarray((out["bilinear"] == out["bicubic"]).all(axis=(1, 2, 3)))
    assert moved.any()
    assert of_each[0][moved].any()
    assert of_each[1][moved].any()


def test_levels_are_normal_and_clipped():
    chosen = RandAugment("timm", num_ops=1, magnitude=8, magnitude_std=2.0)
    drawn, arguments = jax.jit(jax.vmap(lambda key: policy._draw(chosen, key, HEIGHT, WIDTH)))(
        jax.random.split(KEY, 30_000)
    )
    degrees = np.asarray(arguments)[np.asarray(drawn["rotate"])]
    assert 0.4 < (degrees > 0).mean() < 0.6
    levels = np.abs(degrees) / 3
    assert levels.min() >= 0
    assert levels.max() <= 10
    # N(8, 2²): a sixth is above 10, and a sixth below 6.
    assert 0.12 < np.isclose(levels, 10, atol=1e-5).mean() < 0.20
    assert 0.12 < (levels < 6).mean() < 0.20
    assert abs(np.median(levels) - 8) < 0.25


@pytest.mark.parametrize("level", [0, 3, 5, 9, 10])
def test_timms_arguments_at_whole_levels(level):
    """Whole numbers where timm truncates, in double precision."""
    found = {
        name: float(argument) for name, argument in policy.timm_arguments(level, -1, 50, 60).items()
    }
    expected = {
        "rotate": -level * 3.0,
        "posterize": 4 - int(level / 10 * 4),
        "solarize": 256 - min(256, int(level / 10 * 256)),
        "solarize_add": min(128, int(level / 10 * 110)),
        "color": max(0.1, 1 - level / 10 * 0.9),
        "shear_x": -level / 10 * 0.3,
        "translate_x": -level / 10 * 0.45 * 60,
        "translate_y": -level / 10 * 0.45 * 50,
    }
    for name, argument in expected.items():
        assert found[name] == pytest.approx(argument, abs=1e-5), name


def test_specs_are_read():
    assert parse_policy("torchvision-n1-m30") == RandAugment("torchvision", 1, 30)
    assert parse_policy("rand-m9-inc1") == RandAugment("timm", 2, 9, 0.0)
    assert parse_policy("rand-m10-n3-mstd0.5-inc1") == RandAugment("timm", 3, 10, 0.5)
    assert parse_policy("kentaroy-n16-m14") == RandAugment("kentaroy", 16, 14)


@pytest.mark.parametrize(
    "spec",
    [
        *("", "augmix-m3", "torchvision-n2", "torchvision-n2-m31", "torchvision-n17-m9"),
        *("torchvision-n0-m9", "torchvision-n2-m9-mstd0.5", "kentaroy-n2-m9-m9", "rand-m9"),
        *("rand-m9-inc0", "rand-m11-inc1", "rand-m9.5-inc1", "rand-m9-mstd0.5-tweights-inc1"),
        "rand-m" + "9" * 5000 + "-inc1",
    ],
)
def test_other_specs_are_refused(spec):
    with pytest.raises(InputError, match=r"must be torchvision-.* in \[1, 16\] and M at most"):
        parse_policy(spec)
