"""One task of the league: every initialization of one line, on the same small model and data.

Paper: none; which initialization to use is our question.
Command: python launch/reproduce.py league --data_dir=DIR
    python main.py --config=configs/league.py:task=digits,init=default+mimetic
Chosen: the middle of the first three learning rates in papers/league.py was the default's best, at
    seed 100; sizes and lengths for what a CPU trains in seconds. Models start as in Flax (base
    flax), texts with the embedding of configs/python_docs.py.
"""

from ml_collections import ConfigDict

from configs import arms
from configs.default import check_choice, default, model
from configs.recipes import TEXTS, few_images, sequences

TASKS = {
    "digits": (150, 64, 15),
    "text": (400, 16, 100),
    "copying": (60, 32, 6),  # after 100 the default answers all
    "recall": (300, 64, 30),
    "ptb": (400, 16, 0),  # testing on its long texts takes as long as training
    "images": (160, 64, 80),
    "long_text": (2000, 16, 500),
    "long_images": (1560, 64, 780),
}
"""Steps, batch, and steps between tests."""


def get_config(task: str = "digits", init: arms.Names = arms.ALL) -> ConfigDict:
    """`task` is digits, text, copying, recall, ptb, images, long_text or long_images; arms are of
    arms.league.
    """
    check_choice("task", task, TASKS)
    config = _of(task.removeprefix("long_"))
    config.name = f"league_{task}"
    config.steps, config.batch, config.eval.every = TASKS[task]
    config.model.base = "flax"
    config.optimizer.update(warmup=config.steps // 10, clip=1.0)
    config.log_every = config.steps // 5
    config.arms = arms.chosen(init, arms.league(config.model.name, config.model.width))
    return config


def _of(task: str) -> ConfigDict:
    if task == "images":
        return few_images(0.1, width=48, depth=2, heads=2, patch=4)
    if task == "digits":
        config = default()
        config.model = model("vit", width=64, depth=2, heads=2, patch=2, pool="mean")
        config.eval.batch = 120
        return config
    config = sequences(task, width=64, depth=2, heads=2 if task in TEXTS else 4)
    if task not in TEXTS:
        config.optimizer.schedule = "constant"
    return config
