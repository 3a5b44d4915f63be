"""Every field of a configuration, with its default; each configuration starts from these."""

from __future__ import annotations

import dataclasses
from typing import Any

from ml_collections import ConfigDict, config_dict

from mimetic_jax.data import Augmentation, Mixing
from mimetic_jax.errors import InputError, unknown
from mimetic_jax.models import model_fields


def default() -> ConfigDict:
    """Every field of training on images, with its default."""
    config = ConfigDict()
    config.task = "images"  # text, dyck
    config.name = "unnamed"  # workdir is runs/NAME unless given
    config.seeds = (0,)  # each arm is trained once per seed
    config.members = 0  # of a population per arm, with seeds 0 to members − 1; 0: runs of `seeds`
    config.chunk = 0  # members of a population trained at once; 0: as many as the memory takes
    config.scheme = ()  # schemes applied to the model's own draw, left to right
    config.arms = ConfigDict()  # arm -> overrides of this config; none: one arm, "run"

    config.batch = 128  # examples per step, divisible by accumulate x devices
    config.accumulate = 1  # parts of a batch whose gradients are averaged
    config.epochs = 0.0  # of training; either these or steps
    config.steps = 0  # of training; either these or epochs
    config.label_smoothing = 0.0  # share of the label that all classes get equally
    config.ema = 0.0  # decay of the moving average, which is tested beside the parameters; 0: none
    config.init_from = config_dict.placeholder(str)  # a run or a file: see train/warm_start.py
    config.init_parts = ()  # of init_from, only "attention", "position", "blocks"; empty: all
    config.init_heads = "whole"  # of a larger init_from: whole heads, or "mixed" columns of all

    config.data = ConfigDict()
    config.data.name = "digits"  # see data/sets/table.py
    config.data.dir = config_dict.placeholder(str)  # the folder that holds the data set
    config.data.classes = 0  # of a streamed set that isn't the published one; 0: as published
    config.data.size = 0  # side of the images that the model sees; 0: the set's own, 64 of folders
    config.data.mean = ()  # per channel, to subtract; white is 1; empty: the data set's own
    config.data.std = ()  # per channel, to divide by; empty: the data set's own
    config.data.subset = 1.0  # share of each class to train on
    config.data.repeats = 1  # times each image comes in an epoch (streamed sets)
    config.data.eval_fraction = 1.0  # of the shorter side, what a test image keeps
    config.data.threads = 0  # that decode streamed images; 0: one per core
    config.data.strict = False  # stop at a damaged image instead of replacing it
    config.data.max_pixels = 0  # of an image; a larger one counts as damaged; 0: 2**27
    config.data.max_bytes = 0  # of its file, unpacked; 0: 2**28
    config.data.augment = _fields(Augmentation, without="size")  # see its docstring
    config.data.mix = _fields(Mixing)  # see its docstring

    config.model = model("vit")  # a key of mimetic_jax.models.MODELS, or package.module:Class
    config.rules = ()  # ((path, role, layout), ...) of the parameters; empty: the model's own

    config.optimizer = ConfigDict()
    config.optimizer.name = "adamw"  # adam, sgd
    config.optimizer.learning_rate = 1e-3  # the highest of the schedule
    config.optimizer.base_batch = 0  # the batch that learning_rate is for; 0: this one
    config.optimizer.scaling = "linear"  # of learning_rate from base_batch to batch; or sqrt
    config.optimizer.schedule = "cosine"  # constant, cosine, timm_cosine, kentaroy_cosine, triangle
    config.optimizer.warmup = 0  # steps; either these or warmup_epochs
    config.optimizer.warmup_epochs = 0.0  # either these or warmup
    config.optimizer.warmup_from = 0.0  # learning rate of the first step
    config.optimizer.final = 0.0  # learning rate where a cosine ends
    config.optimizer.plateau = ""  # rule that lowers the rate by the validation loss: halve, tenth
    config.optimizer.cooldown_epochs = 0.0  # number of last epochs at `final`
    config.optimizer.weight_decay = 0.01  # of adamw, times the learning rate
    config.optimizer.betas = (0.9, 0.999)  # Adam's two decay rates
    config.optimizer.eps = 1e-8  # Adam's ε
    config.optimizer.clip = 0.0  # largest global norm of the gradient; 0: none
    config.optimizer.skip_nonfinite = 0  # steps in a row without finite gradients to skip
    config.optimizer.no_decay = False  # True: none on biases, norms and what else the model spares
    config.optimizer.decay_rules = ()  # ((regex, factor of weight_decay), ...), first match
    config.optimizer.rate_rules = ()  # ((regex, factor of learning_rate), ...); 0 freezes

    config.mesh = ConfigDict()
    config.mesh.data = -1  # devices over which a batch is sharded; -1: what the other axes leave
    config.mesh.fsdp = 1  # devices over which parameters are sharded
    config.mesh.tensor = 1  # devices over which heads and hidden units are sharded
    config.mesh.rules = ()  # ((regex, placement), ...), first match; empty: the model's own

    config.eval = ConfigDict()
    config.eval.batch = 500  # test examples at once
    config.eval.every = 0  # steps, or every_epochs; 0: only before the first and after the last
    config.eval.every_epochs = 0.0  # either these or every
    config.log_every = 50  # steps
    config.checkpoint_every = 0  # steps, a multiple of log_every; 0: only after the last
    config.keep_checkpoints = 2  # number of the newest
    config.keep_best = 0  # number of those with the best evaluations, of steps that have both
    config.max_dispatch = 50  # steps per dispatch, which the device runs without the host
    config.together = 1  # runs of a program to train at once: see benchmarks/together.py
    config.tensorboard = False  # also write metrics for TensorBoard
    config.stall_seconds = 300.0  # without a step before a line reports it; 0: never
    return config


