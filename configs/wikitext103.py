"""WikiText-103: the self-attention paper's language table.

Paper: Mimetic Initialization of Self-Attention Layers, table 6, WikiText-103.
Differs from the paper: as configs/ptb_word.py, whose batch, windows, dropout, clipping and rule it
    takes ("the same hyperparameters as for the previous task"). The optimizer isn't stated.
"""

from ml_collections import ConfigDict

from configs.recipes import words


def get_config(text: str = "") -> ConfigDict:
    """Arguments: those of configs/ptb_char.py, but chars."""
    config = words(text, "wikitext103", width=410, depth=16, heads=10, epochs=50.0)
    config.model.scan = config.model.remat = True  # memory of one block's insides
    config.log_every = 500
    config.checkpoint_every = 2500
    return config
