"""A small ViT on 5,000 images of CIFAR-10: does it help that each head attends to a neighbor?

Paper: Structured Initialization for Vision Transformers (no row of it).
Chosen: the size. At width 96 with three heads of 32 on 64 tokens, at the norm 7 √(32 / 64), rows
    attend to their neighbor, with a weight and over a share of the tokens, as those of the paper's
    ViT-Ti do (papers/questions.py). Each seed has 5,000 images of its own, and learning rates are
    chosen on 10,000 others.
"""

from ml_collections import ConfigDict

from configs.arms import ALL, NEIGHBORS, Names, chosen, neighbors
from configs.default import default


def get_config(epochs: float = 40.0, init: Names = ALL) -> ConfigDict:
    """Arms are default, frame, norm_matched_impulse, scattered_impulse and impulse; `init` takes
    others of arms.neighbors.
    """
    config = default()
    config.update(name="neighbors_vit", seeds=tuple(range(5)), batch=64, epochs=epochs)
    config.data.update(name="cifar10", per_seed=5_000)
    config.data.augment.update(crop=4, flip=True)
    config.model.update(width=96, depth=3, heads=3, patch=4, pool="mean", base="torch")
    config.optimizer.update(schedule="cosine", weight_decay=0.05)
    config.optimizer.warmup_epochs = epochs / 10
    config.eval.update(batch=500, every=0)
    config.update(log_every=78, checkpoint_every=312, max_dispatch=26)
    config.arms = chosen(init, neighbors(), NEIGHBORS)
    return config
