"""What trained transformers look like, as initializations of small ones: docs/trained.md.

Paper: none; whether it helps to start with the products of a trained transformer is our question.
Command: python launch/reproduce.py trained --data_dir=DIR --file=dinov2_s.safetensors
    python main.py --config=configs/trained.py:task=digits,init=default+anti
Chosen: sizes and lengths for what a CPU trains in seconds; arms choose their learning rates at seed
    100 (papers/trained.py).
"""

from ml_collections import ConfigDict

from configs import arms, digits_vit, python_docs
from configs.default import check_choice
from configs.recipes import TEXTS, few_images
from mimetic_jax.schemes import ByDepth, CorrelatedMLP, Mimetic, Scheme, SinCos, mimetic_language

_FIT = """
.736 1.936 1.039 1.127 .6042 .4895 .4292 .4291 .4754 .4479 .4394 .5885
.09153 .3449 .1572 .1453 .06056 .04347 .04399 .04659 .06583 .05131 .0535 .1477
.06107 .02919 .03448 .03617 .04405 .06812 .08466 .1325 .1394 .2068 .2833 1.919
-.02982 -.0328 -.01485 -.007299 -.01179 -.008714 -.02073 -.01632 -.02155 -.04571 -.07516 .0608
-.2261 -.3896 -.3049 -.2794 -.2412 -.1961 -.07099 -.01829 .1888 .03587 .2033 .01384
"""
"""`mimetic fit` of DINOv2's ViT-S/14, layer by layer; the file is named in docs/trained.md. Lines
are alpha_qk, beta_qk, alpha_vo, beta_vo and the rho of MLPs."""

STEPS = {"images": 156, "digits": 100, "text": 200, "ptb": 200}
"""Of each task; those of images are an epoch."""


def get_config(
    task: str = "digits", steps: int = 0, teacher: str = "", init: arms.Names = arms.ALL
) -> ConfigDict:
    """`task` is images, digits, text or ptb; `steps` replaces its own 156, 100, 200 and 200.
    `teacher` is a file of a trained ViT that is larger than 48/4 of 2 heads, from which the arm
    `selection` takes evenly spaced weights of its first layers: for task=images.
    """
    check_choice("task", task, STEPS)
    steps = steps or STEPS[task]
    if task == "images":
        config = few_images(0.2, width=48, depth=4, heads=2, patch=4, base="torch")
        config.update(batch=64, steps=steps)
        config.optimizer.update(warmup=round(steps / 10), clip=1.0)
    elif task == "digits":
        config = digits_vit.get_config(steps=steps)
        config.batch = 64
    else:
        config = python_docs.get_config(steps=steps)
        config.data.name = TEXTS[task]
    config.name = f"trained_{task}"
    config.eval.every = 0  # testing takes as long as training
    config.arms = _arms(task, teacher, init)
    return config


def _arms(task: str, teacher: str, init: arms.Names) -> ConfigDict:
    is_text = task in TEXTS
    before: tuple[Scheme, ...] = () if is_text else (SinCos(),)
    mimetic = (*before, mimetic_language() if is_text else Mimetic())
    a, b, c, d, rho = (ByDepth(tuple(map(float, line.split()))) for line in _FIT.split("\n")[1:-1])
    anti, profile, fit = CorrelatedMLP(-0.5), CorrelatedMLP(rho), (*before, Mimetic(a, b, c, d))
    every: arms.Arms = {
        "default": {},
        "anti": (anti,),
        "correlated": (CorrelatedMLP(0.5),),
        "profile": (profile,),
        "mimetic": mimetic,
        "norm_matched_mimetic": arms.noise(mimetic),
        "mimetic_anti": (*mimetic, anti),
    }
    others: arms.Arms = {}
    if is_text:
        every |= {"strong": (arms.STRONG,), "norm_matched_strong": arms.noise((arms.STRONG,))}
        # The -I of `strong` alone.
        others["strong_value_out"] = (arms.halves(arms.STRONG)[1],)
    if task == "images":
        every |= {"fit": fit, "norm_matched_fit": arms.noise(fit), "fit_profile": (*fit, profile)}
    if teacher:
        every["selection"] = {"init_from": teacher, "init_parts": ("layers",)}
    starts = ("default", "strong", "strong_value_out") if is_text else ("default", "mimetic")
    others |= arms.exclusive(every | others, *starts)
    return arms.chosen(init, every | others, every)
