"""A language model on Python's own documentation, by characters: the demo's text, no download.

Paper: Mimetic Initialization of Self-Attention Layers (no row of it; the smallest honest setting).
Command: python main.py --config=configs/python_docs.py
Expected: bits/char 3.178 ± 0.015 (default), 3.205 ± 0.003 (norm_matched), 2.946 ± 0.017 (mimetic),
    with the text of CPython 3.11.7; other versions differ.
Chosen by the default arm's validation bits alone, at seed 3, which the table doesn't have. Constant
    rate, base torch: 2e-3 3.440, 3e-3 3.463, 6e-3 3.722; base timm: 3e-3 3.940, 6e-3 3.868, 1e-2
    4.037. Cosine: torch 3e-3 4.092, 6e-3 4.087; timm 3e-3 4.350, 6e-3 4.073, 1e-2 4.017. Clipping
    at 1 in these; without (timm, constant 3e-3) 4.052.
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
