"""Arms that several configurations compare, and how `init` chooses among them."""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from ml_collections import ConfigDict

from mimetic_jax import schemes as s
from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.schemes import Impulse, MeanShift, Mimetic, Scheme, SinCos, mimetic_language
from mimetic_jax.train.record import CONTROLS, NOISE, PERMUTED, SCATTERED

Overrides: TypeAlias = Mapping[str, Any] | tuple[Scheme, ...]
"""The fields that an arm overrides, or its schemes if it overrides nothing else."""

Arms: TypeAlias = dict[str, Overrides]
Names: TypeAlias = tuple[str, ...]
Groups: TypeAlias = Mapping[str, Arms]

ALL = ("all",)
"""The default of `init`: all arms that a configuration compares."""

_IMPULSE = Impulse(noise_vo="normal", zero_bias=True)
"""Beside `Mimetic`, from which it differs in query and key alone."""


def chosen(
    init: Iterable[str], arms: Arms, compared: Iterable[str] = (), groups: Groups | None = None
) -> ConfigDict:
    """Choose the arms that `init` names, in order; a group's name stands for all its arms.

    Every arm with structure has controls, which tables find by their names: norm_matched_NAME and
    permuted_NAME, of impulses also scattered_NAME. "all" are the arms that are compared, unless
    given all `arms` and their noise, and what is scattered of these.
    """
    named = {name: _fields(arm) for name, arm in arms.items()}
    noises, permuted, scattered = (
        {
            f"{CONTROLS[kind]}{name}": control
            for name, arm in named.items()
            if (control := _control(arm, scheme)) != arm
        }
        for kind, scheme in _KINDS.items()
    )
    named = noises | permuted | scattered | named
    every: Arms = {name: named[name] for name in compared or [*arms, *noises]}
    of_these = {f"{CONTROLS[SCATTERED]}{name}" for name in every}
    every |= {name: named[name] for name in scattered if name in of_these}
    together = {"all": every, **(groups or {})}
    members = {arm: own for group in together.values() for arm, own in group.items()} | named
    picked: Arms = {}
    for name in init:
        if name not in members and name not in together:
            known = {*together, *arms, *noises, *permuted, *scattered}
            raise unknown("init", name, known, "configs/arms.py")
        picked |= together.get(name) or {name: members[name]}
    return ConfigDict({name: _fields(arm) for name, arm in picked.items()}, sort_keys=False)


def _fields(arm: Overrides) -> Mapping[str, Any]:
    return {"scheme": arm} if isinstance(arm, tuple) else arm


def controlled(name: str, *schemes: Scheme) -> Arms:
    """Compare the default, schemes, and noise of their norms."""
    return {"default": {}, f"{CONTROLS[NOISE]}{name}": noise(schemes), name: schemes}


_WITHOUT_STRUCTURE = (
    *(s.SinCos, s.ConstantBias, s.ZeroOut),
    *(s.TFixup, s.NormMatched, s.Permuted, s.Unigram),
)
"""Schemes that stay in a control: positions, biases, zeros, and kernels of independent entries."""


def with_noise(*names: str) -> Names:
    """List each name followed by its norm-matched control."""
    return tuple(f"{kind}{name}" for name in names for kind in ("", CONTROLS[NOISE]))


def noise(arm: Overrides) -> Mapping[str, Any]:
    """Make an arm's control: noise of the same norms for each scheme that has structure."""
    return _control(arm, s.NormMatched)


def _scattered(scheme: Scheme) -> Scheme:
    """Impulses at random tokens, of the same norms."""
    if isinstance(scheme, Impulse) and scheme.amplitude and scheme.order in ("released", "random"):
        return dataclasses.replace(scheme, order="scattered")
    raise InputError(f"{scheme} has no impulses")


_KINDS: Mapping[str, Callable[[Scheme], Scheme]] = {
    NOISE: s.NormMatched,
    PERMUTED: s.Permuted,
    SCATTERED: _scattered,
}


def _control(arm: Overrides, kind: Callable[[Scheme], Scheme]) -> Mapping[str, Any]:
    """An arm with a control in the place of each scheme that has structure and such a control."""
    fields = _fields(arm)
    schemes = list(fields.get("scheme", ()))
    for index, scheme in enumerate(schemes):
        if not isinstance(scheme, _WITHOUT_STRUCTURE):
            with contextlib.suppress(InputError):  # a scheme of which it is no control
                schemes[index] = kind(scheme)
    return {**fields, "scheme": tuple(schemes)} if "scheme" in fields else fields


