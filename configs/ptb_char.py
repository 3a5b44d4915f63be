"""Penn Treebank by characters: the self-attention paper's language table.

Paper: Mimetic Initialization of Self-Attention Layers, table 6, character-level PTB.
Differs from the paper: it names the set-up of Bai et al. (2018) and little else. Theirs are batch,
    windows, clipping, dropout (of single elements), the embedding's uniform ±.1 and the plateau
    rule. The optimizer isn't stated: `optimizer=sgd` is Bai et al.'s SGD at 4 to the letter, the
    default is AdamW. Widths of the MLP (4 D) and pre-norm are our choice. Characters are Mikolov's,
    50 of them; the published numbers are probably of `chars=raw`, which Bai et al.'s program reads,
    and of SGD. Raw has 5 % more characters, all easy: see mimetic_jax/data/text/corpus.py.
"""

from ml_collections import ConfigDict

from configs.arms import ALL, Names
from configs.default import check_choice
from configs.recipes import bai

CHARS = {"mikolov": "ptb_char", "raw": "ptb_char_raw"}


def get_config(
    width: int = 384,
    depth: int = 12,
    heads: int = 8,
    epochs: float = 100.0,
    optimizer: str = "adamw",
    chars: str = "mikolov",
    init: Names = ALL,
) -> ConfigDict:
    """`optimizer` is adamw or sgd, `chars` mikolov or raw; arms are those of arms.language."""
    check_choice("chars", chars, CHARS)
    config = bai(CHARS[chars], width, depth, heads, epochs, optimizer, init)
    config.data.update(length=400, valid=320)
    config.batch = config.eval.batch = 32
    config.model.update(dropout=0.1, embedding_dropout=0.1, dropout_of="elements")
    config.model.embedding = "uniform"
    config.optimizer.update(clip=0.15, plateau="tenth")
    config.checkpoint_every = 250
    return config
