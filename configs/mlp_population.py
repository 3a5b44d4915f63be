"""Populations of small networks on CIFAR-10, whose MLPs are looked at before and after training.

Paper: Mimetic Initialization of MLPs, section 2 and figure 1.
Command:
    python main.py --config=configs/mlp_population.py:init=default --config.data.dir=DIR \
        --config.seeds=0-9999 --workdir=runs/population
    python main.py --config=configs/mlp_population.py --config.data.dir=DIR \
        --workdir=runs/population_arms
Published: the figure alone. Over about 10,000 networks of 3 or 4 layers, width 16 to 32 and
    expansion 2, the covariance of the first kernel is striped: its entries share a mean per input.
    The second kernel has less of it, and in ViTs the first is anti-correlated with the second.
Differs from the paper: it states neither epochs nor optimizer nor patches. Ours are 3 layers of
    width 16, patches of 4 pixels (8 in the ViT, since a CPU takes five times as long for patches of
    4: model.patch=4), two heads, mean pooling in the ViT, no augmentation, AdamW at 3e-3 with the
    triangle schedule, batches of 64 and 10 epochs. Populations of other arms are ours.
"""

from ml_collections import ConfigDict

from configs import arms
from configs.default import arguments, default, model
from mimetic_jax.base.errors import unknown


def get_config(text: str = "") -> ConfigDict:
    """Arguments: model (convnext, vit), epochs, b, init.

    b is in standard deviations of the kernel.

    `init` is "all" for default, constant_bias, mean_shift and per_input, beside conv and
    conv_mean_shift of a ConvNeXt, or mimetic and mimetic_mean_shift of a ViT, and their controls:
    norm_matched, that of mean_shift, and norm_matched_NAME. Others are learned_sum, anti_correlated
    and norm_matched_anti_correlated; "sweep" and "baselines" have the means of figure 4.
    """
    args = arguments(text, model="convnext", epochs=10.0, b=0.5, init="all")
    config = default()
    config.name = f"mlp_population_{args.model}"
    config.seeds, config.together = tuple(range(64)), 64
    config.batch = 64
    config.epochs = args.epochs
    config.data.name = "cifar10"
    config.optimizer.learning_rate = 3e-3
    config.optimizer.schedule = "triangle"
    config.max_dispatch = 200
    config.log_every = 50
    config.eval.batch = 250
    config.checkpoint_every = 200
    width, base = 16, "torch"
    sizes = {"width": width, "depth": 3, "mlp_ratio": 2.0, "base": base}
    if args.model == "convnext":
        config.model = model("convnext", patch=4, **sizes)
        beside = arms.filters(args.b)
    elif args.model == "vit":
        config.model = model("vit", patch=8, heads=2, pool="mean", **sizes)
        beside = arms.attention_beside(args.b)
    else:
        raise unknown("model", args.model, ("convnext", "vit"))
    compared, others = arms.mlp(args.b, width, base)
    compared |= {name: others[name] for name in ("per_input", "norm_matched_per_input")} | beside
    config.arms = arms.chosen(args.init, compared, others, arms.mean_sweep(args.b, width))
    return config
