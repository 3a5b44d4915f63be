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
from configs.recipes import beside_positions, few_images
from mimetic_jax.base.errors import unknown


def get_config(text: str = "") -> ConfigDict:
    """Arguments: task, init.

    `task` is digits, text, copying, recall, ptb, images, long_text or long_images; `init` is names
    of arms joined by "+", or "all": see `configs.arms.league`.
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
    config.arms = arms.chosen(args.init, arms.league(config.model.name, config.model.width))
    return config


def _digits() -> ConfigDict:
    config = default()
    config.data.name = "digits"
    config.model = model("vit", width=64, depth=2, heads=2, patch=2, pool="mean")
    config.steps, config.batch = 150, 64
    config.eval.every, config.eval.batch = 15, 120
    return config


def _images(steps: int) -> ConfigDict:
    config = few_images(0.1, width=48, depth=2, heads=2, patch=4)
    config.steps, config.batch = steps, 64
    config.eval.every = steps // 2
    return config


def _text(data: str, steps: int) -> ConfigDict:
    config = default("text")
    config.data.name = data
    config.data.length = config.data.valid = 64
    config.model = model("gpt", width=64, depth=2, heads=2)
    config.model.embedding_std = beside_positions(config.model.width)
    config.steps, config.batch = steps, 16
    config.eval.every, config.eval.batch = steps // 4, 64
    if data == "ptb_char_raw":
        config.eval.every = 0  # testing on its long texts takes as long as training
    return config


def _recall(data: str, steps: int, batch: int) -> ConfigDict:
    config = default("recall")
    config.data.name = data
    config.data.num_test = 64
    config.model = model("gpt", width=64, depth=2, heads=4, embedding="uniform")
    config.steps, config.batch = steps, batch
    config.optimizer.schedule = "constant"
    config.eval.every = steps // 10
    return config


def _copying() -> ConfigDict:
    config = _recall("copying", steps=60, batch=32)  # after 100 the default answers all
    config.data.length = 16
    return config


def _associative() -> ConfigDict:
    config = _recall("associative", steps=300, batch=64)
    config.data.vocabulary, config.data.pairs, config.data.queries = 32, 4, 4
    return config


TASKS: dict[str, Callable[[], ConfigDict]] = {
    "digits": _digits,
    "text": lambda: _text("python_docs", steps=400),
    "copying": _copying,
    "recall": _associative,
    "ptb": lambda: _text("ptb_char_raw", steps=400),
    "images": lambda: _images(steps=160),
    "long_text": lambda: _text("python_docs", steps=2000),
    "long_images": lambda: _images(steps=1560),
}
