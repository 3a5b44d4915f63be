"""A configuration whose runs take seconds, with arms chosen as those of the papers' are."""

from configs import arms
from configs.default import default
from mimetic_jax.schemes import Mimetic, NormMatched, SinCos


def get_config(width=16, steps=8, teacher="", init=arms.ALL):
    config = default()
    config.name = "tiny"
    config.batch = 128
    config.steps = steps
    config.model.update(width=width, depth=1, heads=2, patch=4)
    config.max_dispatch = config.log_every = config.checkpoint_every = config.eval.every = 4
    config.eval.batch = 120
    positions = SinCos()
    compared = {
        "default": {},
        "norm_matched_mimetic": {"scheme": (positions, NormMatched(Mimetic()))},
        "mimetic": {"scheme": (positions, Mimetic())},
    }
    if teacher:
        compared["started"] = {"init_from": teacher, "init_parts": ("attention",)}
    config.arms = arms.chosen(init, compared)
    return config
