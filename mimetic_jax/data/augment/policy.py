"""RandAugment: a few random operations per image, in the forms of three programs."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import Range
from mimetic_jax.data.augment import color, erasing, geometry, tables
from mimetic_jax.data.augment.chosen import where_chosen
from mimetic_jax.data.augment.geometry import Number

# The default number of magnitudes in torchvision's RandAugment, and the number in kentaroy47's.
BINS = 31


@dataclasses.dataclass(frozen=True)
class RandAugment:
    """A policy, as `parse_policy` reads it.

    The magnitude is a bin of 0..30 (torchvision, kentaroy) or a level of 0..10 (timm), and
    `magnitude_std` the standard deviation of the level (timm only).
    """

    form: str
    num_ops: int
    magnitude: int
    magnitude_std: float = 0.0

    @property
    def probability(self) -> float:
        """With which each of the operations is applied."""
        return 0.5 if self.form == "timm" else 1.0


def parse_policy(spec: str) -> RandAugment:
    """Parse a policy from its spec.

    - "torchvision-n2-m9": `torchvision.transforms.RandAugment(2, 9)`.
    - "rand-m9-mstd0.5-inc1": `timm.data.rand_augment_transform` of that string; -n2 may follow m.
    - "kentaroy-n2-m14": `RandAugment(2, 14)` of kentaroy47/vision-transformers-cifar10.
    """
    policy, most = None, BINS - 1
    if found := re.fullmatch(r"(torchvision|kentaroy)-n(\d{1,2})-m(\d{1,2})", spec):
        policy = RandAugment(found[1], int(found[2]), int(found[3]))
    elif found := re.fullmatch(r"rand-m(\d{1,2})(-n(\d{1,2}))?(-mstd(\d\d?(\.\d+)?))?-inc1", spec):
        policy = RandAugment("timm", int(found[3] or 2), int(found[1]), float(found[5] or 0))
        most = 10
    if not policy or policy.magnitude > most or policy.num_ops not in _NUM_OPS:
        raise InputError(
            "randaugment must be torchvision-nN-mM, kentaroy-nN-mM or rand-mM[-nN][-mstdS]-inc1, "
            f"with N {_NUM_OPS} and M at most {BINS - 1} (10 for rand); got {spec!r}"
        )
    return policy


_NUM_OPS = Range(1, 16)  # each takes seconds to compile


def rand_augment(
    policy: RandAugment,
    key: jax.Array,
    image: jax.Array,
    mean: Sequence[float],
    interpolation: str = "random",
) -> jax.Array:
    """Apply a policy to an image.

    - torchvision: each of n operations is one of 14, with random signs, nearest-neighbor
      resampling and a black border.
    - timm: each of n operations is one of 15, applied with probability 1/2 at a level of
      N(m, mstd²) clipped to 0..10, with random signs and a border of the mean color.
    - kentaroy: each of n operations is one of 16, with random signs of shears, shifts and
      rotations, nearest-neighbor resampling and a black border. Shifts are by absolute pixels, on
      images of any size: at magnitude 14 by 46.7, so that 22.7% of 32×32 images become constant.

    Every operation costs one resampling, one table look-up and one blend, whichever it is: all
    affine maps are one matrix, and all operations on levels alone are one table of 256. Cutout,
    which kentaroy's form has, is one mask more. The image is float32 [h, w, C], levels 0..255.

    Reference: Cubuk et al. 2019, "RandAugment"; torchvision/transforms/autoaugment.py;
    timm/data/auto_augment.py and, for the border and the interpolation,
    timm/data/transforms_factory.py; randomaug.py in kentaroy47/vision-transformers-cifar10. If
    timm's level means 0 bits, the result is black, as in Pillow before it rejected 0 bits.
    """
    height, width, channels = image.shape
    if policy.form == "kentaroy" and channels != 3:
        raise InputError(f"kentaroy's randaugment is for images of 3 channels, not {channels}")
    fill: Number = 0.0
    if policy.form != "timm":
        interpolation = "nearest"
    else:
        fill = jnp.minimum(jnp.round(255 * jnp.asarray(mean, jnp.float32)), 255)
    for layer in range(policy.num_ops):
        draw_key, apply_key = jax.random.split(jax.random.fold_in(key, layer))
        chosen, argument = _draw(policy, draw_key, height, width)
        image = _apply(apply_key, image, chosen, argument, interpolation, fill, policy.probability)
    return image


def torchvision_arguments(
    magnitude: int, sign: Number, height: int, width: int
) -> dict[str, Number]:
    """Return the arguments of torchvision's RandAugment for each of its operations, in its order.

    The magnitude is a bin of 0..30; the sign is 1 or −1 and may be traced.
    """
    part = magnitude / (BINS - 1)
    factor = 1 + sign * (0.9 * part)
    # torchvision shifts the image, `geometry` the source coordinates; both by whole pixels.
    return {
        "identity": 0.0,
        "shear_x": sign * (0.3 * part),
        "shear_y": sign * (0.3 * part),
        "translate_x": -sign * math.trunc(150 / 331 * width * part),
        "translate_y": -sign * math.trunc(150 / 331 * height * part),
        "rotate": sign * (30 * part),
        "brightness": factor,
        "color": factor,
        "contrast": factor,
        "sharpness": factor,
        "posterize": 8 - round(4 * part),
        "solarize": 255 * (1 - part),
        "autocontrast": 0.0,
        "equalize": 0.0,
    }


def timm_arguments(level: Number, sign: Number, height: int, width: int) -> dict[str, Number]:
    """Return the arguments of timm's increasing operations at a level of 0..10, in its order."""
    factor = jnp.maximum(1 + sign * (level * 0.09), 0.1)
    return {
        "autocontrast": 0.0,
        "equalize": 0.0,
        "invert": 0.0,
        "rotate": sign * (level * 3),
        "posterize": 4 - jnp.floor(level * 4 / 10),
        "solarize": 256 - jnp.floor(level * 256 / 10),
        "solarize_add": jnp.floor(level * 11),
        "color": factor,
        "contrast": factor,
        "brightness": factor,
        "sharpness": factor,
        "shear_x": sign * (level * 0.03),
        "shear_y": sign * (level * 0.03),
        "translate_x": sign * (level * 0.045) * width,
        "translate_y": sign * (level * 0.045) * height,
    }


