"""A vision transformer on images of your own: folders CLASS/*, or train/CLASS/* and test/CLASS/*.

Paper: Mimetic Initialization of Self-Attention Layers (no row of it).
Command: python main.py --config=configs/images.py --config.data.dir=FOLDER
Chosen: base, positions and arms by results/closed/questions/bases.md and by
    `questions/small_images`; the augmentation is a crop and a flip. Each arm chooses its learning
    rate on a part of your training images.
"""

from ml_collections import ConfigDict

from configs.arms import ALL, FEW_IMAGES, Names, chosen, few_images
from configs.default import check_choice, default


def get_config(
    size: int = 64,
    patch: int = 8,
    width: int = 192,
    depth: int = 6,
    heads: int = 3,
    batch: int = 32,
    epochs: float = 20.0,
    pool: str = "mean",
    init: Names = ALL,
) -> ConfigDict:
    """Images become squares of `size` pixels, held in memory; with
    --config.data.name=folder_streamed they are read while training. Without a test split a tenth of
    each class is held out. The default arm is the best one that we know, Flax's initialization with
    sin-cos positions. Arms are default, norm_matched_whitened_zero_mlp and whitened_zero_mlp, or
    with pool=token, where the model reads a class token instead of the mean of the patches, those
    with zeros in MLPs alone: NAME_alone. `init` takes others of arms.few_images.
    """
    check_choice("pool", pool, FEW_IMAGES)
    config = default()
    config.update(name="images", seeds=(0, 1, 2), batch=batch, epochs=epochs)
    config.data.update(name="folder", size=size)
    config.data.augment.update(crop=size // 8, flip=True)
    config.model.update(patch=patch, width=width, depth=depth, heads=heads)
    config.model.update(pool=pool, base="flax")
    warmup = min(1.0, epochs / 10)
    config.optimizer.update(learning_rate=1e-3, warmup_epochs=warmup, clip=1.0)
    config.rates = (3e-4, 1e-3, 3e-3)
    config.eval.update(every_epochs=1.0, batch=batch)
    config.checkpoint_every = 200
    config.arms = chosen(init, few_images(), FEW_IMAGES[pool])
    return config
