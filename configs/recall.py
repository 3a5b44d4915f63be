"""Associative recall, `k v k v … k v`, or induction, `… a b … a`: no data set.

Paper: Mimetic Initialization Helps State Space Models Learn to Recall (no row of it).
Command:
    python main.py --config=configs/recall.py
    python main.py --config=configs/recall.py:gpt,data=induction
Chosen: nothing was searched here.
"""

from ml_collections import ConfigDict

from configs.arms import ALL, Names
from configs.default import check_choice
from configs.recipes import recall

RATES = {"mamba": 1e-2, "gpt": 1e-3}


def get_config(
    model: str = "mamba",
    data: str = "associative",
    vocabulary: int = 64,
    pairs: int = 8,
    length: int = 32,
    state: int = 0,
    positions: str = "",
    rate: float = 0.0,
    steps: int = 1000,
    init: Names = ALL,
) -> ConfigDict:
    """`data` is associative or induction, of which `length` is; the others are those of
    configs/copying.py.
    """
    check_choice("model", model, RATES)
    check_choice("data", data, ("associative", "induction"))
    config = recall(model, state, positions, rate or RATES[model], steps, init)
    config.name = f"{data}_{config.name}"
    config.data.name = data
    config.data.length, config.data.vocabulary = length, vocabulary
    config.data.pairs = config.data.queries = pairs
    return config
