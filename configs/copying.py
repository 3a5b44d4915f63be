"""Copying strings, `$ s | s .`, by a small state space model or transformer: no data set.

Paper: Mimetic Initialization Helps State Space Models Learn to Recall (no row of it).
Command:
    python main.py --config=configs/copying.py
    python main.py --config=configs/copying.py:gpt,positions=rotary
Expected: answers 97.63 ± 1.30 % (default), 98.50 ± 0.10 (norm_matched), 95.60 ± 3.75 (mimetic); a
    tie, see docs/recall.md.
Chosen by the default arm, at seeds that the tables don't have. Mamba: the rate is the best of five
    at seeds 10 and 11 (recall/copying_rates in that page); the embedding's standard deviation
    at 1e-2, 16 tokens, 400 steps: .02 11.6 %, .125 60.4 % (seed 1), 1 90.7 % (seed 7); 8 tokens
    instead of 16 for the time. GPT: at 1e-3, seed 10, it copies after 350 steps with uniform
    embeddings and not in 600 with normal ones; the rate is the best of four at seed 10
    (recall/copying_rates_gpt). Not searched: the rates of other sizes and lengths.
The convolution's part of the mimetic start is off by default: at embedding_std .02, 16 tokens,
    seed 1, 90.5 % with it and 97.7 % without.
"""

from ml_collections import ConfigDict

from configs.arms import ALL, Names
from configs.default import check_choice
from configs.recipes import recall

MODELS = {"mamba": {"rate": 3e-2, "steps": 240}, "gpt": {"rate": 3e-3, "steps": 400}}


def get_config(
    model: str = "mamba",
    state: int = 0,
    positions: str = "",
    length: int = 8,
    rate: float = 0.0,
    steps: int = 0,
    init: Names = ALL,
) -> ConfigDict:
    """`model` is mamba, with `state`, or gpt, with `positions`; what is 0 or empty is the model's
    own. Arms are those of arms.mamba or arms.language.
    """
    check_choice("model", model, MODELS)
    usual = MODELS[model]
    config = recall(
        model, state, positions, rate or usual["rate"], steps or int(usual["steps"]), init
    )
    config.name = f"copying_{config.name}"
    config.data.name = "copying"
    config.data.length = length
    return config
