"""Arms that several configurations compare, and how `init` chooses among them."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from ml_collections import ConfigDict

from mimetic_jax.errors import unknown
from mimetic_jax.schemes import (
    ConstantBias,
    Impulse,
    ImpulseBias,
    MeanShift,
    Mimetic,
    NormMatched,
    SinCos,
    UniformAttention,
    ZeroOut,
    mimetic_language,
)

Arms: TypeAlias = dict[str, Mapping[str, Any]]


def chosen(init: str, compared: Arms, others: Arms | None = None) -> ConfigDict:
    """All of `compared` for "all", else the one arm of that name, of either.

    Raises:
        InputError: there is no arm of that name.
    """
    every = compared | (others or {})
    if init != "all" and init not in every:
        raise unknown("init", init, ["all", *every])
    picked = compared if init == "all" else {init: every[init]}
    return ConfigDict(picked, sort_keys=False)


def attention(scale: float = 1.0) -> Arms:
    """Arms of the self-attention paper; `scale` is γ of the sin-cos positions."""
    positions, mimetic = SinCos(scale=scale), Mimetic()
    return {
        "default": {},  # learned positions
        "sincos": {"scheme": (positions,)},
        "norm_matched": {"scheme": (positions, NormMatched(mimetic))},
        "mimetic": {"scheme": (positions, mimetic)},
    }


def structured() -> Arms:
    """Arms of the structured paper's released code, with the control of its method.

    Its mimetic arm keeps the learned positions, draws uniform noise, and stores value and out
    untransposed: `Mimetic(orientation="port")`.
    """
    return {
        "default": {},
        "norm_matched": {"scheme": (NormMatched(Impulse()),)},
        "mimetic": {"scheme": (Mimetic(noise="uniform", orientation="port"),)},
        "impulse": {"scheme": (Impulse(),)},
    }


def windows(strength: float) -> Arms:
    """Arms of the structured paper for models with windows, whose impulse is in their biases.

    The mimetic arm is that of `structured`. `strength` is the gain of the bias, not published.
    """
    impulse = ImpulseBias(strength=strength)
    return {
        "default": {},
        "norm_matched": {"scheme": (NormMatched(impulse),)},
        "mimetic": {"scheme": (Mimetic(noise="uniform", orientation="port"),)},
        "impulse": {"scheme": (impulse,)},
    }


def mlp(b: float, width: int, base: str) -> tuple[Arms, Arms]:
    """Arms of the MLP paper: those compared by default, and the others.

    The constant bias is as large as the shift is: b standard deviations of the first kernel.
    """
    std = {"torch": (3 * width) ** -0.5, "timm": 0.02}[base]
    shift, positions, mimetic = MeanShift(b), SinCos(), Mimetic()
    compared: Arms = {
        "default": {},
        "norm_matched": {"scheme": (NormMatched(shift),)},
        "constant_bias": {"scheme": (ConstantBias(b * std),)},
        "mean_shift": {"scheme": (shift,)},
    }
    others: Arms = {
        "per_input": {"scheme": (MeanShift(b, per_input=True),)},  # eq. 1
        "mimetic": {"scheme": (positions, mimetic)},
        "mimetic_mean_shift": {"scheme": (positions, mimetic, shift)},
    }
    return compared, others


def language(depth: int) -> tuple[Arms, Arms]:
    """Arms of the self-attention paper's language models: compared by default, and the others."""
    mimetic = mimetic_language()
    turning = tuple(0.4 * layer / max(depth - 1, 1) - 0.2 for layer in range(depth))
    compared: Arms = {
        "default": {},
        "norm_matched": {"scheme": (NormMatched(mimetic),)},
        "mimetic": {"scheme": (mimetic,)},
    }
    others: Arms = {
        "zero_out": {"scheme": (ZeroOut(),)},
        # It replaced the identity form in a GPT speed run: all four kernels, 0.5 D^-1/2.
        "uniform": {"scheme": (UniformAttention(),)},
        "random_basis": {"scheme": (mimetic_language(degenerate="random_basis"),)},
        "positive": {"scheme": (mimetic_language(beta_vo=0.2),)},
        # As in trained GPT-2s: W_V W_out leans to -I in the first layers, to +I in the last.
        "turning": {"scheme": (mimetic_language(beta_vo=turning),)},
    }
    return compared, others
