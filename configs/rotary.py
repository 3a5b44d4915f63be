"""Language models of today in earnest: rotary positions, RMSNorm, SwiGLU, 21 million parameters.

Paper: none; how long it lasts that heads start by looking at a distance is our question.
Command: python launch/reproduce.py questions/large --data_dir=FOLDER
    python main.py --config=configs/rotary.py:init=default+positional --config.data.dir=FOLDER
Hardware: one H100 or H200; a thousand steps take about 20 seconds.
Chosen: sizes for what a GPU trains in seconds; arms choose their learning rates at seed 100
    (papers/questions.py).
"""

from ml_collections import ConfigDict

from configs import arms
from configs.default import check_choice, default
from configs.recipes import MODERN, beside_positions

LENGTH = 512

TEXTS = {"source": "text_char", "wikitext": "text_char", "ptb": "ptb_char_raw"}
"""Data sets by the text; those of one's own are folders of train.txt, valid.txt and test.txt."""


def get_config(
    text: str = "ptb",
    width: int = 384,
    depth: int = 12,
    heads: int = 8,
    steps: int = 1000,
    init: arms.Names = arms.ALL,
) -> ConfigDict:
    """`text` is source (100 MB of Python out of wheels), wikitext (WikiText-2) or ptb (the Penn
    Treebank), read by characters.
    """
    check_choice("text", text, TEXTS)
    config = default("text")
    config.update(name=f"rotary_{text}_{width}_{depth}_{steps}", batch=32, steps=steps)
    config.update(checkpoint_every=max(1000, steps // 4), log_every=100)
    config.data.update(name=TEXTS[text], length=LENGTH, valid=LENGTH)
    config.eval.batch = 64
    config.model.update(MODERN, qk_norm=False, width=width, depth=depth, heads=heads, base="torch")
    config.model.update(embedding_std=beside_positions(width), scan=True, dtype="bfloat16")
    config.optimizer.update(warmup=steps // 10, weight_decay=0.1, no_decay=True, clip=1.0)
    config.arms = arms.chosen(init, arms.positional(), arms.POSITIONAL)
    return config