def kentaroy_arguments(magnitude: int, sign: Number) -> dict[str, Number]:
    """Return the arguments of kentaroy47's operations at a magnitude of 0..30, in its order."""
    part = magnitude / (BINS - 1)
    factor = part * 1.8 + 0.1
    return {
        "autocontrast": 0.0,
        "equalize": 0.0,
        "invert": 0.0,
        "rotate": sign * (part * 30),
        "posterize": max(1, math.trunc(part * 4)),
        "solarize": part * 256,
        "add_solarize": part * 110,
        "color": factor,
        "contrast": factor,
        "brightness": factor,
        "sharpness": factor,
        "shear_x": sign * (part * 0.3),
        "shear_y": sign * (part * 0.3),
        "cutout": part * 40,
        "translate_x": sign * (part * 100),
        "translate_y": sign * (part * 100),
    }


def _draw(
    policy: RandAugment, key: jax.Array, height: int, width: int
) -> tuple[dict[str, jax.Array], jax.Array]:
    """A flag per operation, at most one of them true, and the argument of that operation."""
    uniform_key, level_key = jax.random.split(key)
    uniform = jax.random.uniform(uniform_key, (3,))
    sign = jnp.where(uniform[0] < 0.5, 1.0, -1.0)
    applied: jax.Array | bool = True
    if policy.form == "torchvision":
        arguments = torchvision_arguments(policy.magnitude, sign, height, width)
    elif policy.form == "kentaroy":
        arguments = kentaroy_arguments(policy.magnitude, sign)
    else:
        noise = policy.magnitude_std * jax.random.normal(level_key)
        level = jnp.clip(policy.magnitude + noise, 0, 10)
        arguments = timm_arguments(level, sign, height, width)
        applied = uniform[1] < policy.probability
    choice = jnp.floor(uniform[2] * len(arguments)).astype(jnp.int32)
    chosen = {name: applied & (choice == index) for index, name in enumerate(arguments)}
    every = [jnp.asarray(argument, jnp.float32) for argument in arguments.values()]
    return chosen, jnp.stack(every)[choice]