# What `all` stands for: the arms that a configuration compares unless others are asked for.
VISION = ("default", "sincos", "norm_matched_mimetic", "mimetic")


def vision(scale: float = 1.0, pretrained: str = "") -> Arms:
    """The self-attention paper's arms for images, and its rivals; positions have the scale γ.

    `NAME_zero_mlp` also starts attention's last layer and the second layer of each MLP at zero,
    `NAME_zero_mlp_alone` the second; `token_NAME` draws the position of the class token at the size
    of the others. With the file of a ViT of the same width there are arms `pretrained`, which takes
    attention and positions, and `pretrained_whole`.
    """
    positions, mimetic, zero_mlp = SinCos(scale=scale), Mimetic(), s.ZeroOut(mlp=True)
    query_key, value_out = halves(mimetic)
    whitened_zeros = (s.Whitened(), zero_mlp)
    drawn = SinCos(scale=scale, class_token=1.0)
    whitened_mlp = (s.Whitened(), s.ZeroOut(mlp=True, attention=False))
    arms: Arms = {
        "default": {},  # learned positions
        "sincos": (positions,),
        "norm_matched_mimetic": noise((positions, mimetic)),
        "mimetic": (positions, mimetic),
        "mimetic_learned": (mimetic,),
        "query_key": (positions, query_key),
        "value_out": (positions, value_out),
        "positive": (positions, Mimetic(beta_vo=0.4)),
        "whitened": (positions, s.Whitened()),
        "whitened_mimetic": (positions, s.Whitened(), mimetic),
        "zero_mlp": (positions, zero_mlp),
        "mimetic_zero_mlp": (positions, zero_mlp, mimetic),
        "whitened_zero_mlp": (positions, *whitened_zeros),
        "whitened_zero_mlp_noise": (positions, *whitened_zeros, s.NormMatched(mimetic)),
        "whitened_mimetic_zero_mlp": (positions, *whitened_zeros, mimetic),
        "whitened_zero_mlp_alone": (positions, *whitened_mlp),
        "token": (drawn,),  # for models with a class token
        "token_whitened": (drawn, s.Whitened()),
        "token_whitened_zero_mlp": (drawn, *whitened_zeros),
        "token_whitened_zero_mlp_alone": (drawn, *whitened_mlp),
        # Solved for random positions: those of sin and cos have too low a rank.
        "impulse": (_IMPULSE,),
        "whitened_impulse_zero_mlp": (*whitened_zeros, _IMPULSE),
        # The paper doesn't say which positions these have.
        "t_fixup": (positions, s.TFixup()),
        "t_fixup_learned": (s.TFixup(),),
        "zero": (positions, s.Zero()),
        "zero_learned": (s.Zero(),),
    }
    # The paper reports the best of ten initial values; value and out are the model's own.
    arms |= {
        f"layer_scale_{form}_{tenths}": {
            "model": {"layer_scale": form, "scale_init": tenths / 10},
            "scheme": (positions, query_key),
        }
        for form in ("branch", "skip")
        for tenths in range(1, 11)
    }
    if pretrained:
        parts = ("attention", "position")
        arms["pretrained"] = {"init_from": pretrained, "init_parts": parts}
        arms["pretrained_whole"] = {"init_from": pretrained}
    return arms


FEW_IMAGES: Mapping[str, Names] = {
    "mean": ("default", "norm_matched_whitened_zero_mlp", "whitened_zero_mlp"),
    "token": ("default", "norm_matched_whitened_zero_mlp_alone", "whitened_zero_mlp_alone"),
}
"""What is compared by what a model reads: with a class token, attention doesn't end in zeros."""


def few_images() -> Arms:
    """Arms for a few thousand images: those of `vision`, where default has sin-cos positions too.

    `learned` is the default with learned positions.
    """
    others = {name: arm for name, arm in vision().items() if name != "sincos"}
    return others | {"default": (SinCos(),), "learned": ()}


GAMMAS = {f"scale_{percent}": percent / 100 for percent in (50, 100, 150, 200, 300, 400)}
"""Scales γ of positions by the arms of the self-attention paper's figure 4; values are ours."""

