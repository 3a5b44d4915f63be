"""Associative recall, `k v k v … k v`, or induction, `… a b … a`: no data set.

Paper: Mimetic Initialization Helps State Space Models Learn to Recall (no row of it).
Command:
    python main.py --config=configs/recall.py
    python main.py --config=configs/recall.py:gpt,data=induction
Chosen: nothing was searched here.
"""

from ml_collections import ConfigDict

from configs.recipes import recall
from mimetic_jax.base.errors import unknown

MODELS = {"mamba": {"rate": 1e-2, "steps": 1000}, "gpt": {"rate": 1e-3, "steps": 1000}}
SETS = ("associative", "induction")


def get_config(text: str = "mamba") -> ConfigDict:
    """The model, mamba or gpt, then arguments: data (associative, induction), vocabulary, pairs,
    length (of induction), and those of configs/copying.py.
    """
    config, args = recall(text, MODELS, data="associative", vocabulary=64, pairs=8, length=32)
    if args.data not in SETS:
        raise unknown("data", args.data, SETS)
    config.name = f"{args.data}_{config.name}"
    config.data.name = args.data
    config.data.length, config.data.vocabulary = args.length, args.vocabulary
    config.data.pairs = config.data.queries = args.pairs
    return config
