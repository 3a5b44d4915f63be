"""A language model on Python's own documentation, by characters: the demo's text, no download.

Paper: Mimetic Initialization of Self-Attention Layers (no row of it; the smallest honest setting).
Command: python main.py --config=configs/python_docs.py
Expected: bits/char 2.718 ± 0.028 (default), 2.721 ± 0.016 (norm_matched), 2.631 ± 0.042 (mimetic),
    with the text of CPython 3.11.7; other versions differ.
Chosen by the default arm's validation bits alone, at seed 100, which the table doesn't have. Rate
    8e-3, constant, clipping at 1: embedding_std .03125 3.087, .0625 2.836, .125 2.940, .25 3.264.
    embedding_std .125, constant: 4e-3 2.982, 8e-3 2.940, 1.6e-2 3.056; cosine: 4e-3 3.166, 1.6e-2
    3.130; triangle: 4e-3 3.197. The former .01 with 2e-3 has 3.440 at seed 3. One seed, rates at
    .0625 and clipping not searched: `python launch/reproduce.py evidence/demo_rates` does both.
"""

from ml_collections import ConfigDict

from configs.default import arguments
from configs.recipes import short_text


def get_config(text: str = "") -> ConfigDict:
    """Arguments: width, depth, heads, steps, init.

    `init` is "all" for default, norm_matched and mimetic; or arms as in configs/ptb_char.py.
    """
    args = arguments(text, width=64, depth=4, heads=2, steps=200, init="all")
    config = short_text(args)
    config.name = "python_docs"
    config.data.name = "python_docs"
    config.data.length, config.data.valid = 64, 64
    config.batch = 32

    config.eval.every = 20
    config.eval.batch = 64
    config.checkpoint_every = 100
    return config
