"""Copying strings, `$ s | s .`, by a small state space model or transformer: no data set.

Paper: Mimetic Initialization Helps State Space Models Learn to Recall (no row of it).
Command: python main.py --config=configs/copying.py
"""

from ml_collections import ConfigDict

from configs.recipes import recall

RATES = {"mamba": 1e-2, "gpt": 1e-3}


def get_config(text: str = "mamba") -> ConfigDict:
    """The model, mamba or gpt, then arguments: width, depth, heads, state, positions, length, rate,
    steps, init; such as gpt,positions=rotary.

    `init` is "all" for default, norm_matched and mimetic; or other arms and groups: of mamba
    shuffled, parts, combinations and powers; of gpt vision, query_key, value_out and constants.
    """
    config, args = recall(text, RATES, length=16, steps=500)
    config.name = f"copying_{config.name}"
    config.data.name = "copying"
    config.data.length = args.length
    return config