def _apply(
    key: jax.Array,
    image: jax.Array,
    chosen: dict[str, jax.Array],
    argument: jax.Array,
    interpolation: str,
    fill: Number,
    probability: float,
) -> jax.Array:
    def moved(image: jax.Array, matrix: jax.Array, fill: jax.Array, key: jax.Array) -> jax.Array:
        return geometry.affine(image, matrix, interpolation, fill, key)

    height, width, _ = image.shape
    matrix = geometry.identity()
    for name, build in geometry.MATRICES.items():
        matrix = jnp.where(chosen[name], build(argument, height, width), matrix)
    for operation, names, own in (
        (moved, geometry.MATRICES, (matrix, jnp.asarray(fill, image.dtype), key)),
        (_mapped, (*_LEVELS, *_OF_COUNTS), (chosen, argument)),
        (_blended, _BLENDS, (chosen, argument)),
    ):
        of_kind = [chosen[name] for name in names if name in chosen]
        share = probability * len(of_kind) / len(chosen)
        image = where_chosen(jnp.stack(of_kind).any(), operation, image, *own, share=share)
    if "cutout" in chosen:
        # Elsewhere the argument can be far outside the range of a side, which does no harm.
        holed = erasing.cutout_in_levels(key, image, argument)
        image = jnp.where(chosen["cutout"], holed, image)
    return image


def _mapped(image: jax.Array, chosen: dict[str, jax.Array], argument: jax.Array) -> jax.Array:
    """The image through the table of the chosen operation on levels."""
    ramp = jnp.arange(tables.LEVELS, dtype=jnp.float32)
    counts = tables.histogram(image)
    mapped = {name: change(ramp, argument) for name, change in _LEVELS.items() if name in chosen}
    mapped["contrast"] = color.blend(color.mean_gray(image), ramp, argument)
    mapped["autocontrast"] = tables.autocontrast_table(counts)
    mapped["equalize"] = tables.equalize_table(counts)
    return tables.apply_table(image, _choose(mapped, chosen, ramp, image.shape[-1]))


def _blended(image: jax.Array, chosen: dict[str, jax.Array], argument: jax.Array) -> jax.Array:
    other = jnp.where(chosen["color"], color.grayscale(image), color.smooth(image))
    return color.blend(other, image, argument)


def _choose(
    mapped: dict[str, jax.Array], chosen: dict[str, jax.Array], ramp: jax.Array, channels: int
) -> jax.Array:
    """The table [C, 256] of the chosen operation; the ramp if it has none."""
    shape = (channels, tables.LEVELS)
    stacked = jnp.stack([jnp.broadcast_to(table, shape) for table in mapped.values()])
    weights = jnp.stack([jnp.asarray(chosen[name], jnp.float32) for name in mapped])
    # A product, because XLA would fuse a selection into the look-up and recompute the table for
    # every pixel. Sums with one nonzero term are exact.
    table = jnp.einsum("k,kcl->cl", weights, stacked, precision=jax.lax.Precision.HIGHEST)
    return table + ramp * (1 - weights.sum())


_LEVELS: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "invert": lambda levels, _: color.invert(levels),
    "posterize": color.posterize,
    "solarize": color.solarize,
    "solarize_add": color.solarize_add,
    "add_solarize": color.add_solarize,
    "brightness": color.brightness,
}
_OF_COUNTS = ("contrast", "autocontrast", "equalize")
_BLENDS = ("color", "sharpness")
