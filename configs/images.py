"""A vision transformer on images of your own: folders CLASS/*, or train/CLASS/* and test/CLASS/*.

Paper: Mimetic Initialization of Self-Attention Layers (no row of it).
Command: python main.py --config=configs/images.py --config.data.dir=FOLDER
Chosen: nothing was searched. The rate is the paper's for ViTs of this size, the augmentation a crop
    and a flip; search the learning rate on your images, by the default arm alone.
"""

from ml_collections import ConfigDict

from configs.arms import VISION, chosen, vision
from configs.default import arguments, default


def get_config(text: str = "") -> ConfigDict:
    """Arguments: size, patch, width, depth, heads, batch, epochs, init.

    Images become squares of `size` pixels, held in memory; --config.data.name=folder_streamed reads
    them while training instead. Without a test split a tenth of each class is held out. Arms are
    default, sincos, norm_matched and mimetic; `init` takes others of arms.vision.
    """
    args = arguments(
        text, size=64, patch=8, width=192, depth=6, heads=3, batch=32, epochs=20.0, init="all"
    )
    config = default()
    config.name = "images"
    config.seeds = (0, 1, 2)
    config.data.name = "folder"
    config.data.size = args.size
    config.data.augment.crop = args.size // 8
    config.data.augment.flip = True
    config.batch = args.batch
    config.epochs = args.epochs
    config.model.pool = "mean"
    config.model.update({name: args[name] for name in ("patch", "width", "depth", "heads")})

    config.optimizer.learning_rate = 1e-3
    config.optimizer.schedule = "cosine"
    config.optimizer.warmup_epochs = min(1.0, args.epochs / 10)
    config.optimizer.clip = 1.0

    config.eval.every_epochs = 1.0
    config.eval.batch = args.batch
    config.checkpoint_every = 200
    config.arms = chosen(args.init, vision(), VISION)
    return config
