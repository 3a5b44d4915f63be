"""A ViT on small images whose blocks first learn to restore masked brackets.

Two steps: stage=warmup trains the blocks on words of a k-Dyck language, from their own draw and
from the mimetic one, with 1 % of the examples that follow; stage=train starts from these blocks,
seed by seed, and trains beside arms without warm-up.

Paper: Can You Learn to See Without Images? Procedural Warm-Up for Vision Transformers (CVPR 2026).
Command:
    python main.py --config=configs/procedural_vit.py:stage=warmup,data=cifar10
    python main.py --config=configs/procedural_vit.py:stage=train,data=cifar10 \
        --config.data.dir=DIR --config.model.dtype=bfloat16
Differs from the paper: images are trained on as in configs/cifar10_vit.py. Of the warm-up, words,
    masks, loss, rates and batch are those of its public code, and so are the frozen embedding and
    positions, and the class token and patch embedding that it does without. Chosen: all of each
    block is transferred (norms, attention, MLP), and patch embedding, positions, class token, last
    norm and head are fresh; 1 % counts examples (the code takes 15,000 steps of 128 words); the
    warm-up of the rate keeps its share of 1/15 of the steps; weight decay is on all that trains.
    The mimetic arms have sin-cos positions, as in configs/cifar10_vit.py, so mimetic_warmup
    differs from mimetic, and warmup from default, in the warm-up alone. No ImageNet-1k.
"""

from ml_collections import ConfigDict

from configs import arms
from configs.default import arguments, default, model
from configs.recipes import small_images_vit
from mimetic_jax.data import describe
from mimetic_jax.errors import unknown
from mimetic_jax.schemes import Mimetic, SinCos

STAGES = ("warmup", "train")
PATCHES = {"cifar10": 2, "cifar100": 2, "tiny_imagenet": 4}


def get_config(text: str = "") -> ConfigDict:
    """Arguments: stage (warmup, train), the model's and the training's, share, warmup, init.

    `data` is cifar10, cifar100 or tiny_imagenet; width, depth, heads, patch (0 for that of the
    data), size and epochs are those of configs/cifar10_vit.py and must agree in both stages.
    `share` is that of the warm-up in the examples. `warmup` is the workdir of stage=warmup,
    the one it has by default unless given. `init` is "all" or one arm: default or mimetic, and in
    stage=train also norm_matched, warmup, mimetic_warmup.
    """
    args = arguments(
        text,
        stage="train",
        data="cifar10",
        width=192,
        depth=12,
        heads=3,
        patch=0,
        size=0,
        epochs=100.0,
        share=0.01,
        warmup="",
        init="all",
    )
    if args.stage not in STAGES:
        raise unknown("stage", args.stage, STAGES)
    if args.data not in PATCHES:
        raise unknown("data", args.data, PATCHES)
    args.patch = args.patch or PATCHES[args.data]
    sizes = ("width", "depth", "heads", "patch", "size", "epochs")
    images = small_images_vit(",".join(f"{name}={args[name]}" for name in sizes), args.data)
    before = f"procedural_warmup_{images.name}"
    if args.stage == "warmup":
        config = _warmup(images, args.share)
        config.name = before
        config.arms = arms.chosen(args.init, {"default": {}, "mimetic": {"scheme": (Mimetic(),)}})
        return config
    workdir = args.warmup or f"runs/{before}"
    images.name = f"procedural_{images.name}"
    compared = {name: arms.attention()[name] for name in ("default", "norm_matched", "mimetic")}
    compared["warmup"] = _from(f"{workdir}/runs/default/{{seed}}")
    compared["mimetic_warmup"] = {
        "scheme": (SinCos(),),
        **_from(f"{workdir}/runs/mimetic/{{seed}}"),
    }
    images.arms = arms.chosen(args.init, compared)
    return images


def _from(run: str) -> dict[str, object]:
    return {"init_from": run, "init_parts": ("blocks",)}


def _warmup(images: ConfigDict, share: float) -> ConfigDict:
    """The task before the images: `share` of their examples, on words as long as their patches."""
    info = describe(images.data.name)
    config = default("dyck")
    config.seeds = images.seeds
    config.batch = 128
    steps = round(images.epochs * (info.num_train // images.batch))
    config.steps = round(share * steps * images.batch / config.batch)
    config.data.length = ((images.data.size or info.image_shape[0]) // images.model.patch) ** 2
    shared = ("width", "depth", "heads", "mlp_ratio", "base", "qkv_bias")
    config.model = model("token_vit", **{name: images.model[name] for name in shared})

    config.optimizer.learning_rate = 2e-3
    config.optimizer.warmup = config.steps // 15
    config.optimizer.warmup_from = 2e-9
    config.optimizer.weight_decay = 0.05
    config.optimizer.rate_rules = (("^(embedding|pos_embed)$", 0.0),)

    config.eval.every = config.checkpoint_every = 1000
    return config
