"""A language model on Python's own documentation, by characters: the demo's text, no download.

Paper: Mimetic Initialization of Self-Attention Layers (no row of it; the smallest honest setting).
Command: python main.py --config=configs/python_docs.py
Expected: bits/char 2.722 ± 0.037 (default), 2.718 ± 0.028 (its noise), 2.626 ± 0.033 (mimetic),
    seeds 0 to 4 and the text of CPython 3.11.7; other versions differ.
Chosen by the default arm's validation bits alone, the mean of seeds 100 and 101, which the table
    doesn't have (results/closed/evidence/demo_rates.md): 2.848. Rate 4e-3 2.895, 1.6e-2 2.969;
    embedding_std .03125 2.978, .125 2.932; cosine 2.996; without clipping 2.936, at seed 100 alone.
"""

from ml_collections import ConfigDict

from configs.arms import ALL, Names
from configs.recipes import short_text


def get_config(
    width: int = 64, depth: int = 4, heads: int = 2, steps: int = 200, init: Names = ALL
) -> ConfigDict:
    """Arms are those of arms.language."""
    config = short_text(width, depth, heads, steps, init)
    config.update(name="python_docs", batch=32, checkpoint_every=100)
    config.data.update(name="python_docs", length=64, valid=64)
    config.eval.update(every=20, batch=64)
    return config