SHARES = (10, 20, 40, 60, 80, 100)
"""Percent of the training data in its figure 6; ours, too."""


GRIDS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    pair: {
        f"{pair}_{a}_{b}": {f"alpha_{pair}": a / 100, f"beta_{pair}": sign * b / 100}
        for a, b in itertools.product(range(0, 101, 20), repeat=2)
        if a or b
    }
    for pair, sign in (("vo", -1), ("qk", 1))
}
"""α and β of a pair of matrices by the arms of its figure 10; values are ours."""


def figures(scale: float) -> Groups:
    """The self-attention paper's figures 4 (γ), 6 (share of the training data) and 10 (α and β)."""
    positions = SinCos(scale=scale)
    mimetic = {"scheme": (positions, Mimetic())}
    others = {"vo": Mimetic(alpha_qk=0.6, beta_qk=0.3), "qk": Mimetic()}
    return {
        "figure4": {name: (SinCos(scale=gamma), Mimetic()) for name, gamma in GAMMAS.items()},
        "figure6": {
            f"{name}_{share}": {**arm, "data": {"subset": share / 100}}
            for share in SHARES
            for name, arm in (("default", {}), ("mimetic", mimetic))
        },
        "figure10": {
            name: (positions, dataclasses.replace(others[pair], **own))
            for pair, grid in GRIDS.items()
            for name, own in grid.items()
        },
    }


def halves(mimetic: Mimetic) -> tuple[Mimetic, Mimetic]:
    """Structure in query and key alone, and in value and out alone."""
    return (
        dataclasses.replace(mimetic, alpha_vo=None, beta_vo=None),
        dataclasses.replace(mimetic, alpha_qk=None, beta_qk=None),
    )


def neighbors() -> Arms:
    """Arms that tell what of `Impulse` gains on images: see configs/neighbors_vit.py.

    frame is all of it but query and key: larger positions, W_V W_out. The others add to the frame,
    in query and key alone: impulse those of heads that attend to a neighbor, scattered_impulse of
    heads that attend to any token, at a norm by which rows attend to as many tokens on average of
    the three layers (32 of 64), norm_matched_impulse noise of impulse's norm.
    """
    frame, only_maps = Impulse(amplitude=None), Impulse(alpha_vo=None, beta_vo=None)
    only_maps = dataclasses.replace(only_maps, position_scale=1.0)  # the frame scales them
    scattered = dataclasses.replace(only_maps, order="scattered", norm=5.15)
    return {
        "default": {},  # learned positions
        "sincos": (SinCos(),),
        "mimetic": (SinCos(), Mimetic()),
        "frame": (frame,),
        "norm_matched_impulse": (frame, s.NormMatched(only_maps)),
        "scattered_impulse": (frame, scattered),
        "impulse": (frame, only_maps),
    }


NEIGHBORS = ("default", "frame", "norm_matched_impulse", "scattered_impulse", "impulse")


STRUCTURED: Names = ("default", *with_noise("mimetic", "impulse"))


def structured(impulse: Scheme | None = None) -> Arms:
    """Arms of the structured paper's released code.

    The mimetic arm of that code keeps the learned positions, draws uniform noise, and stores value
    and out untransposed: `Mimetic.port()`. None of its arms touches a bias. The impulse is
    `Impulse()` unless given; of models with windows it is an `ImpulseBias`.
    """
    return {
        **controlled("impulse", impulse or Impulse()),
        "mimetic": (Mimetic.port(),),
        "positive_filters": (Impulse(order="positive"),),  # section 4.1: no impulses
    }


B = 0.5
"""Mean of the first kernel of an MLP, in standard deviations of its draw."""


def mlp(width: int, base: str, b: float = B) -> Arms:
    """Arms of the MLP paper, of ViTs and ConvNeXts; the constant bias is as large as the shift."""
    std = {"torch": (3 * width) ** -0.5, "timm": 0.02}[base]
    positions, mimetic, shift, conv = SinCos(), Mimetic(), MeanShift(b), s.ConvMimetic()
    return {
        **controlled("mean_shift", shift),
        "constant_bias": (s.ConstantBias(b * std),),
        "per_input": (MeanShift(b, per_input=True),),  # eq. 1
        "mimetic": (positions, mimetic),
        "mimetic_mean_shift": (positions, mimetic, shift),
        "conv": (conv,),
        "conv_mean_shift": (conv, shift),
        "anti_correlated": (s.CorrelatedMLP(-(0.5**0.5)),),  # as ½ (W₁ - W₂ᵀ) is
    }


