"""A language model on Python's own documentation, by characters: the demo's text, no download.

Paper: Mimetic Initialization of Self-Attention Layers (no row of it; the smallest honest setting).
Command: python main.py --config=configs/python_docs.py
Expected: see the README's table, which this command printed.
"""

from ml_collections import ConfigDict

from configs.arms import chosen, language
from mimetic_jax.train.config import arguments, default_text


def get_config(text: str = "") -> ConfigDict:
    """Arguments: width, depth, heads, steps."""
    args = arguments(text, width=64, depth=4, heads=2, steps=200)
    config = default_text()
    config.name = "python_docs"
    config.seeds = (0, 1, 2)
    config.data.name = "python_docs"
    config.data.length, config.data.valid = 64, 64
    config.batch = 32
    config.steps = args.steps

    for name in ("width", "depth", "heads"):
        config.model[name] = args[name]
    config.model.base = "torch"

    config.optimizer.learning_rate = 2e-3
    config.optimizer.schedule = "constant"
    config.optimizer.warmup = args.steps // 10
    config.optimizer.weight_decay = 0.01
    config.optimizer.clip = 1.0

    config.eval.every = 20
    config.eval.batch = 64
    config.log_every = 50
    config.checkpoint_every = 100
    config.arms = chosen("all", *language(args.depth))
    return config
