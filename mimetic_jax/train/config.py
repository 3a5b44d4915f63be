"""Configurations: their arms, their record, and every check before anything is computed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
from ml_collections import ConfigDict
from optax import Schedule

from mimetic_jax import schemes
from mimetic_jax.errors import InputError, check_given, unknown
from mimetic_jax.extras import need
from mimetic_jax.models.pretrained import PARTS
from mimetic_jax.train.schedule import PLATEAUS, make_schedule, scaled_rate
from mimetic_jax.train.settings import setting

_MAY_DIFFER = ("seeds", "members", "chunk", "together", "arms")
"""Fields of a comparison in which it may be continued with others; arms in common must agree."""

_OF_ALL_ARMS = ("name", *_MAY_DIFFER)

HEADS = ("whole", "mixed")
"""How weight selection chooses heads: see `warm_start`."""


def arms(config: ConfigDict) -> dict[str, ConfigDict]:
    """The configuration of each arm: the whole one with the arm's overrides.

    Raises:
        InputError: if an override names an unknown field, or has another type.
    """
    if not config.arms:
        return {"run": config}
    return {name: _overridden(config, name, config.arms[name]) for name in config.arms}


def check_finite(config: ConfigDict) -> None:
    """Check that every number of a configuration is finite, its arms' and schemes' as well.

    No field takes another one, and a configuration with NaN doesn't equal its own record.

    Raises:
        InputError: names the first field that isn't finite.
    """
    for name, value in _flat(to_json(config)).items():
        for number in _floats(value):
            if not math.isfinite(number):
                raise InputError(f"{name} {value} is not finite")


def check_seeds(seeds: Sequence[object]) -> None:
    """Check that seeds are integers in [0, 2^32), each once: JAX's keys have no others.

    Raises:
        InputError: names the seed that isn't.
    """
    for seed in seeds:
        if type(seed) is not int or not 0 <= seed < 2**32:  # bool is a subclass of int
            raise InputError(f"seed {seed!r} of {tuple(seeds)} is not an integer in [0, 2^32)")
    if not seeds or len(set(seeds)) < len(seeds):
        raise InputError(f"seeds {tuple(seeds)} must be different numbers, at least one")


def check(config: ConfigDict, per_epoch: int, devices: int) -> None:
    """Check everything that can be wrong in a configuration before anything is computed.

    Its numbers are in their ranges (`check_ranges`); the model checks its own fields when it is
    traced.

    Args:
        config: of one arm.
        per_epoch: steps of an epoch of its data.
        devices: over which a batch is sharded.

    Raises:
        InputError: one line that names the value.
    """
    check_seeds(config.seeds)
    if bool(config.epochs) == bool(config.steps):
        raise InputError(
            f"give epochs or steps, not epochs {config.epochs} and steps {config.steps}"
        )
    steps = config.steps or round(config.epochs * per_epoch)
    if steps < 1:
        raise InputError(f"epochs {config.epochs} at batch {config.batch} give no step")
    if config.batch % (config.accumulate * devices):
        raise InputError(
            f"batch {config.batch} is not divisible by accumulate {config.accumulate} x "
            f"{devices} devices"
        )
    if config.eval.batch % devices:
        raise InputError(f"eval.batch {config.eval.batch} is not divisible by {devices} devices")
    if config.checkpoint_every % config.log_every:
        raise InputError(
            f"checkpoint_every {config.checkpoint_every} is not a multiple of log_every "
            f"{config.log_every}"
        )
    if config.optimizer.warmup and config.optimizer.warmup_epochs:
        raise InputError(
            f"give optimizer.warmup ({config.optimizer.warmup} steps) or warmup_epochs "
            f"({config.optimizer.warmup_epochs}), not both"
        )
    schedule_of(config, steps, per_epoch)
    if config.eval.every and config.eval.every_epochs:
        raise InputError(
            f"give eval.every ({config.eval.every} steps) or every_epochs "
            f"({config.eval.every_epochs}), not both"
        )
    if (plateau := config.optimizer.plateau) and plateau not in PLATEAUS:
        raise unknown("optimizer.plateau", plateau, PLATEAUS)
    if config.label_smoothing and config.task != "images":
        raise InputError(
            f"label_smoothing {config.label_smoothing} is for images, not for {config.task}"
        )
    for part in config.init_parts:
        if part not in PARTS:
            raise unknown("part of init_parts", part, PARTS)
    if config.init_heads not in HEADS:
        raise unknown("init_heads", config.init_heads, HEADS)
    check_given("init_from", config.init_from)
    check_given("data.dir", config.data.get("dir"))
    if config.init_parts and not config.init_from:
        raise InputError(f"init_parts {tuple(config.init_parts)} of nothing: give init_from")
    if config.members:
        _check_population(config)
    schemes.as_tuple(config.scheme)
    if config.tensorboard:
        need("tensorboard=True", "tensorboard")


def _check_population(config: ConfigDict) -> None:
    """What a population can't have, since its members are trained in one program."""
    for name, value in (
        ("init_from", config.init_from),
        ("optimizer.plateau", config.optimizer.plateau),
        ("tensorboard", config.tensorboard),
        ("ema", config.ema),
    ):
        if value:
            raise InputError(f"members {config.members}: a population takes no {name}={value}")
    if jax.process_count() > 1:
        raise InputError(
            f"members {config.members}: a population runs in one process, not in "
            f"{jax.process_count()}"
        )