MEANS = {
    f"b_{name}_{size}": sign * size / 1000
    for name, sign in (("minus", -1), ("plus", 1))
    for size in (5, 10, 20, 50)
}
"""Means b of the first kernel of an MLP, by the arms of the MLP paper's figure 4; ours, too."""


def mean_sweep(width: int) -> Groups:
    """Arms of the MLP paper's figure 4, as groups.

    "sweep": baselines, and a mean of each size and sign beside the default; "baselines": the means
    beside zero_bias, normal and learned_sum, such as normal_b_plus_20.
    """
    std = (3 * width) ** -0.5  # of PyTorch's default, U(±1/√width)
    baselines: Arms = {
        "default": {},
        "norm_matched_b_plus_50": (s.NormMatched(MeanShift(MEANS["b_plus_50"] / std)),),
        "zero_bias": (s.ConstantBias(0.0),),
        "constant_bias": (s.ConstantBias(B * std),),
        "normal": {"model": {"base": "timm"}},
        "learned_sum": {"model": {"learn_sum": True}},
    }
    shifts: Arms = {name: (MeanShift(mean / std),) for name, mean in MEANS.items()}
    beside: Arms = {}
    for baseline, of in (("zero_bias", std), ("normal", 0.02), ("learned_sum", std)):
        fields = _fields(baselines[baseline])
        for name, mean in MEANS.items():
            scheme = (*fields.get("scheme", ()), MeanShift(mean / of))
            beside[f"{baseline}_{name}"] = {**fields, "scheme": scheme}
    return {"sweep": baselines | shifts, "baselines": beside}


LANGUAGE = ("default", "norm_matched_mimetic", "mimetic")


def language() -> Arms:
    """Arms of the self-attention paper's language models."""
    return {
        **controlled("mimetic", mimetic_language()),
        "strong": (mimetic_language(beta_vo=-0.4),),  # twice the paper's -I in W_V W_out
    }


_HALF = s.PositionalHeads(10_000)
"""The first half of the heads looks at a distance."""


def first_layer() -> Arms:
    """Embeddings from the counts of the training text: at the model's own scale, and at others.

    `log_p`, the output layer's bias alone, is in all of them but `embedding_std_25`: their gain is
    what they have beyond. `counts_half` adds `half` of `positional`.

    `channel` and what begins so are for models whose output layer has neither a bias nor the
    numbers of the embedding: one channel is constant, and log p reads it, or log p of other tokens.
    """
    log_p, scales = s.Unigram(), {"": None, "_std_25": 0.25, "_std_100": 1.0}
    channel = s.PositionalHeads(10_000, channel=0, sharpness=0.0)
    counts = {name: s.Cooccurrence(std=std) for name, std in scales.items()}
    return {
        "default": {},
        "log_p": (log_p,),
        **{f"counts{name}": (log_p, scheme) for name, scheme in counts.items()},
        "embedding_std_25": (counts["_std_25"],),
        "counts_half": (log_p, counts["_std_25"], _HALF),
        "channel": (channel,),
        "channel_log_p": (channel, log_p),
        "channel_shuffled_log_p": (channel, s.Permuted(log_p)),
        "channel_counts_log_p": (counts["_std_25"], channel, log_p),
        "channel_counts_log_p_half": (
            counts["_std_25"],
            dataclasses.replace(_HALF, channel=0),
            log_p,
        ),
    }


FIRST_LAYER = (
    "default",
    "log_p",
    "norm_matched_counts_std_25",
    "permuted_counts_std_25",
    "counts_std_25",
)
"""At the best σ of those that were tried where the output layer is the embedding."""


def positional() -> Arms:
    """Heads that look at a distance, for models with rotary positions.

    In `half` the last half of the heads has no such part; `bare` has no biases of query, key and
    value. permuted_positional has random phases.
    """
    scheme = dataclasses.replace(_HALF, sharpness=8.0)
    bare = {"model": {"bias_free": True}}
    return {
        "default": {},
        "positional": (scheme,),
        "half": (_HALF,),
        "bare": bare,
        "bare_positional": {**bare, "scheme": (dataclasses.replace(scheme, channel=0),)},
    }


POSITIONAL = ("default", "norm_matched_positional", "positional")
