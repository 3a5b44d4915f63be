"""A configuration as a whole: its arms, its record, and the checks that take several fields."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

import jax
from ml_collections import ConfigDict

from mimetic_jax import schemes
from mimetic_jax.base.errors import InputError, blaming, check_given, unknown
from mimetic_jax.base.typed import shown
from mimetic_jax.rules.rule import Rule
from mimetic_jax.train.fields import STEPS
from mimetic_jax.train.schedule import Schedule, make_schedule, scaled_rate
from mimetic_jax.train.schema import OF_COMPARISON, Config, affecting, leaves

ALONE = "run"
"""The arm of a comparison without arms."""


def arms_of(config: ConfigDict) -> dict[str, ConfigDict]:
    """Return the configuration of each arm: that of the comparison with the arm's overrides."""
    if not config.arms:
        schemes.as_tuple(tuple(config.scheme))
        return {ALONE: config}
    shared = config.copy_and_resolve_references()
    shared.arms = Config()
    return {name: _overridden(shared, name, config.arms[name]) for name in config.arms}


def _overridden(config: ConfigDict, arm: str, overrides: Mapping[str, Any]) -> ConfigDict:
    if not re.fullmatch(r"[\w.+-]{1,100}", arm, re.ASCII) or not arm.strip("."):
        raise InputError(f"arm {arm!r} is not a name of letters, digits and _ . + -")
    if not isinstance(overrides, Mapping | ConfigDict):
        raise InputError(f"arm {arm} is {overrides!r}, not the fields that it overrides")
    for name in OF_COMPARISON:
        if name in overrides:
            raise InputError(f"arm {arm} sets {name}, which all arms of a comparison share")
    known = dict(leaves(config))
    for name, _ in leaves(overrides):
        if name not in known and name not in config:  # a section as a whole is no leaf
            raise unknown(f"field of arm {arm}", name, known)
    with blaming(f"arm {arm}"):
        if not isinstance(given := overrides.get("scheme", ()), tuple | list):
            raise InputError(f"scheme {shown(given)} is not a tuple of schemes: (Mimetic(),) is")
        schemes.as_tuple((*config.scheme, *given))
    result = config.copy_and_resolve_references()
    try:
        result.update(overrides)
    except TypeError as error:
        raise InputError(f"arm {arm}: {str(error).splitlines()[0]}") from error
    return result


def check(config: ConfigDict, per_epoch: int, devices: int) -> None:
    """Check what several fields of an arm's configuration must agree on.

    `schema.check_declared` checks each field by itself, and the model its own when it is traced. A
    batch is sharded over `devices`.
    """
    if not config.name.strip():
        raise InputError("name is empty: the workdir is runs/NAME")
    if not config.seeds or len(set(config.seeds)) < len(config.seeds):
        raise InputError(f"seeds {tuple(config.seeds)} must be different numbers, at least one")
    if bool(config.epochs) == bool(config.steps):
        raise InputError(
            f"set epochs or steps, not epochs {config.epochs} and steps {config.steps}"
        )
    steps = config.steps or round(config.epochs * per_epoch)
    if steps < 1:
        raise InputError(f"epochs {config.epochs} at batch {config.batch} make no step")
    if steps not in STEPS:
        raise InputError(f"epochs {config.epochs} are {steps:,} steps, more than {STEPS.high:,}")
    if config.batch % devices:
        raise InputError(f"batch {config.batch} is not divisible by {devices} devices")
    if config.eval.batch % devices:
        raise InputError(f"eval.batch {config.eval.batch} is not divisible by {devices} devices")
    for section, field in (("optimizer", "warmup"), ("eval", "every")):
        steps_given, epochs_given = config[section][field], config[section][f"{field}_epochs"]
        if steps_given and epochs_given:
            raise InputError(
                f"set {section}.{field} ({steps_given} steps) or {field}_epochs ({epochs_given}), "
                "not both"
            )
    schedule_of(config, steps, per_epoch)
    if config.label_smoothing and config.task != "images":
        raise InputError(
            f"label_smoothing {config.label_smoothing} is for images, not for {config.task}"
        )
    check_given("init_from", config.init_from)
    check_given("data.dir", config.data.get("dir"))
    if config.init_parts and not config.init_from:
        raise InputError(
            f"init_parts is {tuple(config.init_parts)}, but config.init_from is not set"
        )
    for expression, _ in config.optimizer.rate_rules:
        try:
            re.compile(expression)
        except re.error as error:
            raise InputError(
                f"optimizer.rate_rules has {expression!r}, not a regular expression ({error})"
            ) from error


