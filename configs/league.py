"""One task of the league: every initialization of one line, on the same small model and data.

Paper: none; which initialization to use is our question.
Command: python launch/reproduce.py league --data_dir=DIR
    python main.py --config=configs/league.py:task=digits,init=default+mimetic
Chosen: the middle of the first three learning rates in papers/league.py was the default's best, at
    seed 100; sizes and lengths for what a CPU trains in seconds. Models start as in Flax (base
    flax), texts with the embedding of configs/python_docs.py.
"""

from __future__ import annotations

from collections.abc import Callable

from ml_collections import ConfigDict

from configs import arms
from configs.default import arguments, default, model
from configs.recipes import beside_positions
from mimetic_jax.base.errors import unknown


def get_config(text: str = "") -> ConfigDict:
    """Arguments: task, init.

    `task` is digits, text, long_text, deep, copying, recall, ptb, images, long_images, token, mixer
    or convnext; `init` is names of arms joined by "+", or "all": see `configs.arms.league`.
    """
    args = arguments(text, task="digits", init="all")
    if args.task not in TASKS:
        raise unknown("task", args.task, TASKS)
    config = TASKS[args.task]()
    config.name = f"league_{args.task}"
    config.model.base = "flax"
    config.optimizer.clip = 1.0
    config.optimizer.warmup = config.steps // 10
    config.log_every = config.steps // 5
    sizes = config.model.name, config.model.width, config.model.depth
    config.arms = arms.chosen(args.init, arms.league(*sizes))
    return config


def _images(data: str, name: str, steps: int, **fields: object) -> ConfigDict:
    config = default()
    config.data.name = data
    config.model = model(name, **fields)
    config.steps, config.batch = steps, 64
    config.eval.every = steps // 10
    return config


def _digits() -> ConfigDict:
    config = _images("digits", "vit", 150, width=64, depth=2, heads=2, patch=2, pool="mean")
    config.eval.batch = 120
    return config


def _cifar(name: str, steps: int = 160, **fields: object) -> ConfigDict:
    config = _images("cifar10", name, steps, **fields)
    config.data.subset = 0.1
    config.data.augment.crop, config.data.augment.flip = 4, True
    config.eval.every, config.eval.batch = steps // 2, 500  # 10,000 test images
    return config


_VIT = {"width": 48, "depth": 2, "heads": 2, "patch": 4}


def _text(data: str, steps: int = 400, **fields: object) -> ConfigDict:
    config = default("text")
    config.data.name = data
    config.data.length = config.data.valid = 64
    config.model = model("gpt", **({"width": 64, "depth": 2, "heads": 2} | fields))
    config.model.embedding_std = beside_positions(config.model.width)
    config.steps, config.batch = steps, 16
    config.eval.every, config.eval.batch = steps // 4, 64
    return config


def _ptb() -> ConfigDict:
    config = _text("ptb_char_raw")
    config.eval.every = 0  # testing on its long texts takes as long as training
    return config


def _recall(data: str, steps: int) -> ConfigDict:
    config = default("recall")
    config.data.name = data
    config.data.num_test = 64
    config.model = model("gpt", width=64, depth=2, heads=4, embedding="uniform")
    config.steps, config.batch = steps, 64
    config.optimizer.schedule = "constant"
    config.eval.every = steps // 10
    return config


def _copying() -> ConfigDict:
    config = _recall("copying", 60)  # after 100 the default answers all
    config.data.length = 16
    config.batch = 32
    return config


def _associative() -> ConfigDict:
    config = _recall("associative", 300)
    config.data.vocabulary, config.data.pairs, config.data.queries = 32, 4, 4
    return config


TASKS: dict[str, Callable[[], ConfigDict]] = {
    "digits": _digits,
    "text": lambda: _text("python_docs"),
    "deep": lambda: _text("python_docs", width=32, depth=12, scan=True),
    "ptb": _ptb,
    "copying": _copying,
    "recall": _associative,
    "long_text": lambda: _text("python_docs", steps=2000),
    "images": lambda: _cifar("vit", pool="mean", **_VIT),
    "long_images": lambda: _cifar("vit", steps=1560, pool="mean", **_VIT),
    "token": lambda: _cifar("vit", pool="token", **_VIT),
    "mixer": lambda: _cifar("mixer", width=48, depth=2, patch=4, token_ratio=2.0, mlp_ratio=2.0),
    "convnext": lambda: _cifar("convnext", width=48, depth=2, patch=4, filter_size=5),
}
