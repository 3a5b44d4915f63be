"""What trained transformers look like, as initializations of small ones: docs/trained.md.

Paper: none; whether it helps to start with the products of a trained transformer is our question.
Command: python launch/reproduce.py trained --data_dir=DIR --file=dinov2_s.safetensors
    python main.py --config=configs/trained.py:task=digits,init=default+anti
Chosen: sizes and lengths for what a CPU trains in seconds; arms choose their learning rates at seed
    100 (papers/trained.py).
"""

from __future__ import annotations

from ml_collections import ConfigDict

from configs import arms, digits_vit, python_docs
from configs.default import arguments
from configs.recipes import few_images
from mimetic_jax.base.errors import unknown
from mimetic_jax.schemes import ByDepth, CorrelatedMLP, Mimetic, Scheme, SinCos, mimetic_language

DINOV2 = (
    Mimetic(
        alpha_qk=ByDepth(
            (
                *(0.736, 1.936, 1.039, 1.127, 0.6042, 0.4895),
                *(0.4292, 0.4291, 0.4754, 0.4479, 0.4394, 0.5885),
            )
        ),
        beta_qk=ByDepth(
            (
                *(0.09153, 0.3449, 0.1572, 0.1453, 0.06056, 0.04347),
                *(0.04399, 0.04659, 0.06583, 0.05131, 0.0535, 0.1477),
            )
        ),
        alpha_vo=ByDepth(
            (
                *(0.06107, 0.02919, 0.03448, 0.03617, 0.04405, 0.06812),
                *(0.08466, 0.1325, 0.1394, 0.2068, 0.2833, 1.919),
            )
        ),
        beta_vo=ByDepth(
            (
                *(-0.02982, -0.0328, -0.01485, -0.007299, -0.01179, -0.008714),
                *(-0.02073, -0.01632, -0.02155, -0.04571, -0.07516, 0.0608),
            )
        ),
    ),
    CorrelatedMLP(
        ByDepth(
            (
                *(-0.2261, -0.3896, -0.3049, -0.2794, -0.2412, -0.1961),
                *(-0.07099, -0.01829, 0.1888, 0.03587, 0.2033, 0.01384),
            )
        )
    ),
)
"""`mimetic fit` of DINOv2's ViT-S/14, layer by layer; the file is named in docs/trained.md."""

TASKS = ("images", "digits", "text")


def get_config(text: str = "") -> ConfigDict:
    """Arguments: task, teacher, init.

    `task` is images, digits or text. `teacher` is a file of a trained ViT that is larger than 48/4
    of 2 heads, from which the arm `selection` takes evenly spaced weights of its first layers: for
    task=images. `init` is "all" or names of arms joined by "+".
    """
    args = arguments(text, task="digits", teacher="", init="all")
    if args.task not in TASKS:
        raise unknown("task", args.task, TASKS)
    digits = args.task == "digits"
    if args.task == "images":
        config = _images()
    else:
        config = digits_vit.get_config("steps=100") if digits else python_docs.get_config()
        config.batch = 64 if digits else config.batch
    config.name = f"trained_{args.task}"
    config.eval.every = 0  # testing takes as long as training
    config.arms = arms.chosen(args.init, _arms(args.task, args.teacher))
    return config


def _images() -> ConfigDict:
    config = few_images(0.2, width=48, depth=4, heads=2, patch=4, base="torch")
    config.batch, config.steps = 64, 156  # an epoch
    config.optimizer.warmup = 16
    config.optimizer.weight_decay = 0.01
    config.optimizer.clip = 1.0
    return config


def _arms(task: str, teacher: str) -> arms.Arms:
    before: tuple[Scheme, ...] = () if task == "text" else (SinCos(),)
    mimetic = (*before, mimetic_language() if task == "text" else Mimetic())
    anti = CorrelatedMLP(-0.5)
    attention, mlp = DINOV2
    found: arms.Arms = {
        "default": {},
        "anti": {"scheme": (anti,)},
        "correlated": {"scheme": (CorrelatedMLP(0.5),)},
        "profile": {"scheme": (mlp,)},
        "mimetic": {"scheme": mimetic},
        "norm_matched_mimetic": arms.noise({"scheme": mimetic}),
        "mimetic_anti": {"scheme": (*mimetic, anti)},
    }
    if task == "text":
        strong = {"scheme": (arms.STRONG,)}
        found |= {"strong": strong, "norm_matched_strong": arms.noise(strong)}
    if task == "images":
        fitted = (*before, attention)
        found |= {
            "fit": {"scheme": fitted},
            "norm_matched_fit": arms.noise({"scheme": fitted}),
            "fit_profile": {"scheme": (*fitted, mlp)},
        }
    if teacher:
        found["selection"] = {"init_from": teacher, "init_parts": ("layers",)}
    return found