def schedule_of(config: ConfigDict, steps: int, steps_per_epoch: int) -> Schedule:
    """Return the learning rate of a configuration, as a function of its `peak_rate` and the
    step."""
    rates = config.optimizer
    return make_schedule(
        rates.schedule,
        steps,
        warmup=rates.warmup or round(rates.warmup_epochs * steps_per_epoch),
        warmup_from=rates.warmup_from,
        final=rates.final,
        cooldown=round(rates.cooldown_epochs * steps_per_epoch),
        steps_per_epoch=steps_per_epoch,
    )


def peak_rate(config: ConfigDict) -> float:
    """Return the highest learning rate of a configuration, of its own batch."""
    rates = config.optimizer
    return scaled_rate(rates.learning_rate, config.batch, rates.base_batch, rates.scaling)


def to_json(config: ConfigDict) -> dict[str, Any]:
    """Return the configuration as plain data, schemes written out.

    If JAX's own setting of the precision of products isn't the default, it is a field more.
    """
    config_json = json.loads(json.dumps(_plain(config)))
    if precision := jax.config.jax_default_matmul_precision:  # type: ignore[attr-defined]
        config_json["matmul_precision"] = precision
    return config_json


def from_json(config_json: Mapping[str, Any]) -> ConfigDict:
    """Return the configuration that `to_json` recorded.

    >>> from mimetic_jax.train.schema import default
    >>> to_json(from_json(to_json(default()))) == to_json(default())
    True
    """
    return Config(_of_plain({k: v for k, v in config_json.items() if k != "matmul_precision"}))


def _of_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        read = {"scheme": schemes.from_dict, "rules": lambda rule: Rule(**_of_plain(rule))}
        return {
            name: tuple(map(read[name], item))
            if name in read and isinstance(item, list) and item and isinstance(item[0], Mapping)
            else _of_plain(item)
            for name, item in value.items()
        }
    return tuple(map(_of_plain, value)) if isinstance(value, list) else value


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """Return the first difference on which results depend, or None: what the one has trained
    continues.

    Arms that both have must agree. A field that only one of them has, as of another version,
    differs unless it is off there.

    >>> old = {"task": "images", "batch": 128, "seeds": [0], "arms": {}}
    >>> difference(old, {**old, "batch": 64, "seeds": [0, 1], "arms": {"default": {}}})
    'batch is 128 there and 64 here'
    >>> difference({**old, "accumulate": 1}, old)
    'accumulate is 1 there and unset here'
    """
    differing = _first_differing(old, new)
    for arm in sorted(old["arms"].keys() & new["arms"].keys()):
        # Whole arms: an override of 0 isn't one that is missing.
        differing = differing or _first_differing(
            _merged(old, old["arms"][arm]), _merged(new, new["arms"][arm]), f"arms.{arm}."
        )
    return differing


def _first_differing(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = ""
) -> str | None:
    there, here = (affecting(recorded, "result") for recorded in (old, new))
    # Fields without a section first: those in sections may be computed from them.
    for name in sorted(there.keys() | here.keys(), key=lambda name: (name.count("."), name)):
        before, now = there.get(name), here.get(name)
        off = not (name in there and name in here) and not (before or now)
        if before != now and not off:
            before, now = (fields.get(name, "unset") for fields in (there, here))
            return f"{prefix}{name} is {before} there and {now} here"
    return None


def recorded_arms(config_json: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Read each arm's configuration, as plain data, from that of a stored config.json."""
    if not config_json["arms"]:
        return {ALONE: config_json}
    return {
        name: _merged(config_json, overrides) for name, overrides in config_json["arms"].items()
    }


def _merged(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in overrides.items():
        inner = base.get(name)
        if isinstance(inner, Mapping) and isinstance(value, Mapping):
            value = _merged(inner, value)
        merged[name] = value
    return merged


def check_continues(where: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Check that what was trained `where` with one configuration may be continued with another."""
    if differing := difference(old, new):
        raise InputError(
            f"{where} belongs to a different config ({differing}): choose another --workdir"
        )


def _plain(value: Any) -> Any:
    if isinstance(value, schemes.Scheme):
        return schemes.to_dict(value)
    if isinstance(value, Rule):
        return _plain(dataclasses.asdict(value))
    if isinstance(value, ConfigDict | dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value
