"""Configurations: the defaults, the arguments of a config file, arms, and every check."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict, config_dict
from optax import Schedule

from mimetic_jax import schemes
from mimetic_jax.errors import InputError, unknown
from mimetic_jax.train.cluster.mesh import MODEL_RULES
from mimetic_jax.train.schedule import PLATEAUS, make_schedule, scaled_rate


def default() -> ConfigDict:
    """Every field of training on images, with the value it has unless a config says otherwise."""
    config = ConfigDict()
    config.task = "images"
    config.name = "unnamed"  # workdir is runs/NAME unless given
    config.seeds = (0,)
    config.scheme = ()  # schemes applied to the model's own draw, left to right
    config.arms = ConfigDict()  # arm -> overrides of this config; none: one arm, "run"

    config.batch = 128  # divisible by accumulate x devices
    config.accumulate = 1  # parts of a batch whose gradients are averaged
    config.epochs = 0.0  # either epochs
    config.steps = 0  # or steps
    config.label_smoothing = 0.0
    config.ema = 0.0  # decay of the parameters' average, which is tested beside them; 0: none
    config.init_from = config_dict.placeholder(str)  # see train/warm_start.py

    config.data = ConfigDict()
    config.data.name = "digits"  # see data/info.py
    config.data.dir = config_dict.placeholder(str)  # where it lies
    config.data.classes = 0  # how many there are; 0: as published (streamed sets)
    config.data.size = 0  # side of the images that the model sees; 0: as the data set has them
    config.data.mean = ()  # of each channel, white is 1; empty: what data/info.py has
    config.data.std = ()
    config.data.subset = 1.0  # share of each class to train on
    config.data.repeats = 1  # times each image comes in an epoch (streamed sets)
    config.data.eval_fraction = 1.0  # of the shorter side, what a test image keeps
    config.data.threads = 0  # that decode streamed images; 0: one a core
    config.data.strict = False  # stop at a damaged image instead of replacing it
    config.data.augment = ConfigDict()
    config.data.augment.crop = 0  # pixels of zero padding before a random crop
    config.data.augment.crop_scale = ()  # or least and most area of a random resized crop
    config.data.augment.crop_ratio = (3 / 4, 4 / 3)  # its least and most width / height
    config.data.augment.interpolation = "bilinear"  # its resampling; bicubic, random
    config.data.augment.flip = False  # left-right, every other time
    config.data.augment.randaugment = ""  # torchvision-n2-m9 or rand-m9-mstd0.5-inc1
    config.data.augment.color_jitter = 0.0  # brightness, contrast and saturation
    config.data.augment.cutout = 0  # side of the square
    config.data.augment.erase = 0.0  # probability of a random rectangle
    config.data.augment.erase_mode = "pixel"  # filled with noise; or const
    config.data.mix = ConfigDict()
    config.data.mix.mixup = 0.0  # α of its Beta distribution; 0: none
    config.data.mix.cutmix = 0.0  # likewise
    config.data.mix.prob = 1.0  # that a batch is mixed
    config.data.mix.switch = 0.5  # that it is by cutmix, where both are on

    config.model = ConfigDict()
    config.model.width = 192
    config.model.depth = 12
    config.model.heads = 3
    config.model.patch = 4
    config.model.mlp_ratio = 4.0
    config.model.pool = "token"  # or mean
    config.model.dropout = 0.0
    config.model.drop_path = 0.0  # in the last block; linear from 0
    config.model.base = "timm"  # default initialization; or torch
    config.model.qkv_bias = True
    config.model.fused_qkv = False  # one product for the three; the parameters don't change
    config.model.scan = False  # one compiled block for all layers
    config.model.remat = False  # recompute blocks in the backward pass
    config.model.dtype = "float32"  # of the computation; bfloat16 on accelerators

    config.optimizer = ConfigDict()
    config.optimizer.name = "adamw"  # adam, sgd
    config.optimizer.learning_rate = 1e-3
    config.optimizer.base_batch = 0  # the batch that learning_rate is for; 0: this one
    config.optimizer.scaling = "linear"  # with the batch; or sqrt
    config.optimizer.schedule = "cosine"  # constant, cosine, timm_cosine, triangle
    config.optimizer.warmup = 0  # steps
    config.optimizer.warmup_epochs = 0.0  # or epochs
    config.optimizer.warmup_from = 0.0  # learning rate
    config.optimizer.final = 0.0  # learning rate where a cosine ends
    config.optimizer.plateau = ""  # lowers the rate by the validation loss: halve, tenth
    config.optimizer.cooldown_epochs = 0.0  # of the epochs, the last ones, at `final`
    config.optimizer.weight_decay = 0.01
    config.optimizer.betas = (0.9, 0.999)
    config.optimizer.eps = 1e-8
    config.optimizer.clip = 0.0  # global norm; 0: none
    config.optimizer.skip_nonfinite = 0  # steps in a row without finite gradients to pass over
    config.optimizer.decay_rules = ()  # ((regex, factor of weight_decay), ...), first match
    config.optimizer.rate_rules = ()  # ((regex, factor of learning_rate), ...); 0 freezes

    config.mesh = ConfigDict()
    config.mesh.data = -1  # -1: what the other axes leave of the devices
    config.mesh.fsdp = 1  # devices that share one copy of the parameters
    config.mesh.tensor = 1  # devices that share each layer's heads and hidden units
    config.mesh.rules = MODEL_RULES  # ((regex, placement), ...), first match

    config.eval = ConfigDict()
    config.eval.batch = 500
    config.eval.every = 0  # steps; 0: only before the first and after the last
    config.eval.every_epochs = 0.0  # or epochs
    config.log_every = 50  # steps
    config.checkpoint_every = 0  # steps, a multiple of log_every; 0: only after the last
    config.keep_checkpoints = 2  # the newest
    config.keep_best = 0  # and those with the best evaluations, of steps that have both
    config.max_dispatch = 50  # steps run on the device without the host
    config.tensorboard = False
    config.stall_seconds = 300.0  # without a step, until that is said; 0: never
    return config


def default_text() -> ConfigDict:
    """Every field of training on text."""
    config = default()
    config.task = "text"
    config.data = ConfigDict()
    config.data.name = "ptb_char"  # ptb_word, wikitext2, wikitext103
    config.data.dir = config_dict.placeholder(str)  # where it lies
    config.data.length = 400  # tokens of a window
    config.data.valid = 320  # the last of them count, the others are context
    config.model = ConfigDict()
    config.model.width = 384
    config.model.depth = 12
    config.model.heads = 8
    config.model.mlp_ratio = 4.0
    config.model.positions = "sinusoidal"  # or learned
    config.model.max_length = 1024  # rows of learned positions
    config.model.dropout = 0.0
    config.model.embedding_dropout = 0.0  # of whole tokens of the vocabulary
    config.model.base = "timm"  # default initialization; or torch
    config.model.scan = False  # one compiled block for all layers
    config.model.remat = False  # recompute blocks in the backward pass
    config.model.dtype = "float32"  # of the computation; bfloat16 on accelerators
    config.eval.batch = 10
    return config


def arguments(text: str | None, **defaults: Any) -> ConfigDict:
    """The arguments of `--config=FILE.py:name=value,...`, typed like their defaults.

    >>> arguments("width=96", width=192, init="all").to_dict()
    {'init': 'all', 'width': 96}

    Raises:
        InputError: for an unknown name, with the nearest one, or a value of another type.
    """
    values = dict(defaults)
    for item in filter(None, (text or "").split(",")):
        name, equals, value = item.partition("=")
        if name not in defaults:
            raise unknown("config argument", name, defaults)
        kind = type(defaults[name])
        try:
            if not equals or (kind is bool and value not in ("True", "False")):
                raise ValueError
            values[name] = value == "True" if kind is bool else kind(value)
        except ValueError:
            raise InputError(f"config argument {item!r}: {name} takes a {kind.__name__}") from None
    return ConfigDict(values)


def arms(config: ConfigDict) -> dict[str, ConfigDict]:
    """The config of each arm: the whole config with the arm's overrides in it.

    Raises:
        InputError: if an override names a field that doesn't exist, or has another type.
    """
    if not config.arms:
        return {"run": config}
    return {name: _overridden(config, name, config.arms[name]) for name in config.arms}


def check(config: ConfigDict, per_epoch: int, devices: int) -> None:
    """Everything that can be known to be wrong before anything is computed.

    Args:
        config: of one arm.
        per_epoch: steps of an epoch of its data.
        devices: over how many a batch is cut.

    Raises:
        InputError: one line that names the value.
    """
    for name, value in _numbers(config):
        if value < 0 and name != "mesh.data":
            raise InputError(f"{name} {value} is negative")
    for name in ("batch", "accumulate", "max_dispatch", "eval.batch", "log_every"):
        if dict(_numbers(config))[name] < 1:
            raise InputError(f"{name} must be at least 1")
    if not config.ema < 1:
        raise InputError(f"ema {config.ema} is not below 1")
    if not config.seeds or len(set(config.seeds)) < len(config.seeds):
        raise InputError(f"seeds {tuple(config.seeds)} must be different numbers, at least one")
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
    if config.keep_checkpoints < 2:
        raise InputError(f"keep_checkpoints {config.keep_checkpoints}: 2 are needed to fall back")
    if not config.label_smoothing < 1:
        raise InputError(f"label_smoothing {config.label_smoothing} is not below 1")
    for rate in ("dropout", "drop_path", "embedding_dropout"):
        if not config.model.get(rate, 0.0) < 1:
            raise InputError(f"model.{rate} {config.model[rate]} is not below 1")
    if config.model.dtype not in ("float32", "bfloat16"):
        raise unknown("model.dtype", config.model.dtype, ("float32", "bfloat16"))
    if config.optimizer.warmup and config.optimizer.warmup_epochs:
        raise InputError(
            f"give optimizer.warmup ({config.optimizer.warmup} steps) or warmup_epochs "
            f"({config.optimizer.warmup_epochs}), not both"
        )
    schedule_of(config, steps, per_epoch)
    if (plateau := config.optimizer.plateau) and plateau not in PLATEAUS:
        raise unknown("optimizer.plateau", plateau, PLATEAUS)
    if config.eval.every and config.eval.every_epochs:
        raise InputError(
            f"give eval.every ({config.eval.every} steps) or every_epochs "
            f"({config.eval.every_epochs}), not both"
        )
    schemes.as_tuple(config.scheme)
    if config.tensorboard and importlib.util.find_spec("tensorboardX") is None:
        raise InputError("tensorboard=True needs tensorboardX: pip install tensorboardX")


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
    """The config as plain data, schemes written out."""
    return json.loads(json.dumps(_plain(config)))


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """What keeps a workdir of one config from being continued with another; None if nothing.

    Seeds may be added, and arms, and the data may lie elsewhere; what else differs is named.

    >>> old = {"batch": 128, "seeds": [0], "arms": {}}
    >>> difference(old, {"batch": 64, "seeds": [0, 1], "arms": {"default": {}}})
    'batch is 128 there and 64 here'
    """
    shared = old["arms"].keys() & new["arms"].keys()
    flat_old, flat_new = (
        _flat({**record, "seeds": None, "arms": {arm: record["arms"][arm] for arm in shared}})
        for record in (old, new)
    )
    for name in sorted(flat_old.keys() | flat_new.keys()):
        if name != "data.dir" and flat_old.get(name) != flat_new.get(name):
            return f"{name} is {flat_old.get(name)} there and {flat_new.get(name)} here"
    return None


def _overridden(config: ConfigDict, arm: str, overrides: Mapping[str, Any]) -> ConfigDict:
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


def _numbers(config: ConfigDict, prefix: str = "") -> list[tuple[str, float]]:
    found = []
    for name, value in config.items():
        if isinstance(value, ConfigDict) and name != "arms":
            found += _numbers(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found.append((prefix + name, value))
    return found


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
