"""WikiText-2 with the recipe of word-level Penn Treebank; no row of a paper.

Paper: Mimetic Initialization of Self-Attention Layers (no row of it; the size at which WikiText can
    be tried without a cluster).
Command: python main.py --config=configs/wikitext2.py --config.data.dir=DIR --workdir=runs/wikitext2
Differs from the paper: as configs/ptb_word.py.
"""

from ml_collections import ConfigDict

from configs.recipes import words


def get_config(text: str = "") -> ConfigDict:
    """Arguments: those of configs/ptb_char.py."""
    return words(text, "wikitext2")
