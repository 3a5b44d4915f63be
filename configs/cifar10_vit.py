"""Table 1 of the self-attention paper: ViTs on CIFAR-10, any width, depth, heads and patch.

Paper: Mimetic Initialization of Self-Attention Layers, table 1 (and 2, 5 through `init`).
Command (one row, one GPU):
    python main.py --config=configs/cifar10_vit.py:width=192,depth=12,heads=3 \
        --config.data.dir=DIR --config.model.dtype=bfloat16 --workdir=runs/cifar10_192_12_3
Published, base -> mimetic: 96/6/3 84.75 -> 87.90; 96/12/3 84.75 -> 88.84; 192/6/3 85.85 -> 89.68;
    192/12/1 85.25 -> 89.88; 192/12/3 86.07 -> 90.78; 192/12/6 86.74 -> 91.38;
    192/24/3 86.36 -> 91.85; 384/12/3 86.26 -> 91.56; 384/12/6 84.40 -> 92.17;
    384/12/12 86.39 -> 92.30 (width/depth/heads; patch 2, 100 epochs, batch 512).
Differs from the paper: no RandAugment yet; crop, flip and cutout instead. Schedule, clipping and
    cutout size aren't stated there: the triangle and crop are the same authors' CIFAR script's.
"""

from ml_collections import ConfigDict

from mimetic_jax.errors import unknown
from mimetic_jax.schemes import Mimetic, NormMatched, SinCos
from mimetic_jax.train.config import arguments, default


def get_config(text: str = "", data: str = "cifar10") -> ConfigDict:
    """Arguments: width, depth, heads, patch, epochs, scale (γ of the positions), init.

    `init` is "all" for the comparison of every arm, or one arm: default, sincos, norm_matched,
    mimetic, query_key (only Q/K), value_out (only V/out), positive (V/out with +βI),
    mimetic_learned (random positions).
    """
    args = arguments(
        text, width=192, depth=12, heads=3, patch=2, epochs=100.0, scale=1.0, init="all"
    )
    config = default()
    config.name = f"{data}_vit_{args.width}_{args.depth}_{args.heads}_p{args.patch}"
    config.seeds = (0, 1, 2)
    config.data.name = data
    config.data.augment.crop = 4
    config.data.augment.flip = True
    config.data.augment.cutout = 8
    config.batch = 512
    config.epochs = args.epochs

    for name in ("width", "depth", "heads", "patch"):
        config.model[name] = args[name]

    config.optimizer.learning_rate = 3e-3
    config.optimizer.schedule = "triangle"
    config.optimizer.weight_decay = 0.01  # on all parameters, as in the authors' script
    config.optimizer.clip = 1.0

    config.eval.batch = 1000
    config.eval.every = 970  # ten epochs
    config.log_every = 97
    config.checkpoint_every = 970

    positions, mimetic = SinCos(scale=args.scale), Mimetic()
    compared = {
        "default": {},  # learned positions
        "sincos": {"scheme": (positions,)},
        "norm_matched": {"scheme": (positions, NormMatched(mimetic))},
        "mimetic": {"scheme": (positions, mimetic)},
    }
    ablations = {
        "query_key": {"scheme": (positions, Mimetic(alpha_vo=None, beta_vo=None))},
        "value_out": {"scheme": (positions, Mimetic(alpha_qk=None, beta_qk=None))},
        "positive": {"scheme": (positions, Mimetic(beta_vo=0.4))},
        "mimetic_learned": {"scheme": (mimetic,)},
    }
    everything = compared | ablations
    if args.init == "all":
        config.arms = ConfigDict(compared, sort_keys=False)
    elif args.init in everything:
        config.arms = ConfigDict({args.init: everything[args.init]})
    else:
        raise unknown("init", args.init, ["all", *everything])
    return config
