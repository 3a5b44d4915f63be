"""Closed-form starts for today's models: rotary positions, RMSNorm, SwiGLU, QK norm; no skips.

Paper: none; which of the starts that were proposed for such models helps is our question.
Command: python launch/reproduce.py today --data_dir=DIR
    python main.py --config=configs/today.py:task=text,init=default+identity
Chosen: sizes and lengths for what a CPU trains in seconds; arms choose their learning rates at
    seeds from 100 on, of which papers/today.py has the number.
"""

from typing import Any

import numpy as np
from ml_collections import ConfigDict

from configs import arms
from configs.bigrams import Bigrams
from configs.default import check_choice
from configs.recipes import TEXTS, few_images, sequences
from mimetic_jax import schemes as s
from mimetic_jax.data.text.corpus import load_text

TASKS = (*TEXTS, "copying", "recall", "induction", "images", "vision")


def get_config(
    task: str = "text",
    width: int = 32,
    depth: int = 2,
    patch: int = 4,
    steps: int = 200,
    init: arms.Names = arms.ALL,
) -> ConfigDict:
    """`task` is text, ptb, words, copying, recall, induction; vision, with rotary positions on a
    grid; or images, whose models have no skip connections but in the arms skips_NAME.
    """
    check_choice("task", task, TASKS)
    sizes: dict[str, Any] = {"width": width, "depth": depth, "heads": width // 16, "base": "torch"}
    if task == "images":
        config = few_images(0.2, patch=patch, **sizes)
        config.batch = 32
        config.arms = arms.chosen(init, _skipless())
    elif task == "vision":
        config = few_images(0.2, patch=patch, rotary=100.0, **sizes)
        config.batch = 64
        config.arms = arms.chosen(init, _vision())
    else:
        modern = {"positions": "rotary", "qk_norm": True, "rms_norm": True, "swiglu": True}
        config = sequences(task, **sizes, **modern, mlp_ratio=8 / 3)
        config.batch = 16
        config.optimizer.schedule = "constant"
        config.arms = _language(init, sizes["heads"])
    if task == "copying":
        config.data.length = 8
    config.update(name=f"today_{task}_{width}_{depth}_{steps}", steps=steps)
    config.optimizer.update(warmup=steps // 10, clip=1.0)
    return config


def _language(init: arms.Names, heads: int) -> ConfigDict:
    query_key = s.mimetic_language(alpha_vo=None, beta_vo=None)
    copying, anti = s.OrthogonalValueOut(1.0, 0.1, 0.5), s.CorrelatedMLP(-0.5)
    shifted = {"key_shift": 0.5}
    by_head = s.Mimetic(None, None, 0.2, -0.2, per_head=True)
    structured: arms.Arms = {
        "identity": (s.HeadIdentity(),),
        "identity_copying": (s.HeadIdentity(), copying),
        "induction": {"scheme": (s.HeadIdentity.induction(), copying), "model": shifted},
        "each": (query_key, by_head),
        "mimetic": (s.mimetic_language(),),
        "strong": (arms.STRONG,),
    }
    # Their norms are those of the default, which is their control.
    others: arms.Arms = {
        "symmetric": (s.SymmetricQueryKey(),),
        "anti": (anti,),
        "identity_anti": (s.HeadIdentity(), anti),
        "small": {"scheme": (s.Independent(power=0.75),), "model": {"norm_epsilon": 1e-12}},
        "shift": {"model": shifted},
    }
    others |= arms.positional(2, heads, 64) | arms.units()
    # The means of gates by input, eq. 1 of the MLP paper.
    others["gate_per_input"] = (s.MeanShift(arms.B, per_input=True, role="mlp_gate"),)
    # Of the text itself, which is counted for these arms alone.
    if any("bigrams" in name for name in init):
        others |= _bigrams()
    controls = (f"norm_matched_{name}" for name in structured)
    every: arms.Arms = {"default": {}, **structured, **others}
    return arms.chosen(init, every, ["default", *structured, *controls, *others])


def _bigrams() -> arms.Arms:
    """The embedding of the text's bigrams, and its control."""
    corpus = load_text(TEXTS["text"], None)
    return {
        name: (Bigrams.of(corpus.train, len(corpus.vocabulary), shuffled),)
        for name, shuffled in (("bigrams", False), ("bigrams_shuffled", True))
    }


def _vision() -> arms.Arms:
    """Heads that look at the neighbors on the grid, and added positions in place of rotary ones."""
    neighbors = [(row, column) for row in (-1, 0, 1) for column in (-1, 0, 1)]
    order = np.random.default_rng(0).integers(9, size=(4, 4)).tolist()
    offsets = tuple(tuple(neighbors[at] for at in layer) for layer in order)
    added = {"model": {"rotary": 0.0}}
    return {
        "default": {},
        "positional": (s.PositionalHeads(100, offsets, 8.0, axes=2),),
        "mimetic": (s.Mimetic(),),
        "sincos": {**added, "scheme": (s.SinCos(),)},
        "sincos_mimetic": {**added, "scheme": (s.SinCos(), s.Mimetic())},
    }


def _skipless() -> arms.Arms:
    """Arms without skip connections, and the same starts with them: skips_NAME."""
    closed = (
        s.SinCos(),
        s.Orthogonal(),
        s.Mimetic(alpha_qk=2.0, beta_qk=0.6, alpha_vo=None, beta_vo=None),
        s.OrthogonalValueOut(3.0, 3.0),
    )
    starts = {"default": (s.SinCos(),), "closed": closed}
    without: arms.Arms = {
        name: {"scheme": start, "model": {"skipless": True}} for name, start in starts.items()
    }
    return without | {f"skips_{name}": start for name, start in starts.items()}
