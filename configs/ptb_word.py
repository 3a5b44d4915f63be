"""Penn Treebank by words: the self-attention paper's language table.

Paper: Mimetic Initialization of Self-Attention Layers, table 6, word-level PTB.
Differs from the paper: as configs/ptb_char.py. Dropout of whole embeddings is the paper's; its rate
    and the others are Bai et al.'s.
"""

import functools

from configs.recipes import words

get_config = functools.partial(words, "ptb_word")