def default_text() -> ConfigDict:
    """Every field of training on text."""
    config = default()
    config.task = "text"  # images, dyck
    config.data = ConfigDict()
    config.data.name = "ptb_char"  # ptb_word, wikitext2, wikitext103, python_docs, text_char, …
    config.data.dir = config_dict.placeholder(str)  # the folder that holds the data set
    config.data.length = 400  # tokens of a window
    config.data.valid = 320  # tokens of a window that count, the last ones; the others are context
    config.model = model("gpt")
    config.eval.batch = 10  # windows at once
    return config


def default_dyck() -> ConfigDict:
    """Every field of restoring masked brackets, the task that may come before images."""
    config = default()
    config.task = "dyck"  # images, text
    config.data = ConfigDict()
    config.data.name = "dyck"  # words are drawn, there is no other set
    config.data.length = 196  # tokens of a word
    config.data.pairs = 64  # kinds of brackets
    config.data.open_probability = 0.6  # of opening one where one could also be closed
    config.data.max_depth = 4  # open brackets, at most
    config.data.mask_probability = 0.5  # of a closing bracket
    config.data.num_test = 1024  # words
    config.model = model("token_vit")
    config.eval.batch = 128  # words at once
    return config


DEFAULTS = {"images": default, "text": default_text, "dyck": default_dyck}
"""By task."""


def _fields(of: Any, without: str = "") -> ConfigDict:
    """The fields of a dataclass with their defaults."""
    fields = dataclasses.fields(of)
    return ConfigDict({f.name: f.default for f in fields if f.name != without})


def model(name: str, **values: Any) -> ConfigDict:
    """`config.model` for one of our models, or for "package.module:Class".

    It holds the fields of the module with the defaults of its class, so that each can be set by
    `--config.model.FIELD=VALUE`; models/vit.py and models/gpt.py describe ours. What the data
    decides (classes, vocabulary) is filled in by the trainer.

    >>> model("vit", width=96).width, model("gpt").positions
    (96, 'sinusoidal')

    Raises:
        InputError: for an unknown model or field, with the nearest name.
    """
    fields = ConfigDict({"name": name})
    for field, default in model_fields(name).items():
        if default is None:
            fields[field] = config_dict.placeholder(object)
        else:
            fields[field] = default
    for field, value in values.items():
        if field not in fields:
            raise unknown(f"field of model {name}", field, model_fields(name))
        fields[field] = value
    return fields


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
