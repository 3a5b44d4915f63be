"""Populations of small networks on CIFAR-10, whose MLPs are looked at before and after training.

Paper: Mimetic Initialization of MLPs, section 2 and figure 1.
Command:
    python main.py --config=configs/mlp_population.py:init=default --config.data.dir=DIR \
        --config.seeds=0-9999 --workdir=runs/population
    python main.py --config=configs/mlp_population.py --config.data.dir=DIR \
        --workdir=runs/population_arms
Published: the figure alone. The covariance of the first kernel is striped: its entries share a mean
    per input. The second kernel has less of it; in ViTs the first is anti-correlated with it.
Differs from the paper: it states neither epochs nor optimizer nor patches. Ours are 3 layers of
    width 16, patches of 4 pixels (8 in the ViT, since a CPU takes five times as long for patches of
    4: model.patch=4), two heads, mean pooling in the ViT, no augmentation, AdamW at 3e-3 with the
    triangle schedule, batches of 64 and 10 epochs. Populations of other arms are ours.
"""

from typing import Any

from ml_collections import ConfigDict

from configs import arms, default

MODELS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "convnext": ({"patch": 4}, ("conv", "conv_mean_shift")),
    "vit": ({"patch": 8, "heads": 2, "pool": "mean"}, ("mimetic", "mimetic_mean_shift")),
}
"""Fields of each model, and its arms beside those that both have."""


def get_config(
    model: str = "convnext",
    epochs: float = 10.0,
    b: float = arms.B,
    init: arms.Names = arms.ALL,
) -> ConfigDict:
    """Arguments: model (convnext, vit), epochs, b (in standard deviations), init (arms.mlp)."""
    default.check_choice("model", model, MODELS)
    fields, beside = MODELS[model]
    config = default.default()
    config.update(name=f"mlp_population_{model}", batch=64, epochs=epochs)
    config.update(seeds=tuple(range(64)), together=64, max_dispatch=200, checkpoint_every=200)
    config.data.name = "cifar10"
    config.optimizer.update(learning_rate=3e-3, schedule="triangle")
    config.eval.batch = 250
    config.model = default.model(model, width=16, depth=3, mlp_ratio=2.0, base="torch", **fields)
    compared = ("default", "constant_bias", *arms.with_noise("mean_shift", "per_input", *beside))
    config.arms = arms.chosen(init, arms.mlp(16, "torch", b), compared)
    return config