def schedule_of(config: ConfigDict, steps: int, steps_per_epoch: int) -> Schedule:
    """The learning rate of a configuration, as a function of the step.

    Raises:
        InputError: for an unknown schedule or scaling, or a warm-up that doesn't fit.
    """
    rates = config.optimizer
    return make_schedule(
        rates.schedule,
        scaled_rate(rates.learning_rate, config.batch, rates.base_batch, rates.scaling),
        steps,
        warmup=rates.warmup or round(rates.warmup_epochs * steps_per_epoch),
        warmup_from=rates.warmup_from,
        final=rates.final,
        cooldown=round(rates.cooldown_epochs * steps_per_epoch),
        steps_per_epoch=steps_per_epoch,
    )


def to_json(config: ConfigDict) -> dict[str, Any]:
    """The config as plain data, schemes written out.

    Where JAX's own setting of the precision of products isn't the default, it is a field more.
    """
    record = json.loads(json.dumps(_plain(config)))
    if precision := setting("jax_default_matmul_precision"):
        record["matmul_precision"] = precision
    return record


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """The first difference that keeps a workdir from being continued with another config, or None.

    Seeds and arms may be added; the data directory and the number of runs at once may differ. A
    field that one of them lacks, as of another version, differs unless it is off in the other.

    >>> old = {"batch": 128, "seeds": [0], "arms": {}}
    >>> difference(old, {"batch": 64, "seeds": [0, 1], "arms": {"default": {}}})
    'batch is 128 there and 64 here'
    """
    there, here = ({**record, **dict.fromkeys(_MAY_DIFFER)} for record in (old, new))
    found = _first_differing(there, here)
    for arm in sorted(old["arms"].keys() & new["arms"].keys()):
        # Whole arms: an override of 0 isn't one that is missing.
        found = found or _first_differing(
            _merged(there, old["arms"][arm]), _merged(here, new["arms"][arm]), f"arms.{arm}."
        )
    return found


def _first_differing(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = ""
) -> str | None:
    flat_old, flat_new = _flat(old), _flat(new)
    for name in sorted(flat_old.keys() | flat_new.keys()):
        there, here = flat_old.get(name), flat_new.get(name)
        off = not (name in flat_old and name in flat_new) and not (there or here)
        if name != "data.dir" and there != here and not off:
            return f"{prefix}{name} is {there} there and {here} here"
    return None


def _merged(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in overrides.items():
        inner = base.get(name)
        if isinstance(inner, Mapping) and isinstance(value, Mapping):
            value = _merged(inner, value)
        merged[name] = value
    return merged


def check_same(where: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Check that what was trained with one config may be continued with another.

    Args:
        where: it was trained, in words.
        old: the config there, as of `to_json`.
        new: the config here.

    Raises:
        InputError: names their `difference`.
    """
    if found := difference(old, new):
        raise InputError(
            f"{where} belongs to a different config ({found}): choose another --workdir"
        )


def _overridden(config: ConfigDict, arm: str, overrides: Mapping[str, Any]) -> ConfigDict:
    for name in _OF_ALL_ARMS:
        if name in overrides:
            raise InputError(f"arm {arm} sets {name}, which all arms of a comparison share")
    _check_names(arm, config, overrides)
    result = config.copy_and_resolve_references()
    try:
        result.update(overrides)
    except TypeError as error:
        raise InputError(f"arm {arm}: {str(error).splitlines()[0]}") from error
    return result


def _check_names(arm: str, config: ConfigDict, overrides: Mapping[str, Any]) -> None:
    for name, value in overrides.items():
        if name not in config:
            raise unknown(f"field of arm {arm}", name, config)
        if isinstance(value, Mapping | ConfigDict):
            _check_names(arm, config[name], value)


def _floats(value: Any) -> Iterator[float]:
    """The floats of a field, which may be a list of lists."""
    if isinstance(value, float):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _floats(item)
    elif isinstance(value, dict):
        yield from _floats(list(value.values()))


def _plain(value: Any) -> Any:
    if isinstance(value, schemes.Scheme):
        return schemes.to_dict(value)
    if isinstance(value, ConfigDict | dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
