"""WikiText-103: the self-attention paper's language table.

Paper: Mimetic Initialization of Self-Attention Layers, table 6, WikiText-103.
Differs from the paper: as configs/ptb_word.py, whose batch, windows, dropout, clipping and rule it
    takes ("the same hyperparameters as for the previous task"). The optimizer isn't stated.
"""

from ml_collections import ConfigDict

from configs.arms import ALL, Names
from configs.recipes import words


def get_config(
    width: int = 410,
    depth: int = 16,
    heads: int = 10,
    epochs: float = 50.0,
    optimizer: str = "adamw",
    init: Names = ALL,
) -> ConfigDict:
    """`optimizer` is adamw or sgd; arms are those of arms.language."""
    config = words("wikitext103", width, depth, heads, epochs, optimizer, init)
    config.model.scan = config.model.remat = True  # memory of one block's insides
    config.log_every = 500
    config.checkpoint_every = 2500
    return config
