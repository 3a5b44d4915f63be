"""Copying `$ s | s .`, or recall `k v k v … k v`, by a small transformer.

Paper: none; the data is drawn, so there is no data set.
Command:
    python main.py --config=configs/recall.py
    python main.py --config=configs/recall.py:positions=rotary,rate=1e-2
Chosen by the default arm, at seeds that the tables don't have: at 1e-3, seed 10, it copies after
    350 steps with uniform embeddings and not in 600 with normal ones, which the positions drown;
    the rate is the best of four at seed 10 (results/closed/recall/copying_rates_gpt.md). Not
    searched: the rates of other data and lengths.
"""

from ml_collections import ConfigDict

from configs.arms import ALL, LANGUAGE, Names, chosen, language
from configs.default import default, model


def get_config(
    data: str = "copying",
    positions: str = "sinusoidal",
    length: int = 8,
    rate: float = 3e-3,
    steps: int = 400,
    init: Names = ALL,
) -> ConfigDict:
    """`data` is copying, of which `length` is, or associative, whose sizes are fields.

    Arms are those of arms.language.
    """
    config = default("recall")
    config.update(name=f"{data}_gpt", seeds=(0, 1, 2), batch=64, steps=steps)
    config.data.update(name=data, length=length, num_test=64)
    config.model = model(
        "gpt", width=64, depth=2, heads=4, positions=positions, embedding="uniform"
    )
    config.optimizer.update(learning_rate=rate, schedule="constant", warmup=50, clip=1.0)
    config.eval.every = max(1, steps // 16)
    config.checkpoint_every = 500
    config.arms = chosen(init, language(), LANGUAGE)
    return config
